"""Scores a rater against gold labels and keeps the score bound to rater, rubric and prompt by digest."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError, model_validator

from annotators import gold as gold_
from annotators import seats
from annotators.progress import Progress, tracked
from annotators.raters import Outcome
from annotators.records import Annotation, Rater
from annotators.rubric import Rubric, load, shipped
from annotators.tasks.content import Content, Note
from runner import digests
from runner.clock import utc_now
from runner.errors import UserError
from runner.limits import Limits
from runner.records import Count, Record, Sha256, UtcTime
from runner.study import write_atomically


class Score(Record):
    """How a rater does on one label: counts, and shares with their 95% intervals (None where nothing defines them)."""

    label: str
    n_gold: Count
    n_given: Count
    n_both: Count
    precision: float | None = None
    precision_interval: tuple[float, float] | None = None
    recall: float | None = None
    recall_interval: tuple[float, float] | None = None
    f1: float | None = None
    f1_interval: tuple[float, float] | None = None


class Calibration(Record):
    """A rater against gold. `confusion[i][j]` claims had gold label i and were given label j.

    The last column of `confusion` counts claims that the rater left without a label. `rater_key` is the digest of the
    rater without its repeat and seed: what another use of this calibration must match. `n_notes_seen` of the notes
    were in the rater's own training: scores on them say nothing of new notes.
    """

    rater: Rater
    rater_key: Sha256
    rubric_sha256: Sha256
    prompt_sha256: Sha256 | None = None
    gold_sha256: Sha256
    labels: tuple[str, ...] = Field(min_length=2)
    confusion: tuple[tuple[Count, ...], ...]
    scores: tuple[Score, ...]
    n_gold: Count
    n_unmatched: Count = 0
    n_without_label: Count = 0
    n_notes: Count = 0
    n_notes_seen: Count = 0
    accuracy: float | None = None
    accuracy_interval: tuple[float, float] | None = None
    kappa: float | None = None
    macro_f1: float | None = None
    at: UtcTime | None = None

    @model_validator(mode="after")
    def _possible(self) -> Self:
        k = len(self.labels)
        if len(self.confusion) != k or any(len(row) != k + 1 for row in self.confusion):
            raise ValueError(f"confusion is {k} rows of {k + 1} counts: one column a label and one for none")
        return self

    def check(self, rater: Rater) -> None:
        """Refuse labels of another rater, rubric or prompt; UserError says which differs."""
        for what, own, other in (
            ("rubric", self.rubric_sha256, rater.rubric_sha256),
            ("prompt", self.prompt_sha256, rater.prompt_sha256),
            ("rater", self.rater_key, key_of(rater)),
        ):
            if own != other:
                raise UserError(
                    f"calibration of {self.rater.name}: its {what} digest {(own or 'none')[:12]} is not that of "
                    f"{rater.name} ({(other or 'none')[:12]}); calibrate this rater with this {what}"
                )

    def table(self) -> str:
        """The scores as plain text for a terminal."""
        head = (
            f"{self.rater.name}: n {self.n_gold}  accuracy {_share(self.accuracy)}  macro-F1 {_share(self.macro_f1)}  "
        )
        head += f"kappa {_share(self.kappa)}  without a label {self.n_without_label}  unmatched {self.n_unmatched}"
        lines = [head, f"{'':28}{'precision':>20}{'recall':>20}{'F1':>20}{'n':>6}"]
        for s in self.scores:
            cells = ((s.precision, s.precision_interval), (s.recall, s.recall_interval), (s.f1, s.f1_interval))
            lines.append(f"{s.label:28}{''.join(_cell(*c) for c in cells)}{s.n_gold:6d}")
        if self.n_notes_seen:
            lines.append(
                f"{self.n_notes_seen} of {self.n_notes} notes were in this rater's own training: the scores say "
                f"nothing of new notes"
            )
        return "\n".join(lines)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _cell(value: float | None, interval: tuple[float, float] | None) -> str:
    told = "–" if value is None or interval is None else f"{value:.2f} [{interval[0]:.2f}, {interval[1]:.2f}]"
    return f"{told:>20}"


def key_of(rater: Rater) -> str:
    """Digest of a rater without repeat and seed: two repeats of one rater are calibrated as one."""
    settings = {k: v for k, v in rater.settings.items() if k != "seed"}
    return rater.model_copy(update={"repeat": 1, "settings": settings}).key


def calibrate(
    gold: str | Path, rater: str, *, rubric: str | Path | Rubric | None = None, limits: Limits | None = None, **how: Any
) -> Calibration:
    """Let a rater label the notes of a gold file and compare.

    Args:
        gold: JSON Lines, a claim a line: `note` (file in the folder `notes` beside it), `note_sha256`, `start`, `end`,
            `category`; lines whose category is null (the readers differed) do not count.
        rater: one rater, as in `annotate`; `how` as there.

    The rater labels each note as it does in a study: the whole note, split into claims. A gold line whose span is no
    claim is counted as unmatched and enters no score.

    Raises:
        UserError: a gold file that is none, a note that is missing or was changed, a rater that gives no answer.
    """
    used = rubric if isinstance(rubric, Rubric) else load(rubric) if rubric is not None else shipped("content")
    task = Content(used)
    lines = gold_.read_gold(Path(gold), used)
    notes = {
        sha: gold_.note(Path(gold), name, sha) for sha, name in {x["note_sha256"]: x["note"] for x in lines}.items()
    }
    records, identity, seen = asyncio.run(_labelled(task, list(notes.values()), rater, limits, how))
    given = {r.note_sha256: r for r in records}
    pairs, n_unmatched = [], 0
    for line in lines:
        at = gold_.match(notes[line["note_sha256"]].claims, line["start"], line["end"])
        if at is None:
            n_unmatched += 1
            continue
        record = given[line["note_sha256"]]
        pairs.append((line["category"], record.claims[at].label if record.claims else None))
    made = score(pairs, identity, used, digests.of_file(Path(gold)), n_unmatched)
    return made.model_copy(update={"n_notes": len(notes), "n_notes_seen": len(seen & set(notes))})


async def _labelled(
    task: Content, notes: list[Note], rater: str, limits: Limits | None, how: dict[str, Any]
) -> tuple[list[Annotation], Rater, set[str]]:
    chosen, _ = seats.seats([rater], limits=limits, **how)
    one = chosen[0].rater
    if hasattr(one, "rate_many"):
        outcomes: list[Outcome] = list(tracked(one.rate_many(task, notes, 1), "calibrate", len(notes)))
    else:
        gate = asyncio.Semaphore(chosen[0].limits.concurrency)

        async def rate(note: Note) -> Outcome:
            async with gate:
                outcome = await one.rate(task, note, 1)
            bar.step()
            return outcome

        try:
            with Progress("calibrate", len(notes)) as bar:
                outcomes = await asyncio.gather(*(rate(note) for note in notes))
        finally:
            await one.close()
    if lost := next((o for o in outcomes if o.record is None), None):
        raise UserError(f"{rater}: no answer for a gold note ({lost.failure}); run calibrate again")
    seen = one.seen_notes() if hasattr(one, "seen_notes") else set()
    return [o.record for o in outcomes], one.identity(task, 1), seen


def score(
    pairs: Sequence[tuple[str, str | None]], rater: Rater, rubric: Rubric, gold_sha256: str, n_unmatched: int = 0
) -> Calibration:
    """The calibration of (gold, given) label pairs; None is a claim without a label, wrong for recall and no guess."""
    labels = rubric.answers
    index = {label: n for n, label in enumerate(labels)}
    k = len(labels)
    confusion = [[0] * (k + 1) for _ in labels]
    for gold, given in pairs:
        confusion[index[gold]][k if given is None else index[given]] += 1
    n = len(pairs)
    scores = tuple(_score(label, confusion, j) for j, label in enumerate(labels))
    occurring = [s.f1 or 0.0 for s in scores if s.n_gold]
    n_right = sum(confusion[j][j] for j in range(k))
    return Calibration(
        rater=rater,
        rater_key=key_of(rater),
        rubric_sha256=rubric.sha256,
        prompt_sha256=rater.prompt_sha256,
        gold_sha256=gold_sha256,
        labels=labels,
        confusion=tuple(map(tuple, confusion)),
        scores=scores,
        n_gold=n,
        n_unmatched=n_unmatched,
        n_without_label=sum(row[k] for row in confusion),
        accuracy=n_right / n if n else None,
        accuracy_interval=_wilson(n_right, n),
        kappa=_kappa(confusion, n),
        macro_f1=sum(occurring) / len(occurring) if occurring else None,
        at=utc_now(),
    )


def _score(label: str, confusion: list[list[int]], j: int) -> Score:
    n_gold, n_given, both = sum(confusion[j]), sum(row[j] for row in confusion), confusion[j][j]
    # F1 = 2J / (1 + J) with J = both / (gold or given): J is a proportion, so its Wilson interval carries over.
    n_either = n_gold + n_given - both
    jaccard = _wilson(both, n_either)
    return Score(
        label=label,
        n_gold=n_gold,
        n_given=n_given,
        n_both=both,
        precision=both / n_given if n_given else None,
        precision_interval=_wilson(both, n_given),
        recall=both / n_gold if n_gold else None,
        recall_interval=_wilson(both, n_gold),
        f1=2 * both / (n_gold + n_given) if n_either else None,
        f1_interval=tuple(2 * x / (1 + x) for x in jaccard) if jaccard else None,
    )


def _wilson(n_hits: int, n: int) -> tuple[float, float] | None:
    """Wilson's score interval at 95% (statsmodels); None where there is nothing to count."""
    if not n:
        return None
    from statsmodels.stats.proportion import proportion_confint

    low, high = proportion_confint(n_hits, n, alpha=0.05, method="wilson")
    return float(low), float(high)


