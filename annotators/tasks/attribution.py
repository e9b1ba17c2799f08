"""The attribution task: why a transfer fell behind and how far the note was followed, proved by quotations."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from annotators import fence, quotes, views
from annotators.records import Attribution, Quotation, Rater, Side
from annotators.rubric import Rubric
from annotators.tasks import (
    Answer,
    Question,
    Unreadable,
    bounded,
    described,
    parsed,
    scale_schema,
    scale_value,
    shown,
    strict,
)
from annotators.views import Source, TransferView
from runner import digests
from runner.records import Usage

MAX_QUOTATIONS = 8
MAX_RATIONALE_CHARS = 1000
ROOM_TOKENS = 1500
FORM = 1  # raise when wording or layout of a request changes
_ATTEMPT = (Side.CONDITIONED_KERNEL, Side.SUBMISSION, Side.OWN_NOTE)
_NO_SECOND = "no_second"
_QUESTIONS = {
    True: "Give the cause, a second cause where there is one, and the adherence.",
    False: "Give the adherence. No cause is due.",
}


class AttributionTask:
    """Asks for and reads causes and adherence under one rubric."""

    name, table, record = "attribution", "attributions", Attribution

    def __init__(self, rubric: Rubric):
        self.rubric = rubric
        self.scale = rubric.scales[0]

    @cached_property
    def system(self) -> str:
        return "\n\n".join(
            (
                "You judge experiments with agents that write GPU kernels. One attempt (conditioned) was given a "
                "note that came from another DSL; its twin (target solo) worked without it. Follow the rubric "
                "exactly.",
                described(self.rubric, "cause"),
                fence.RULE,
                "Each fenced text has a name. A quotation is copied letter for letter out of one of them, "
                "without the fence, short (one line, at most 200 characters), and names the text that it comes "
                "from. Give at least one from `source note`, or set note_unused to true where the note was not "
                "used, and at least one from the conditioned attempt (its kernel, submissions or own note). "
                "Invent none: each is looked up, and one that is not found voids the answer. Answer with "
                'JSON and nothing else: {"rationale": "one or two sentences", '
                f'"{self.scale.id}": ..., "note_unused": true or false, '
                '"quotations": [{"source": name, "text": ...}], "cause": ..., "second_cause": ... or '
                f'"{_NO_SECOND}"}}. Where no cause is due, leave out the last two.',
            )
        )

    @cached_property
    def prompt_sha256(self) -> str:
        """Digest of all that is the same in every request: the prefix, the schema, the sizes, the form of the rest."""
        return digests.of_value(
            {
                "system": self.system,
                "schema": self._schema(True, ()),
                "form": FORM,
                "questions": [_QUESTIONS[True], _QUESTIONS[False]],
                "sizes": [views.ROOM, views.SUBMISSION_KERNELS_ROOM, views.MAX_SUBMISSION_KERNELS],
            }
        )

    def _schema(self, cause_asked: bool, names: Sequence[str]) -> dict[str, Any]:
        source = {"type": "string", "enum": list(names)} if names else {"type": "string"}
        properties = {
            "rationale": {"type": "string"},
            self.scale.id: scale_schema(self.scale),
            "note_unused": {"type": "boolean"},
            "quotations": {"type": "array", "items": strict({"source": source, "text": {"type": "string"}})},
        }
        if cause_asked:
            properties |= {
                "cause": {"type": "string", "enum": list(self.rubric.ids)},
                "second_cause": {"type": "string", "enum": [*self.rubric.ids, _NO_SECOND]},
            }
        return strict(properties)

    def questions(self, item: TransferView) -> list[Question]:
        """The one request for a transfer."""
        code = fence.nonce((item.facts, *(s.text for s in item.sources)))
        parts = [fence.opening(code), _QUESTIONS[item.cause_asked], fence.fenced(code, "facts", item.facts)]
        parts += [fence.fenced(code, s.name, s.shown) for s in item.sources]
        schema = self._schema(item.cause_asked, [s.name for s in item.sources if s.side])
        return [Question(self.system, "\n".join(parts), schema, "attribution", ROOM_TOKENS)]

    def read(
        self,
        item: TransferView,
        answers: Sequence[Answer],
        rater: Rater,
        usage: Usage | None = None,
        at: str | None = None,
    ) -> Attribution:
        """The record of one transfer: its labels with proven quotations, or the reason why it has none."""
        answer = answers[0]
        base = {
            "transfer": item.ref,
            "rater": rater,
            "cuts": item.cuts,
            "cause_asked": item.cause_asked,
            "usage": usage,
            "at": at,
        }
        try:
            if answer.text is None:
                raise Unreadable(answer.unscored or "no answer")
            return Attribution(**base, **self._taken(item, parsed(answer.text)))
        except Unreadable as why:
            return Attribution(**base, unscored=str(why), raw=bounded(answer.text or answer.raw))

    def _taken(self, item: TransferView, said: dict[str, Any]) -> dict[str, Any]:
        cause = second = None
        if item.cause_asked:
            cause, second = said.get("cause"), said.get("second_cause")
            if cause not in self.rubric.ids:
                raise Unreadable(f"cause outside the rubric: {shown(cause)}")
            second = None if second in (None, "", _NO_SECOND, cause) else second
            if second is not None and second not in self.rubric.ids:
                raise Unreadable(f"second cause outside the rubric: {shown(second)}")
        unused = said.get("note_unused", False)
        if not isinstance(unused, bool):
            raise Unreadable(f"note_unused is neither true nor false: {shown(unused)}")
        adherence = scale_value(self.scale, said.get(self.scale.id))
        quoted = self._quotations(item, said.get("quotations"))
        if not unused and not any(q.side is Side.NOTE for q in quoted):
            raise Unreadable("evidence missing: no quotation from the note, nor that it was not used")
        if not any(q.side in _ATTEMPT for q in quoted) and item.of_side(*_ATTEMPT):
            raise Unreadable("evidence missing: no quotation from the conditioned attempt")
        rationale = said.get("rationale")
        return {
            "cause": cause,
            "second_cause": second,
            "adherence": adherence,
            "note_unused": unused,
            "quotations": tuple(quoted),
            "rationale": rationale[:MAX_RATIONALE_CHARS] if isinstance(rationale, str) and rationale else None,
        }

    def _quotations(self, item: TransferView, given: Any) -> list[Quotation]:
        if not isinstance(given, list):
            raise Unreadable("unreadable answer: no list of quotations in it")
        return [_found(item, entry) for entry in given[:MAX_QUOTATIONS]]


def _found(item: TransferView, entry: Any) -> Quotation:
    """A quotation looked up in the text that it names; among the conditioned attempt's texts the name may be off."""
    text, name = (entry.get("text"), entry.get("source")) if isinstance(entry, dict) else (None, None)
    if not isinstance(text, str) or not isinstance(name, str):
        raise Unreadable("unreadable answer: a quotation without text or source")
    named = item.source(name)
    if named is None or named.side is None:
        raise Unreadable(f"quotation from no source of evidence: {shown(name)}")
    others: tuple[Source, ...] = item.of_side(*_ATTEMPT) if named.side in _ATTEMPT else ()
    for source in (named, *(s for s in others if s is not named)):
        span = quotes.find(text, source.text)
        if span is not None:
            return Quotation(
                side=source.side, sha256=source.sha256, start=span.start, end=span.end, text=span.of(source.text)
            )
    raise Unreadable(f"invented quotation: {shown(text)} does not stand in {named.name}")
