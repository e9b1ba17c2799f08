"""A conversation with tools as data, and its spelling for a server: tool calls, or one JSON action per reply."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from runner import plain_json

TEXT_RULES = (
    "This server has no tool calls. Reply with exactly one action: a JSON object "
    '{"tool": NAME, "arguments": {...}} and nothing else. A long text argument may instead follow the object as one '
    "fenced code block. The tools and their arguments (JSON Schema):"
)


@dataclass(frozen=True)
class Tool:
    """What a model may call; `parameters` is the JSON Schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, Any]

    def plain(self) -> dict[str, Any]:
        return {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}


@dataclass(frozen=True)
class Call:
    """One call by the model; `arguments` is what it wrote, JSON or not."""

    id: str
    name: str
    arguments: str

    def parsed(self) -> dict[str, Any] | None:
        """The arguments as an object; None where they are none."""
        try:
            value = plain_json.loads(self.arguments or "{}")
        except ValueError:
            return None
        return value if isinstance(value, dict) else None

    def plain(self) -> dict[str, Any]:
        # Servers read the arguments again when they fill their template: what is no JSON would break every later turn.
        sound = self.arguments if self.parsed() is not None else json.dumps({"unreadable": self.arguments[:200]})
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": sound or "{}"}}


@dataclass(frozen=True)
class Message:
    """One message; `calls` on an assistant's, `answers` (the id of the call) on a tool's."""

    role: str
    text: str
    calls: tuple[Call, ...] = ()
    answers: str | None = None


@dataclass(frozen=True)
class Chat:
    """A conversation so far, of which the next message is asked for; the first message is the system's."""

    messages: Sequence[Message]
    tools: Sequence[Tool]
    max_output_tokens: int
    seed: int | None = None
    temperature: float | None = None

    def texts(self) -> list[str]:
        """Every text that is sent, for an estimate of its tokens."""
        told = [m.text + "".join(c.arguments + c.name for c in m.calls) for m in self.messages]
        return told + [json.dumps(t.plain()) for t in self.tools]

    def content(self, with_tools: bool, with_system: bool) -> dict[str, Any]:
        """`messages` and `tools` of the request's body, for a server with or without tools and a system role."""
        messages = list(self.messages)
        if self.tools and not with_tools:
            messages = in_text(messages, self.tools)
        if not with_system and len(messages) > 1 and messages[0].role == "system":
            second = replace(messages[1], text=f"{messages[0].text}\n\n{messages[1].text}")
            messages = [second, *messages[2:]]
        body: dict[str, Any] = {"messages": [_plain(m) for m in messages]}
        if self.tools and with_tools:
            body["tools"] = [{"type": "function", "function": t.plain()} for t in self.tools]
        return body


def in_text(messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
    """The same conversation in plain messages: calls as JSON, answers as the user's; roles take turns."""
    out: list[Message] = []
    for index, m in enumerate(messages):
        role, text = m.role, m.text
        if index == 0 and role == "system":
            text += f"\n\n{TEXT_RULES}\n" + "\n".join(json.dumps(t.plain()) for t in tools)
        if m.calls:
            said = [json.dumps({"tool": c.name, "arguments": c.parsed() or {}}) for c in m.calls]
            text = "\n".join([t for t in (text,) if t.strip()] + said)
        if role == "tool":
            role = "user"
        if out and out[-1].role == role:
            out[-1] = Message(role, f"{out[-1].text}\n\n{text}")
        else:
            out.append(Message(role, text))
    return out


def _plain(message: Message) -> dict[str, Any]:
    body: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.calls:
        body["tool_calls"] = [c.plain() for c in message.calls]
    if message.answers is not None:
        body["tool_call_id"] = message.answers
    return body


def calls_of(message: Mapping[str, Any]) -> tuple[Call, ...]:
    """The calls in an answer's message; entries that are none are left out."""
    found = []
    told = message.get("tool_calls")
    for index, entry in enumerate(told if isinstance(told, list) else []):
        function = entry.get("function") if isinstance(entry, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            continue
        arguments = function.get("arguments")
        arguments = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
        name = entry.get("id")
        found.append(Call(name if isinstance(name, str) and name else f"call_{index}", function["name"], arguments))
    return tuple(found)


def action_in(text: str, names: Sequence[str]) -> Call | None:
    """The one action that a reply in plain text holds: a JSON object with a known tool's name; None without one.

    A fenced code block after the object becomes the argument `text` of whoever needs one (see `Call.parsed`).
    """
    decoder, at = json.JSONDecoder(), text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at = text.find("{", at + 1)
            continue
        if isinstance(value, dict) and (name := value.get("tool") or value.get("name")) in names:
            arguments = value.get("arguments")
            arguments = dict(arguments) if isinstance(arguments, dict) else {}
            if (block := _block(text[end:])) is not None:
                arguments.setdefault("text", block)
            return Call("action", name, json.dumps(arguments))
        at = text.find("{", max(end, at + 1))
    return None


def _block(text: str) -> str | None:
    """What the first fenced code block holds: from its fence to the last line that closes one as long."""
    lines = text.split("\n")
    start = next((i for i, line in enumerate(lines) if line.lstrip().startswith("```")), None)
    if start is None or lines[start].strip() == "```" and all(not x.strip() for x in lines[start + 1 :]):
        return None
    mark = "`" * (len(lines[start].lstrip()) - len(lines[start].lstrip().lstrip("`")))
    ends = [i for i, line in enumerate(lines) if i > start and line.strip() == mark]
    return "\n".join(lines[start + 1 : ends[-1]]) + "\n" if ends else None
