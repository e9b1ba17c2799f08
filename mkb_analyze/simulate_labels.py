"""What a simulated study holds beside its verdicts: kernels, submissions, next notes, causes, adherence and fates."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from annotators.records import Annotation, Attribution, Fate, Quotation, Rater, Side
from annotators.rubric import Rubric
from mkb_analyze import transfers as tr
from runner.records import Arm, Attempt, Stage, State, Submission, Verdict
from runner.study import Study

# How often an unsupported claim is said again in the next note, and a harm's cause lies in the note, per transfer.
CARRIED, MISLED = {True: 0.65, False: 0.35}, 0.7
_KERNEL = '''"""Simulated kernel: {name}, {dsl}, submission {index}. It computes nothing."""

TILE_M, TILE_N, TILE_K = {m}, {n}, {k}
STAGES = {stages}
THREADS = {threads}


def plan(rows, columns):
    """Tiles of the output and how many blocks walk them."""
    blocks = -(-rows // TILE_M) * -(-columns // TILE_N)
    return {{"blocks": blocks, "threads": THREADS, "stages": STAGES}}


def load(tile, stage):
    # one 16-byte access a thread
    return [(tile * TILE_K + lane * 8) % TILE_N for lane in range(THREADS)]


def kernel(x, w, out):
    state = 0.0
    for tile in range(0, TILE_K * {depth}, TILE_K):
        stage = (tile // TILE_K) % STAGES
        for lane, at in enumerate(load(tile, stage)):
            state {op}= x[at] * w[lane]
        {step}
    out[0] = state


def run(inputs, outputs):
    kernel(inputs[0], inputs[1], outputs[0])
'''
_STEPS = ("barrier(stage)", "wait(stage - 1)", "if stage == 0:\n            flush(state)", "prefetch(tile + TILE_K)")


@dataclass(frozen=True)
class Labelled:
    """The rubrics and raters whose labels a simulated study carries, and its own stream of random numbers."""

    attribution: Rubric
    fate: Rubric
    raters: tuple[str, ...]
    rng: np.random.Generator
    accuracy: float

    def rater(self, rubric: Rubric, name: str) -> Rater:
        return Rater(kind="file", name=name, rubric_id=rubric.id, rubric_sha256=rubric.sha256)

    def said(self, answers: tuple[str, ...], truth: str) -> str:
        """What a rater says who is right `accuracy` of the time."""
        return truth if self.rng.random() < self.accuracy else answers[int(self.rng.integers(len(answers)))]


def dress(study: Study, how: Labelled, attempt: Attempt, unsupported: dict[str, list[str]]) -> Attempt:
    """The attempt with a kernel a submission and, where it was conditioned, a next note; its final verdict stays.

    `unsupported`: the unsupported claims of each source note by its digest.
    """
    if attempt.state is not State.FINISHED:
        return attempt
    rng, final = how.rng, attempt.verdict
    shape = {"m": 16, "n": 32, "k": 16, "stages": 1, "threads": 128, "depth": 4, "op": "+", "step": _STEPS[0]}
    n = 1 + int(rng.integers(0, 5))
    submissions = []
    for index in range(1, n + 1):
        shape |= {"m": 16 << int(rng.integers(0, 4)), "stages": 1 + int(rng.integers(0, 4))}
        shape |= {"threads": 128 << int(rng.integers(0, 3)), "step": _STEPS[int(rng.integers(0, len(_STEPS)))]}
        name = f"{attempt.key}"
        sha = study.put_text("kernels", _KERNEL.format(name=name, dsl=attempt.dsl, index=index, **shape))
        verdict = final if index == n else _earlier(rng, final)
        submissions.append(Submission(index=index, at_s=200.0 * index, kernel_sha256=sha, verdict=verdict))
    update: dict[str, Any] = {"submissions": tuple(submissions), "kernel_sha256": submissions[-1].kernel_sha256}
    if attempt.arm is Arm.CONDITIONED:
        lines = [f"# Simulated next note: {attempt.key}", "", "- Simulated claim of the attempt itself."]
        harmed = final is not None and not final.passed
        for claim in unsupported.get(attempt.source_note_sha256 or "", ()):
            if rng.random() < CARRIED[harmed]:
                lines.append(f"- Still: {claim}")
        update["note_sha256"] = study.put_text("notes", "\n".join(lines) + "\n")
    return attempt.model_copy(update=update)


def _earlier(rng: np.random.Generator, final: Verdict | None) -> Verdict:
    if final is None or not final.passed or rng.random() < 0.3:
        return Verdict(passed=False, stage=Stage.CORRECTNESS, reason="wrong result (simulated)")
    speedup = round(final.speedup * float(rng.uniform(0.3, 1.0)), 6)
    return Verdict(
        passed=True,
        stage=Stage.DONE,
        kernel_ms=round(final.reference_ms / speedup, 9),
        reference_ms=final.reference_ms,
        speedup=speedup,
    )


def labels(
    study: Study, how: Labelled, attempts: list[Attempt], annotations: list[Annotation], unsupported: frozenset[str]
) -> tuple[list[Attribution], list[Fate]]:
    """Causes and adherence of every transfer of one cell, and the fates of its notes' unsupported claims."""
    by_note = {a.note_sha256: a.claims for a in reversed(annotations)}
    attributions, fates = [], []
    for t in tr.build(attempts):
        if not t.resolved or t.skipped:
            continue
        note, harmed = study.note(t.source_note_sha256), t.outcome is tr.Outcome.HARMED
        spans = [(c.start, c.end) for c in by_note[t.source_note_sha256] if c.label in unsupported]
        start, end = (
            spans[0] if spans else (by_note[t.source_note_sha256][0].start, by_note[t.source_note_sha256][0].end)
        )
        quote = Quotation(side=Side.NOTE, sha256=t.source_note_sha256, start=start, end=end, text=note[start:end])
        misled = how.rng.random() < (MISLED if spans else 1 - MISLED)
        group = how.attribution.groups[how.attribution.role("group_misled" if misled else "group_own")[0]]
        cause = group[int(how.rng.integers(len(group)))]
        scale = how.attribution.scales[0].ids
        followed = scale[min(int(how.rng.integers(0, 4) // 2), 1)]
        for name in how.raters:
            attributions.append(
                Attribution(
                    transfer=t.ref,
                    rater=how.rater(how.attribution, name),
                    cause=how.said(how.attribution.ids, cause) if harmed else None,
                    adherence=how.said(scale, followed),
                    cause_asked=harmed,
                    quotations=(quote,) if harmed else (),
                )
            )
            fates += _fates(study, how, t, note, spans, name)
    return attributions, fates


def _fates(study: Study, how: Labelled, t: tr.Transfer, note: str, spans: list, name: str) -> list[Fate]:
    if t.own_note_sha256 is None:
        return []
    following, out = study.note(t.own_note_sha256), []
    restated, absent = how.fate.role("propagated")[0], how.fate.ids[-1]
    for start, end in spans:
        at = following.find(note[start:end])
        said = how.said(how.fate.ids, restated if at >= 0 else absent)
        quote = None
        if at >= 0 and said != absent:
            quote = Quotation(
                side=Side.OWN_NOTE, sha256=t.own_note_sha256, start=at, end=at + end - start, text=note[start:end]
            )
        elif said != absent:
            said = absent
        out.append(
            Fate(
                transfer=t.ref,
                note_sha256=t.source_note_sha256,
                start=start,
                end=end,
                next_note_sha256=t.own_note_sha256,
                rater=how.rater(how.fate, name),
                fate=said,
                quotation=quote,
            )
        )
    return out
