"""The content task: every claim of a note gets one label and its flags, by number."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from annotators import claims as claims_
from annotators import fence
from annotators.claims import Claim
from annotators.records import Annotation, ClaimLabel, Rater
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
from runner import digests
from runner.records import Usage

MAX_CLAIMS = 40  # claims asked in one request; more are spread over several
MAX_CHARS = 16_000  # note text shown in one request, its surroundings apart
CONTEXT_CHARS = 1_500  # what is shown before the first and after the last claim that is asked
TOKENS_A_CLAIM = 40
FORM = 1  # raise when wording or layout of a request changes: answers to another prompt are another rater's


@dataclass(frozen=True)
class Note:
    """One item: a note of the study with its claims."""

    sha256: str
    text: str
    claims: tuple[Claim, ...]

    @classmethod
    def of(cls, text: str, sha256: str | None = None) -> "Note":
        return cls(sha256 or digests.of_text(text), text, tuple(claims_.split(text)))

    @property
    def key(self) -> str:
        return self.sha256


class Content:
    """Asks for and reads content labels under one rubric."""

    name, table, record = "content", "annotations", Annotation

    def __init__(self, rubric: Rubric):
        self.rubric = rubric

    @cached_property
    def system(self) -> str:
        flags = ", ".join(f'"{f.id}": ...' for f in self.rubric.flags)
        return "\n\n".join(
            (
                "You label the claims of notes that agents wrote about GPU kernels. Follow the rubric exactly.",
                described(self.rubric),
                fence.RULE,
                "In the fenced note, `[CODE n]` with the code of the message stands before each claim that is "
                "asked; the claim runs to the next such mark, heading or code block. Read each claim with its "
                "parent item and its heading. Answer every number once, in order, as JSON and nothing else: "
                f'{{"claims": [{{"n": 1, "label": ...{", " + flags if flags else ""}}}, ...]}}',
            )
        )

    @cached_property
    def schema(self) -> dict[str, Any]:
        one = {
            "n": {"type": "integer"},
            "label": {"type": "string", "enum": list(self.rubric.answers)},
            **{f.id: scale_schema(f) for f in self.rubric.flags},
        }
        return strict({"claims": {"type": "array", "items": strict(one)}})

    @cached_property
    def prompt_sha256(self) -> str:
        """Digest of all that is the same in every request: the prefix, the schema, the form of the rest."""
        return digests.of_value(
            {
                "system": self.system,
                "schema": self.schema,
                "form": FORM,
                "question": _QUESTION,
                "sizes": [MAX_CLAIMS, MAX_CHARS, CONTEXT_CHARS],
            }
        )

    def questions(self, note: Note) -> list[Question]:
        """The requests for one note: one, or several where it is long, each of whole claims with their surroundings."""
        return [self._question(note, first, last) for first, last in chunks(note.claims)]

    def _question(self, note: Note, first: int, last: int) -> Question:
        asked = note.claims[first:last]
        start = 0 if first == 0 else max(0, asked[0].start - CONTEXT_CHARS)
        end = len(note.text) if last == len(note.claims) else min(len(note.text), asked[-1].end + CONTEXT_CHARS)
        # The two ends of a very long note may lie far from any claim (a long code block).
        start, end = max(start, asked[0].start - MAX_CHARS), min(end, asked[-1].end + MAX_CHARS)
        code = fence.nonce((note.text,))
        parts, at = [], start
        for n, claim in enumerate(asked, first + 1):
            parts += [note.text[at : claim.start], f"[{code} {n}] "]
            at = claim.start
        parts.append(note.text[at:end])
        where = asked[0].path or asked[0].heading
        above = (
            [_fence_marked(code, "headings above", where)] if start > 0 and where and code not in where.lower() else []
        )
        user = "\n".join(
            (
                fence.opening(code),
                _QUESTION.format(first=first + 1, last=last, n_claims=last - first),
                *above,
                _fence_marked(code, "note", "".join(parts)),
            )
        )
        return Question(self.system, user, self.schema, "content_labels", 200 + TOKENS_A_CLAIM * len(asked))

    def read(
        self, note: Note, answers: Sequence[Answer], rater: Rater, usage: Usage | None = None, at: str | None = None
    ) -> Annotation:
        """The record of one note: every claim with its label, or with the reason why it has none."""
        labels: list[ClaimLabel] = []
        raw: list[str] = []
        for (first, last), answer in zip(chunks(note.claims), answers, strict=True):
            some = self._labels(note.claims, first, last, answer)
            if any(label.unscored for label in some):
                raw.append(answer.text or answer.raw or "")
            labels += some
        whole = (
            labels[0].unscored
            if labels and all(x.unscored == labels[0].unscored and x.unscored for x in labels)
            else None
        )
        return Annotation(
            note_sha256=note.sha256,
            rater=rater,
            claims=() if whole else tuple(labels),
            unscored=whole,
            raw=bounded("\n".join(raw)) if raw else None,
            usage=usage,
            at=at,
        )

    def _labels(self, claims: Sequence[Claim], first: int, last: int, answer: Answer) -> list[ClaimLabel]:
        try:
            if answer.text is None:
                raise Unreadable(answer.unscored or "no answer")
            given = parsed(answer.text).get("claims")
            if not isinstance(given, list):
                raise Unreadable("unreadable answer: no list of claims in it")
        except Unreadable as why:
            return [ClaimLabel(start=c.start, end=c.end, unscored=str(why)) for c in claims[first:last]]
        by_number: dict[int, list[dict]] = {}
        for entry in given:
            if isinstance(entry, dict) and isinstance(entry.get("n"), int) and not isinstance(entry["n"], bool):
                by_number.setdefault(entry["n"], []).append(entry)
        return [self._one(claim, by_number.get(n, [])) for n, claim in enumerate(claims[first:last], first + 1)]

    def _one(self, claim: Claim, entries: list[dict]) -> ClaimLabel:
        try:
            if not entries:
                raise Unreadable("not answered: the claim's number is missing")
            if len(entries) > 1:
                raise Unreadable(f"answered {len(entries)} times: one label a claim is due")
            label = entries[0].get("label")
            if not isinstance(label, str) or label not in self.rubric.answers:
                raise Unreadable(f"label outside the rubric: {shown(label)}")
            flags = {f.id: scale_value(f, entries[0].get(f.id)) for f in self.rubric.flags}
        except Unreadable as why:
            return ClaimLabel(start=claim.start, end=claim.end, unscored=str(why))
        return ClaimLabel(start=claim.start, end=claim.end, label=label, flags=flags)


_QUESTION = "Label claims {first} to {last} ({n_claims} in all) of this note."


def _fence_marked(code: str, name: str, text: str) -> str:
    """A fence around a text into which our marks, which hold the code, were put; the text itself does not hold it."""
    return f"<<<{code} {name}\n{fence.showable(text)}\n{code}>>>"


def chunks(claims: Sequence[Claim]) -> list[tuple[int, int]]:
    """Index ranges [first, last) of claims asked together: bounded in number and in text, cut between claims."""
    out, first = [], 0
    for n in range(1, len(claims) + 1):
        if n == len(claims) or n - first == MAX_CLAIMS or claims[n].end - claims[first].start > MAX_CHARS:
            out.append((first, n))
            first = n
    return out