def _kappa(confusion: list[list[int]], n: int) -> float | None:
    """Cohen's κ of gold and rater; a claim without a label counts as a category of its own."""
    if not n:
        return None
    k = len(confusion)
    rows = [sum(row) for row in confusion] + [0]
    columns = [sum(row[j] for row in confusion) for j in range(k + 1)]
    by_chance = sum(r * c for r, c in zip(rows, columns, strict=True)) / n**2
    return (sum(confusion[j][j] for j in range(k)) / n - by_chance) / (1 - by_chance) if by_chance < 1 else None


def save(calibration: Calibration, path: str | Path) -> None:
    """Write a calibration as JSON, whole or not at all."""
    write_atomically(Path(path), json.dumps(calibration.line(), indent=1, sort_keys=True) + "\n")


def read(path: str | Path, rater: Rater | None = None) -> Calibration:
    """Read a calibration; with `rater`, refuse it unless it is that rater's, with its rubric and prompt."""
    try:
        calibration = Calibration.model_validate_json(Path(path).read_bytes())
    except OSError as fault:
        raise UserError(f"{path}: cannot be read ({fault.strerror}); make one with calibrate") from None
    except ValidationError as fault:
        told = fault.errors(include_url=False)[0]["msg"]
        raise UserError(f"{path}: no calibration ({told}); make one with calibrate") from None
    if rater is not None:
        calibration.check(rater)
    return calibration
