"""The fate task: what became of one unsupported claim of a source note in the conditioned attempt's own note."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from annotators import fence, quotes, views
from annotators.claims import Claim
from annotators.records import Fate, Quotation, Rater, Side, TransferRef
from annotators.rubric import Rubric
from annotators.tasks import Answer, Question, Unreadable, bounded, described, parsed, shown, strict
from runner import digests
from runner.records import Usage

N_CANDIDATES = 8
NOTE_ROOM = 10_000  # characters of the next note that are shown beside the candidates
ROOM_TOKENS = 600
FORM = 1  # raise when wording or layout of a request changes
_QUESTION = "Give the fate of the claim in the next note."
_FIGURE = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True)
class TracedClaim:
    """One item: a claim of the source note, the next note and the claims of it that are nearest in wording."""

    ref: TransferRef
    note_sha256: str
    claim: Claim
    next_note_sha256: str
    next_note: str
    candidates: tuple[tuple[Claim, float], ...]

    @property
    def key(self) -> str:
        return item_key(self.ref, self.note_sha256, self.claim.start, self.claim.end, self.next_note_sha256)

    @property
    def similarity(self) -> float | None:
        return self.candidates[0][1] if self.candidates else None


def item_key(ref: TransferRef, note_sha256: str, start: int, end: int, next_note_sha256: str) -> str:
    """Names what was asked: the transfer, the claim's note and span, the next note."""
    return f"{ref.key}:{note_sha256}:{start}-{end}:{next_note_sha256}"


def similarity(a: Counter[str], b: Counter[str]) -> float:
    """Cosine of two bags of character groups; 0 where one is empty."""
    if len(b) < len(a):
        a, b = b, a
    dot = sum(n * b[g] for g, n in a.items() if g in b)
    norm = sum(n * n for n in a.values()) * sum(n * n for n in b.values())
    return dot / norm**0.5 if norm else 0.0


def bag(text: str) -> Counter[str]:
    """The character groups (three, in Chinese two) and figures of a text; a figure counts as much as a word."""
    flat = f" {' '.join(text.lower().split())} "
    groups = Counter(flat[n : n + 3] for n in range(len(flat) - 2))
    groups.update(flat[n : n + 2] for n in range(len(flat) - 1) if "\u3400" <= flat[n] <= "\u9fff")
    for figure in _FIGURE.findall(flat):
        groups[f"#{figure}"] += 3
    return groups


def nearest(
    claim: Claim, others: Sequence[Claim], bags: Sequence[Counter[str]] | None = None
) -> tuple[tuple[Claim, float], ...]:
    """The most similar claims of the next note, most similar first, at most `N_CANDIDATES`."""
    own = bag(claim.text)
    bags = bags if bags is not None else [bag(o.text) for o in others]
    scored = sorted(((similarity(own, b), -n) for n, b in enumerate(bags)), reverse=True)
    return tuple((others[-n], round(score, 4)) for score, n in scored[:N_CANDIDATES] if score > 0)


class FateTask:
    """Asks for and reads fates under one rubric."""

    name, table, record = "fate", "fates", Fate

    def __init__(self, rubric: Rubric):
        self.rubric = rubric
        self.silent = rubric.role("absent")

    @cached_property
    def system(self) -> str:
        return "\n\n".join(
            (
                "You follow claims from one note about GPU kernels into the next. Follow the rubric exactly.",
                described(self.rubric, "fate"),
                fence.RULE,
                "The fenced `claim` stood in the source note. `candidates` are the sentences of the next note "
                "that are nearest to it in wording; the fate may rest on another sentence of `next note`. A "
                "quotation is copied letter for letter out of `next note`, without the fence; it is looked up, "
                "and one that is not found voids the answer. Answer with JSON and "
                f'nothing else: {{"fate": ..., "quotation": "..."}}. With {" or ".join(self.silent)} the quotation '
                "is empty.",
            )
        )

    @cached_property
    def schema(self) -> dict[str, Any]:
        return strict({"fate": {"type": "string", "enum": list(self.rubric.ids)}, "quotation": {"type": "string"}})

    @cached_property
    def prompt_sha256(self) -> str:
        """Digest of all that is the same in every request: the prefix, the schema, the sizes, the form of the rest."""
        return digests.of_value(
            {
                "system": self.system,
                "schema": self.schema,
                "form": FORM,
                "question": _QUESTION,
                "sizes": [N_CANDIDATES, NOTE_ROOM],
            }
        )

    def questions(self, item: TracedClaim) -> list[Question]:
        """The one request for a claim."""
        claim = item.claim
        context = "\n".join(filter(None, (claim.path or claim.heading, claim.parent_text)))
        candidates = "\n".join(f"- {c.text}" for c, _ in item.candidates) or "(none is near)"
        code = fence.nonce((claim.text, context, item.next_note))
        note, _ = views.cut_middle(item.next_note, NOTE_ROOM)
        parts = [fence.opening(code), _QUESTION, fence.fenced(code, "claim", claim.text)]
        if context:
            parts.append(fence.fenced(code, "stood under", context))
        parts += [fence.fenced(code, "candidates", candidates), fence.fenced(code, "next note", note)]
        return [Question(self.system, "\n".join(parts), self.schema, "fate", ROOM_TOKENS)]

    def read(
        self,
        item: TracedClaim,
        answers: Sequence[Answer],
        rater: Rater,
        usage: Usage | None = None,
        at: str | None = None,
    ) -> Fate:
        """The record of one claim: its fate with the proving quotation, or the reason why it has none."""
        answer = answers[0]
        base = {
            "transfer": item.ref,
            "note_sha256": item.note_sha256,
            "start": item.claim.start,
            "end": item.claim.end,
            "next_note_sha256": item.next_note_sha256,
            "rater": rater,
            "similarity": item.similarity,
            "usage": usage,
            "at": at,
        }
        try:
            if answer.text is None:
                raise Unreadable(answer.unscored or "no answer")
            said = parsed(answer.text)
            fate, quoted = said.get("fate"), said.get("quotation")
            if fate not in self.rubric.ids:
                raise Unreadable(f"fate outside the rubric: {shown(fate)}")
            return Fate(**base, fate=fate, quotation=None if fate in self.silent else self._quotation(item, quoted))
        except Unreadable as why:
            return Fate(**base, unscored=str(why), raw=bounded(answer.text or answer.raw))

    def _quotation(self, item: TracedClaim, text: Any) -> Quotation:
        if not isinstance(text, str) or not text.strip():
            raise Unreadable("evidence missing: no quotation from the next note")
        span = quotes.find(text, item.next_note)
        if span is None:
            raise Unreadable(f"invented quotation: {shown(text)} does not stand in the next note")
        return Quotation(
            side=Side.OWN_NOTE,
            sha256=item.next_note_sha256,
            start=span.start,
            end=span.end,
            text=span.of(item.next_note),
        )
