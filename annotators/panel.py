"""The panel's three verbs: annotate notes, attribute transfers, trace claims; each asks only what is missing."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from annotators import claims, majority, seats, views
from annotators.engine import Run, Summary
from annotators.progress import Progress
from annotators.records import TransferRef
from annotators.rubric import Rubric, load, shipped
from annotators.tasks import fate
from annotators.tasks.attribution import AttributionTask
from annotators.tasks.content import Content, Note
from annotators.tasks.fate import FateTask, TracedClaim
from runner import pairing
from runner.errors import UserError
from runner.limits import Limits
from runner.pairing import Triple
from runner.records import State
from runner.study import Study

Raters = str | Path | Sequence[str]
Spans = Sequence[tuple[int, int]]


def annotate(
    study: Study,
    raters: Raters,
    *,
    repeats: int = 1,
    limits: Limits | None = None,
    rubric: str | Path | Rubric | None = None,
    progress: bool = True,
    batch: bool = False,
    **how: Any,
) -> Summary:
    """Label every claim of every note of a study; each note's record is written the moment it is answered.

    Args:
        raters: names, or a panel file (see `annotators.seats.seats`).
        rubric: a rubric file, the id of a shipped one, or a rubric; the shipped content rubric where None.
        batch: send through the Batch API (raters over a network only).
        how: `base_url`, `prices` (file), `temperature`, `seed`, `poll_s` (between looks at a batch).

    Raises:
        UserError: an unusable rater, rubric or study; a study that another process writes to.
    """
    task = Content(_rubric(rubric, "content"))
    notes = note_digests(study)
    return _run(
        study,
        task,
        raters,
        lambda: ((sha, sha) for sha in notes),
        lambda sha: Note.of(study.note(sha), sha),
        lambda line: (line["note_sha256"],),
        len(notes),
        repeats,
        limits,
        progress,
        batch,
        how,
    )


def attribute(
    study: Study,
    raters: Raters,
    *,
    repeats: int = 1,
    limits: Limits | None = None,
    rubric: str | Path | Rubric | None = None,
    select: Callable[[Triple], bool] | None = None,
    progress: bool = True,
    batch: bool = False,
    **how: Any,
) -> Summary:
    """Ask why transfers fell behind and how far their notes were followed.

    Args:
        select: which transfers are asked for their cause (the harmed ones, say); all where None. Of the others that
            have a conditioned attempt with a verdict, the adherence alone is asked.

    Raises:
        UserError: as in `annotate`.
    """
    task = AttributionTask(_rubric(rubric, "attribution"))
    due = [(t, select is None or bool(select(t))) for t in attributable(study)]

    def keys() -> Iterator[tuple[str, Any]]:
        for triple, cause in due:
            yield views.item_key(views.ref_of(triple), cause), (triple, cause)

    def keys_of(line: dict) -> Iterable[str]:
        ref = TransferRef.model_validate(line["transfer"])
        asked = bool(line.get("cause_asked", True))
        # A cause is answered together with the adherence.
        return (views.item_key(ref, asked), views.item_key(ref, False))

    return _run(
        study,
        task,
        raters,
        keys,
        lambda ref: views.view(study, *ref),
        keys_of,
        len(due),
        repeats,
        limits,
        progress,
        batch,
        how,
    )


def trace(
    study: Study,
    raters: Raters,
    *,
    repeats: int = 1,
    limits: Limits | None = None,
    rubric: str | Path | Rubric | None = None,
    unsupported: Callable[[str], Spans] | None = None,
    progress: bool = True,
    batch: bool = False,
    **how: Any,
) -> Summary:
    """Ask what became of each unsupported claim of a source note in the conditioned attempt's own note.

    Args:
        unsupported: the spans of a note's unsupported claims by the note's digest; where None, the claims whose
            majority label plays the role `unsupported` in the content rubric.

    Raises:
        UserError: as in `annotate`; also where no note of the study is annotated yet.
    """
    task = FateTask(_rubric(rubric, "fate"))
    spans_of = unsupported or unsupported_by_majority(study)
    due = [
        (t, views.ref_of(t), span)
        for t in attributable(study)
        if t.conditioned.note_sha256
        for span in spans_of(views.ref_of(t).source_note_sha256)
    ]

    def keys() -> Iterator[tuple[str, Any]]:
        for triple, ref, (start, end) in due:
            yield (
                fate.item_key(ref, ref.source_note_sha256, start, end, triple.conditioned.note_sha256),
                (triple, ref, start, end),
            )

    def keys_of(line: dict) -> Iterable[str]:
        return (
            fate.item_key(
                TransferRef.model_validate(line["transfer"]),
                line["note_sha256"],
                line["start"],
                line["end"],
                line["next_note_sha256"],
            ),
        )

    return _run(study, task, raters, keys, _Traced(study), keys_of, len(due), repeats, limits, progress, batch, how)


class _Traced:
    """Makes items of the fate task; the claims of the last notes are kept, since claims of one note come together."""

    def __init__(self, study: Study):
        self._study = study
        self._source: tuple[str, dict[tuple[int, int], claims.Claim], str] = ("", {}, "")
        self._next: tuple[str, str, list, list] = ("", "", [], [])

    def __call__(self, reference: tuple) -> TracedClaim:
        triple, ref, start, end = reference
        sha, next_sha = ref.source_note_sha256, triple.conditioned.note_sha256
        if self._source[0] != sha:
            text = self._study.note(sha)
            self._source = (sha, {(c.start, c.end): c for c in claims.split(text)}, text)
        if self._next[0] != next_sha:
            text = self._study.note(next_sha)
            split = claims.split(text)
            self._next = (next_sha, text, split, [fate.bag(c.text) for c in split])
        claim = self._source[1].get((start, end)) or claims.Claim(start, end, self._source[2][start:end], "sentence")
        if not claim.text:
            raise UserError(f"note {sha}: span {start}..{end} lies outside it; annotate it anew")
        _, text, split, bags = self._next
        return TracedClaim(ref, sha, claim, next_sha, text, fate.nearest(claim, split, bags))


def note_digests(study: Study) -> list[str]:
    """Every note of a study, each once: of the manifest, and what attempts read or left; in order of digest."""
    found = {sha for sha in (study.manifest.get("notes") or {}).values() if isinstance(sha, str)}
    for _, line in study.lines("attempts"):
        found.update(sha for name in ("note_sha256", "source_note_sha256") if isinstance(sha := line.get(name), str))
    return sorted(found)


def attributable(study: Study) -> list[Triple]:
    """The transfers that a rater can judge: a note was given, and both attempts in the target have a verdict."""
    return [
        t
        for t in pairing.transfers(study.attempts())
        if t.conditioned is not None
        and t.conditioned.state is State.FINISHED
        and t.conditioned.verdict is not None
        and t.target_solo is not None
        and t.target_solo.verdict is not None
        and views.ref_of(t).source_note_sha256 is not None
    ]


def unsupported_by_majority(study: Study) -> Callable[[str], Spans]:
    """The unsupported claims of each note, by the majority of the raters that labelled it under the shipped rubric."""
    roles = set(shipped("content").role("unsupported"))
    labels = majority.content_labels(study)
    if not labels and next(iter(study.lines("annotations")), None) is None:
        raise UserError(f"{study.path}: no note is annotated yet; run annotate first, then trace")
    return lambda sha: [span for span, label in sorted(labels.get(sha, {}).items()) if label in roles]


def _rubric(given: str | Path | Rubric | None, task: str) -> Rubric:
    rubric = given if isinstance(given, Rubric) else load(given) if given is not None else shipped(task)
    if rubric.task != task:
        raise UserError(f"rubric {rubric.id}: it is for task {rubric.task}, {task} is due")
    return rubric


def _run(
    study: Study,
    task: Any,
    raters: Raters,
    keys: Callable[[], Iterator[Any]],
    item: Callable[[Any], Any],
    keys_of: Callable[[dict], Iterable[str]],
    n_items: int,
    repeats: int,
    limits: Limits | None,
    progress: bool,
    batch: bool,
    how: dict[str, Any],
) -> Summary:
    poll_s = how.pop("poll_s", 30.0)

    async def go() -> Summary:
        chosen, budget = seats.seats(raters, repeats=repeats, limits=limits, **how)
        bar = Progress(task.name, n_items * len(chosen), progress)
        run = Run(study, task, chosen, keys, item, keys_of, budget, bar)
        try:
            if batch:
                from annotators.batch import BatchRun

                return await BatchRun(run, poll_s).go()
            return await run.go()
        finally:
            bar.close()

    with study.writing():
        return asyncio.run(go())
