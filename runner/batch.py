"""Many evaluations in a row on one device: each verdict printed and appended as a JSON line once it is known."""

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner import contract
from runner.catalogue import Problem
from runner.evaluate import evaluate, pick_device
from runner.pool import Pool
from runner.records import Verdict


@dataclass(frozen=True)
class Job:
    """One kernel to grade; `label` is copied into the line that the verdict is written as."""

    problem: Problem
    dsl: str
    kernel: Path
    size: str | None = None
    label: dict[str, Any] = field(default_factory=dict)


def evaluate_many(
    jobs: Iterable[Job],
    out_jsonl: Path | str | None = None,
    *,
    device: str | None = None,
    timeout_s: float = contract.MAX_EVAL_S,
    show: Callable[[str], None] = print,
) -> list[Verdict]:
    """Grade the jobs one after the other, so that each is alone on the device while it is timed.

    The next job's child imports while this one is loaded and checked; nothing is timed before those imports are over.
    """
    jobs = list(jobs)
    verdicts = []
    with Pool(n_waiting=0) as pool:
        for index, job in enumerate(jobs):
            where = pick_device(job.dsl, device)
            child = pool.take(job.dsl, where, successor=False)
            if index + 1 < len(jobs):
                following = jobs[index + 1].dsl
                pool.prepare(following, pick_device(following, device), 1)
            verdict = evaluate(
                job.problem,
                job.dsl,
                job.kernel,
                size=job.size,
                device=where,
                timeout_s=timeout_s,
                child=child,
                before_timing=pool.wait_until_ready,
            )
            verdicts.append(verdict)
            line = {
                "problem": job.problem.number,
                "dsl": job.dsl,
                "kernel": str(job.kernel),
                **job.label,
                "verdict": verdict.line(),
            }
            if out_jsonl is not None:
                _append(Path(out_jsonl), line)
            show(summary(job, verdict))
    return verdicts


def summary(job: Job, verdict: Verdict) -> str:
    """One line for the eye: problem, DSL, file, result, times."""
    figures = ""
    if verdict.kernel_ms is not None and verdict.reference_ms is not None:
        figures = f" kernel {verdict.kernel_ms:.4f} ms, reference {verdict.reference_ms:.4f} ms"
    result = (
        f"passed, speedup {verdict.speedup:.2f}"
        if verdict.passed
        else f"{verdict.stage.value}: {(verdict.reason or '')[:200]}"
    )
    return f"{job.problem.number:02d} {job.dsl} {job.kernel.name}: {result}{figures} [{verdict.eval_s or 0:.1f} s]"


def _append(path: Path, line: dict[str, Any]) -> None:
    data = (json.dumps(line, sort_keys=True, ensure_ascii=True) + "\n").encode()
    with open(path, "ab", buffering=0) as stream:
        stream.write(data)
        os.fsync(stream.fileno())
