"""What raters are asked: one file a task, and here what all tasks share: a question, an answer, how it is read."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from annotators.rubric import Rubric, Scale
from runner import plain_json
from runner.records import Usage

MAX_RAW_CHARS = 4000
_BLOCK = re.compile(r"```(?:json)?\s*\n(.*?)\n\s*```", re.S)


@dataclass(frozen=True)
class Question:
    """One message to a model: the prefix that is the same for every item of a task, the item, the answer's schema."""

    system: str
    user: str
    schema: Mapping[str, Any]
    schema_name: str
    max_output_tokens: int


@dataclass(frozen=True)
class Answer:
    """What came back for one question: its text, or the reason why it is no answer, with what was said in `raw`."""

    text: str | None
    unscored: str | None = None
    raw: str | None = None
    usage: Usage | None = None


class Unreadable(ValueError):
    """An answer that cannot be taken; the message is the reason that the record keeps."""


def parsed(text: str) -> dict[str, Any]:
    """The JSON object of an answer: the whole text, a fenced block in it, or its first object.

    Raises:
        Unreadable: there is no JSON object.
    """
    block = _BLOCK.search(text)
    at = text.find("{")
    for candidate in (text, block[1] if block else None):
        if candidate is None:
            continue
        try:
            value = plain_json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value
    if at >= 0:
        try:
            value, _ = json.JSONDecoder().raw_decode(text, at)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            return value
    raise Unreadable("unreadable answer: no JSON object in it")


def shown(value: Any) -> str:
    """A value from an answer, bounded, for a reason."""
    return repr(value)[:80]


def bounded(text: str | None) -> str | None:
    """What was said, cut to what a record keeps."""
    return text if text is None or len(text) <= MAX_RAW_CHARS else text[:MAX_RAW_CHARS] + " [cut]"


def is_yes_no(scale: Scale) -> bool:
    """Whether a flag's values are true and false, which JSON has its own words for."""
    return set(scale.ids) == {"true", "false"}


def scale_schema(scale: Scale) -> dict[str, Any]:
    return {"type": "boolean"} if is_yes_no(scale) else {"type": "string", "enum": list(scale.ids)}


def scale_value(scale: Scale, value: Any) -> Any:
    """A flag's or scale's value as records keep it; Unreadable when the rubric has no such value."""
    if is_yes_no(scale):
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
    elif isinstance(value, str) and value in scale.ids:
        return value
    raise Unreadable(f"{scale.id} outside the rubric: {shown(value)}")


def described(rubric: Rubric, answers_name: str = "label") -> str:
    """A rubric in words for a model: labels with what they are, are not and look like, rules, flags and scales."""
    lines = [rubric.title, "", f"Unit: {rubric.unit.strip()}", "", f"Values of `{answers_name}`:"]
    for label in rubric.labels:
        lines.append(f"- {label.id}: {label.is_} It is not: {label.is_not}")
        lines += [f"    e.g. {example}" for example in label.examples]
    if rubric.none_label:
        lines.append(f"- {rubric.none_label}: none of the above.")
    if rubric.rules:
        lines += ["", "How to decide:", *(f"- {rule}" for rule in rubric.rules)]
    for scale in (*rubric.flags, *rubric.scales):
        lines += ["", f"Values of `{scale.id}`: {scale.is_}", *(f"- {v.id}: {v.is_}" for v in scale.values)]
    return "\n".join(lines)


def strict(properties: Mapping[str, Any]) -> dict[str, Any]:
    """An object schema as strict structured output wants it: every property due, nothing else allowed."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }
