"""How long a verdict takes and how much its figure spreads: `python -m benchmarks.verdicts --problem 28 --dsl tirx kernel.py`."""

import argparse
import json
import statistics
import time
from pathlib import Path

from runner import catalogue, session
from runner.batch import Job, evaluate_many
from runner.catalogue import Problem
from runner.evaluate import evaluate, pick_device

ROW_NORM = Path(__file__).resolve().parents[1] / "tests" / "exploits" / "row_norm.py"


def measure(problem: Problem, dsl: str, kernel: Path, size: str | None, device: str | None, n_verdicts: int) -> dict:
    """Grade one kernel `n_verdicts` times with a waiting child each; times in seconds and milliseconds."""
    where = pick_device(dsl, device)
    medians, eval_s, failed = [], [], []
    for _ in range(n_verdicts):
        child = session.start(dsl, where)
        time.sleep(4.0 if where == "cuda" else 2.5)  # the child waits, its imports done, as one of a pool does
        verdict = evaluate(problem, dsl, kernel, size=size, device=where, child=child)
        eval_s.append(verdict.eval_s)
        if verdict.passed:
            medians.append(verdict.kernel_ms)
        else:
            failed.append(f"{verdict.stage.value}: {verdict.reason}")
    figures = {
        "problem": problem.number,
        "dsl": dsl,
        "device": verdict.device,
        "size": verdict.size,
        "n_verdicts": n_verdicts,
        "n_passed": len(medians),
        "failed": failed,
        "eval_s_median": statistics.median(eval_s),
    }
    if len(medians) > 1:
        figures.update(
            kernel_ms_median=statistics.median(medians),
            kernel_ms_relative_sd=statistics.stdev(medians) / statistics.mean(medians),
        )
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problem", default="0", help="a problem's number; 0 is the evaluator's own row norm")
    parser.add_argument("--dsl", required=True)
    parser.add_argument("--size")
    parser.add_argument("--device")
    parser.add_argument("--n-verdicts", type=int, default=10)
    parser.add_argument("--out", help="append one JSON line a verdict and grade every kernel once instead")
    parser.add_argument("kernels", nargs="+", type=Path)
    given = parser.parse_args()
    problem = Problem(0, "row_norm", "mlp_norm", ROW_NORM) if given.problem == "0" else catalogue.problem(given.problem)
    if given.out:
        evaluate_many(
            [Job(problem, given.dsl, kernel, given.size) for kernel in given.kernels], given.out, device=given.device
        )
        return
    for kernel in given.kernels:
        print(json.dumps(measure(problem, given.dsl, kernel, given.size, given.device, given.n_verdicts)))


if __name__ == "__main__":
    main()
