"""The embedded rater for every task: its content labels, and by plain rules fate, adherence and cause."""

import json
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from annotators import claims, quotes
from annotators.claims import Claim
from annotators.embedded import corpus, rules
from annotators.raters import Outcome
from annotators.raters.embedded import BATCH, EmbeddedRater, Guess
from annotators.records import Annotation, Attribution, ClaimLabel, Fate, Quotation, Rater, RaterKind, Side
from annotators.rubric import shipped
from annotators.tasks.content import Note
from annotators.tasks.fate import TracedClaim
from annotators.views import Source, TransferView
from runner import digests
from runner.clock import utc_now
from runner.errors import UserError
from runner.records import Attempt

_ABSTAINED = "abstained: probability under the threshold"
_ATTEMPT = (Side.CONDITIONED_KERNEL, Side.SUBMISSION, Side.OWN_NOTE)


class Offline:
    """Labels with the shipped model and rules; no network, the same input gives the same labels."""

    name = "embedded"

    def __init__(self, model_file: str | Path | None = None, threshold: float | None = None):
        self.rater = EmbeddedRater(model_file, threshold)
        if model_file is not None:
            self.name = f"embedded:{Path(model_file).name}"

    @cached_property
    def _rules_sha256(self) -> str:
        return digests.of_file(Path(rules.__file__))

    def identity(self, task: Any, repeat: int) -> Rater:
        told = self.rater.identity()
        settings = {"threshold": told["threshold"], "training_sha256": told["training_sha256"]}
        if task.name != "content":
            settings["rules_sha256"] = self._rules_sha256
        return Rater(
            kind=RaterKind.EMBEDDED,
            name=self.name,
            model=told["model"],
            rubric_id=task.rubric.id,
            rubric_sha256=task.rubric.sha256,
            repeat=repeat,
            settings=settings,
        )

    def seen_notes(self) -> set[str]:
        """Digests of the notes that its model was trained on, as far as it or the repository tells."""
        told = self.rater.model.facts.get("note_sha256")
        if told is not None:
            return set(told)
        gold = corpus.GOLD / "gold.jsonl"
        if not gold.is_file():
            return set()
        return {json.loads(line)["note_sha256"] for line in gold.read_text("utf-8").splitlines() if line.strip()}

    def rate_many(self, task: Any, items: Iterable[Any], repeat: int) -> Iterator[Outcome]:
        rate: dict[str, Callable[..., Iterator[Any]]] = {
            "content": self._contents,
            "attribution": self._attributions,
            "fate": self._fates,
        }
        for record in rate[task.name](task, items, self.identity(task, repeat)):
            yield Outcome(record)

    def _contents(self, task: Any, items: Iterable[Note], rater: Rater) -> Iterator[Annotation]:
        if lost := sorted(set(self.rater.labels) - set(task.rubric.answers)):
            raise UserError(
                f"embedded: its model gives {lost[0]}, which rubric {task.rubric.id} does not have; "
                f"train a model for this rubric with train-rater, or take another rater"
            )
        items = iter(items)
        while some := list(islice(items, BATCH)):
            guesses = self.rater.label_notes([(note.text, note.claims) for note in some])
            for note, told in zip(some, guesses, strict=True):
                labels = tuple(_claim_label(c, g) for c, g in zip(note.claims, told, strict=True))
                yield Annotation(note_sha256=note.sha256, rater=rater, claims=labels, at=utc_now())

    def _attributions(self, task: Any, items: Iterable[TransferView], rater: Rater) -> Iterator[Attribution]:
        for item in items:
            yield self._attribution(task, item, rater)

    def _attribution(self, task: Any, item: TransferView, rater: Rater) -> Attribution:
        note = item.source("source note")
        said = self._sorted_claims(note.text if note else "")
        own = item.source("own note")
        traces = [s.text for s in item.of_side(Side.CONDITIONED_KERNEL, Side.SUBMISSION)]
        traces += [c.text for c in claims.split(own.text)] if own else []
        adherence = rules.adherence_of(said["advice"], traces, task.rubric)
        unused = adherence.level in task.rubric.role("adherence_nothing")
        labels: dict[str, Any] = {"adherence": adherence.level, "note_unused": unused}
        note_quote = attempt_quote = None
        if item.cause_asked:
            cause = self._cause(task, item, adherence.level, said, traces)
            labels |= {
                "cause": cause.cause,
                "second_cause": cause.second if cause.second != cause.cause else None,
                "rationale": f"rule: {cause.reason}",
            }
            note_quote, attempt_quote = cause.note_quotation, cause.attempt_quotation
        if note_quote is None and not unused:
            note_quote = next(iter(said["advice"]), None)
        attempt_quote = attempt_quote or rules._first_line(traces)
        found = [_quotation(note_quote, [note] if note else []), _quotation(attempt_quote, item.of_side(*_ATTEMPT))]
        return Attribution(
            transfer=item.ref,
            rater=rater,
            cause_asked=item.cause_asked,
            cuts=(),
            at=utc_now(),
            quotations=tuple(q for q in found if q),
            **labels,
        )

    def _sorted_claims(self, text: str) -> dict[str, list[str]]:
        """The claims of a note that advise, exclude, assert without evidence, and advise in the source DSL's words."""
        content = shipped("content")
        split = claims.split(text)
        guesses = self.rater.label_claims(text, split) if split else []
        advice, exclusion, unsupported = (set(content.role(r)) for r in ("advice", "exclusion", "unsupported"))
        pairs = [(c.text, g.likeliest, g.dsl_specific) for c, g in zip(split, guesses, strict=True)]
        return {
            "advice": [t for t, label, _ in pairs if label in advice],
            "closures": [t for t, label, _ in pairs if label in exclusion],
            "unverified": [t for t, label, _ in pairs if label in unsupported - exclusion],
            "foreign": [t for t, label, own in pairs if label in advice and own],
        }

    def _cause(
        self, task: Any, item: TransferView, level: str, said: dict[str, list[str]], traces: list[str]
    ) -> rules.Cause:
        solo, final = item.triple.target_solo, item.triple.conditioned
        speedups = [a.verdict.speedup if a and a.verdict else None for a in (final, solo)]
        submissions = final.submissions if final else ()
        failed = [s.verdict for s in submissions if s.verdict and not s.verdict.passed]
        last = final.verdict if final and final.verdict and not final.verdict.passed else failed[-1] if failed else None
        return rules.cause_of(
            adherence=level,
            solo_correct=_passed(solo),
            conditioned_correct=_passed(final),
            n_submissions=len(submissions),
            timed_out=bool(final and final.timed_out),
            last_error_kind=last.stage.value if last else None,
            n_failed_submissions=len(failed),
            paired_ratio=speedups[0] / speedups[1] if all(speedups) else None,
            last_improved=_last_improved(final),
            closures=said["closures"],
            unverified=said["unverified"],
            solo_traces=[s.text for s in item.of_side(Side.SOLO_KERNEL)],
            conditioned_traces=traces,
            source_dsl_advice=said["foreign"],
            rubric=task.rubric,
        )

    def _fates(self, task: Any, items: Iterable[TracedClaim], rater: Rater) -> Iterator[Fate]:
        split: tuple[str, list[Claim]] = ("", [])
        for item in items:
            if split[0] != item.next_note_sha256:
                split = (item.next_note_sha256, claims.split(item.next_note))
            told = rules.fate_of(item.claim.text, [c.text for c in split[1]], task.rubric)
            said = split[1][told.index] if told.index is not None else None
            yield Fate(
                transfer=item.ref,
                note_sha256=item.note_sha256,
                start=item.claim.start,
                end=item.claim.end,
                next_note_sha256=item.next_note_sha256,
                rater=rater,
                fate=told.fate,
                similarity=told.similarity,
                quotation=Quotation(
                    side=Side.OWN_NOTE, sha256=item.next_note_sha256, start=said.start, end=said.end, text=said.text
                )
                if said
                else None,
                at=utc_now(),
            )


def _claim_label(claim: Claim, guess: Guess) -> ClaimLabel:
    flags = {"evidence": guess.evidence, "dsl_specific": guess.dsl_specific} if guess.label else {}
    return ClaimLabel(
        start=claim.start,
        end=claim.end,
        label=guess.label,
        flags=flags,
        probability=min(max(guess.probability, 0.0), 1.0),
        unscored=None if guess.label else _ABSTAINED,
    )


def _passed(attempt: Attempt | None) -> bool:
    return bool(attempt and attempt.verdict and attempt.verdict.passed)


def _last_improved(attempt: Attempt | None) -> bool:
    """Whether the last submission was the fastest so far, after another had passed."""
    speedups = [s.verdict.speedup or 0.0 for s in (attempt.submissions if attempt else ()) if s.verdict]
    return len(speedups) > 1 and speedups[-1] > max(speedups[:-1])


def _quotation(text: str | None, sources: Iterable[Source]) -> Quotation | None:
    for source in sources if text else ():
        span = quotes.find(text, source.text)
        if span is not None:
            return Quotation(
                side=source.side, sha256=source.sha256, start=span.start, end=span.end, text=span.of(source.text)
            )
    return None
