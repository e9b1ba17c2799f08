"""Verbs on kernels and attempts: grade one kernel, record attempts from disk."""

import json
from pathlib import Path
from typing import Any

from annotators.progress import Progress, tracked
from mkb_analyze.console import Answer
from mkb_analyze.verbs.parse import folder, number, switch
from runner.errors import UserError


def evaluated(
    kernel: Any,
    problem: Any,
    dsl: Any,
    size: Any,
    device: Any,
    compile_only: Any,
    timeout_s: Any,
    problem_set: Any = None,
    compile_baseline: Any = False,
) -> Answer:
    """One kernel's verdict as JSON; status 1 when it neither passed nor (compile only) compiled."""
    from runner import catalogue
    from runner.evaluate import evaluate

    if not Path(str(kernel)).is_file():
        raise UserError(f"{kernel}: no such file; give the kernel's source file")
    chosen = catalogue.problem(problem, folder(problem_set), switch(compile_baseline, "compile-baseline"))
    with Progress("evaluate", None):
        verdict = evaluate(
            chosen,
            str(dsl),
            Path(str(kernel)),
            size=size,
            device=device,
            compile_only=switch(compile_only, "compile-only"),
            timeout_s=number(timeout_s, "timeout-s", float, 1),
        )
    data = verdict.line()
    return Answer(json.dumps(data, indent=1, sort_keys=True), data, 0 if verdict.passed or data.get("compiled") else 1)


def replayed(attempts: Any, study: Any, timeout_s: Any) -> Answer:
    """Attempts recorded from a folder of kernels and notes."""
    from runner import catalogue, contract, replay
    from runner.evaluate import evaluate
    from runner.study import Study

    root, limit = Path(str(attempts)), number(timeout_s, "timeout-s", float, 1)
    if not root.is_dir():
        raise UserError(f"{root}: no such folder; give a folder of attempts")
    opened = Study.create(
        Path(str(study)),
        origin={"kind": "replay"},
        dsls=list(catalogue.STUDY_PAIR),
        contract=contract.settings(),
        problem_set_sha256=catalogue.set_digest(),
        baseline="the problem's reference in CuPy or NumPy",
    )
    rows = []
    with opened.writing():
        recorded = replay.record(root, opened, lambda p, d, k: evaluate(p, d, k, timeout_s=limit))
        for attempt in tracked(recorded, "replay", len(replay.folders(root))):
            verdict = attempt.verdict
            rows.append(
                {
                    "attempt": attempt.key,
                    "passed": bool(verdict and verdict.passed),
                    "speedup": verdict.speedup if verdict else None,
                    "reason": verdict.reason if verdict else attempt.reason,
                }
            )
    lines = [f"{r['attempt']}: " + (f"passed, {r['speedup']:.2f}×" if r["passed"] else str(r["reason"])) for r in rows]
    return Answer("\n".join([*lines, f"{len(rows)} attempts recorded: {opened.path}"]), {"attempts": rows})
