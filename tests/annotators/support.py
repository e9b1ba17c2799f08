"""Small studies for the tests of raters and the panel."""

import asyncio
from pathlib import Path

from runner.limits import Limits
from runner.records import Attempt, Submission, Verdict
from runner.study import Study

NOTE = """# Notes on rmsnorm

## What is measured
- The kernel takes 0.412 ms; the reference takes 0.731 ms on the same draws.
- One row is 4096 values of bf16, and there are 2048 rows.

## What to do
- Use 128 threads a row, each loads 16 bytes at once.
- Warp specialisation gives the best overlap here.
- There is no point in tensor cores for this problem.

Next: try two rows a block.
"""
OWN_NOTE = """# rmsnorm again

- Warp specialisation gave the best overlap.
- 128 threads a row worked; 256 threads took 0.398 ms.
- Tensor cores were not tried.
"""
SOLO = "def build():\n    return two_rows_a_block(threads=256)\n"
CONDITIONED = "def build():\n    return one_row(threads=128, vector=8)\n"
EARLIER = "def build():\n    return one_row(threads=64)\n"
FAST = Limits(concurrency=8, n_tries=4, timeout_s=20)


def passed(speedup: float) -> Verdict:
    return Verdict(passed=True, stage="done", speedup=speedup)


def failed(reason: str) -> Verdict:
    return Verdict(passed=False, stage="compile", reason=reason)


def study_of_notes(folder: Path, n_notes: int, text: str = NOTE) -> Study:
    """A library of notes that differ in one figure."""
    study = Study.create(folder, origin={"kind": "notes"}, notes={})
    names = {f"{n}.md": study.put_text("notes", text.replace("2048", str(2048 + n))) for n in range(n_notes)}
    study.update_manifest(notes=names)
    return study


def study_of_transfers(
    folder: Path, n: int = 1, note: str = NOTE, own_note: str = OWN_NOTE, conditioned: str = CONDITIONED
) -> Study:
    """n problems, each with two solos and one conditioned attempt; every second conditioned attempt is slower."""
    study = Study.create(folder, origin={"kind": "test"})
    with study.writing():
        for p in range(1, n + 1):
            base = {"model": "m", "problem": p, "replicate": 1}
            source = study.put_text("notes", note.replace("2048", str(2048 + p)))
            own = study.put_text("notes", own_note.replace("0.398", f"0.{398 + p}"))
            k_solo, k_final, k_early = (study.put_text("kernels", k) for k in (SOLO, conditioned, EARLIER))
            study.append(
                "attempts",
                [
                    Attempt(
                        **base, dsl="tirx", arm="solo", verdict=passed(1.8), kernel_sha256=k_solo, note_sha256=source
                    ),
                    Attempt(
                        **base,
                        dsl="cutedsl",
                        arm="solo",
                        verdict=passed(2.0),
                        kernel_sha256=k_solo,
                        submissions=(Submission(index=1, at_s=60, kernel_sha256=k_solo, verdict=passed(2.0)),),
                    ),
                    Attempt(
                        **base,
                        dsl="cutedsl",
                        arm="conditioned",
                        source_dsl="tirx",
                        source_note_sha256=source,
                        verdict=passed(1.2 if p % 2 else 2.4),
                        kernel_sha256=k_final,
                        note_sha256=own,
                        submissions=(
                            Submission(index=1, at_s=30, kernel_sha256=k_early, verdict=failed("no such type")),
                            Submission(index=2, at_s=90, kernel_sha256=k_final, verdict=passed(1.2)),
                        ),
                    ),
                ],
            )
    return study


def lines(study: Study, table: str) -> list[dict]:
    return [line for _, line in study.lines(table)]


def run(coroutine):
    return asyncio.run(coroutine)
