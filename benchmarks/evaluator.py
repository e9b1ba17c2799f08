"""What the evaluator itself costs: `python -m benchmarks.evaluator [--device cuda|cpu] [--out benchmarks/results]`.

Host time around a kernel that does nothing, with and without a rehearsal before each call; the time from a submission
to its verdict less what its draws need (median of 20); the spread of ten verdicts' figures; and the figure of a verdict
beside CUPTI's device time and `triton.testing.do_bench` (the last two on a GPU, where the packages are there).
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from runner import dsls, session
from runner.arrays import n_gpus, open_arrays
from runner.catalogue import Problem
from runner.draws import Draws
from runner.evaluate import evaluate
from runner.session import Session

ROOT = Path(__file__).resolve().parents[1]
ROW_NORM = Problem(0, "row_norm", "mlp_norm", ROOT / "tests" / "exploits" / "row_norm.py")
KERNELS = ROOT / "tests" / "runner" / "kernels"
FILES = {
    ("numba", "cpu"): "row_norm_numba.py",
    ("tirx", "cpu"): "row_norm_tirx_cpu.py",
    ("tirx", "cuda"): "row_norm_tirx_cuda.py",
    ("cutedsl", "cuda"): "row_norm_cutedsl.py",
    ("triton", "cuda"): "row_norm_triton.py",
    ("tilelang", "cuda"): "row_norm_tilelang.py",
}
# One row of work: the host's path is the same as a real kernel's, the kernel's own time next to nothing.
ONE_ROW = """

_whole = solve
_out = {}


def solve(x, w):
    y = _out.setdefault("y", None)
    if y is None:
        y = _out["y"] = _whole(x, w)
    _whole(x[:4], w)
    return y
"""
DO_BENCH = """
import importlib.util, sys
import cupy
import torch
from triton.testing import do_bench
spec = importlib.util.spec_from_file_location("kernel", sys.argv[1])
kernel = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kernel)
problem = importlib.util.spec_from_file_location("problem", sys.argv[2])
module = importlib.util.module_from_spec(problem)
problem.loader.exec_module(module)
inputs = module.make_inputs(cupy, cupy.random.default_rng(1), "full")
print(do_bench(lambda: kernel.solve(*inputs), return_mode="median"))
"""


def host_path(dsl: str, device: str, n_calls: int = 80) -> dict[str, float]:
    """Microseconds of one call that does next to nothing, as the child tells them: rested code and rehearsed code."""
    arrays = open_arrays(device)
    draws = Draws(ROW_NORM, arrays, "small", None)
    first = draws.next()
    run = Session(dsl, device, time.monotonic() + 300)
    found: dict[bool, list[float]] = {True: [], False: []}
    try:
        run.ready()
        run.configure(arrays, first.inputs, first.own())
        overhead = run.calibrate(draws.between_calls)
        run.load((KERNELS / FILES[dsl, device]).read_text("utf-8") + ONE_ROW)
        for index in range(2 * n_calls):
            call = run.call(draws.between_calls(), rehearse=index % 2 == 0)
            if call.fault:
                raise RuntimeError(call.fault[1])
            if index >= 20:
                found[index % 2 == 0].append(1e3 * (call.child_ms or 0.0))
    finally:
        run.close()
    return {
        "rested_us": statistics.median(found[False]),
        "rehearsed_us": statistics.median(found[True]),
        "handshake_us": 1e3 * overhead.clock_ms,
    }


def verdicts(dsl: str, device: str, n_verdicts: int) -> dict[str, Any]:
    """Grade one kernel many times with a waiting child each: latency less draws, spread of the first ten figures."""
    latency_s, eval_s, kernel_ms, device_ms, failed = [], [], [], [], []
    for _ in range(n_verdicts):
        child = session.start(dsl, device)
        time.sleep(4.0)  # the child waits, its imports done, as one of a pool does
        verdict = evaluate(ROW_NORM, dsl, KERNELS / FILES[dsl, device], device=device, child=child)
        if not verdict.passed:
            failed.append(f"{verdict.stage.value}: {verdict.reason}")
            continue
        eval_s.append(verdict.eval_s)
        latency_s.append(verdict.eval_s - verdict.draws_s)
        kernel_ms.append(verdict.kernel_ms)
        if verdict.kernels:
            device_ms.append(verdict.kernels.total_ms)
    ten = kernel_ms[:10]
    return {
        "n_verdicts": n_verdicts,
        "failed": failed,
        "eval_s": statistics.median(eval_s) if eval_s else None,
        "latency_s": statistics.median(latency_s) if latency_s else None,
        "kernel_ms": statistics.median(kernel_ms) if kernel_ms else None,
        "relative_sd_of_ten": statistics.stdev(ten) / statistics.mean(ten) if len(ten) > 1 else None,
        "cupti_ms": statistics.median(device_ms) if device_ms else None,
    }


def do_bench(dsl: str, device: str) -> dict[str, Any]:
    """Triton's own benchmark of the same `solve`, in a process of its own; what is missing is said."""
    if device != "cuda":
        return {"do_bench_ms": None}
    command = [sys.executable, "-c", DO_BENCH, str(KERNELS / FILES[dsl, device]), str(ROW_NORM.path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    answer = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    if answer.returncode:
        return {"do_bench_ms": None, "do_bench_fault": (answer.stderr.strip().splitlines() or ["no output"])[-1][:200]}
    return {"do_bench_ms": float(answer.stdout.split()[-1])}


def table(rows: list[dict[str, Any]], facts: dict[str, Any]) -> str:
    """The figures as a Markdown page."""
    columns = {
        "DSL": "dsl",
        "call that does nothing, rested, µs": "rested_us",
        "rehearsed, µs": "rehearsed_us",
        "verdict, s": "eval_s",
        "less its draws, s": "latency_s",
        "kernel end to end, ms": "kernel_ms",
        "sd of ten": "relative_sd_of_ten",
        "CUPTI, ms": "cupti_ms",
        "do_bench, ms": "do_bench_ms",
    }
    lines = [
        "# What the evaluator costs",
        "",
        f"`{facts['command']}` on {facts['at']}: {facts['device']}, {facts['n_cores']} cores, load {facts['load']}, "
        f"Python {facts['python']}, {facts['versions']}.",
        "",
        "| " + " | ".join(columns) + " |",
        "|" + "---|" * len(columns),
    ]
    lines += ["| " + " | ".join(_cell(row.get(key)) for key in columns.values()) + " |" for row in rows]
    faults = [
        f"- {row['dsl']}: {fault}" for row in rows for fault in (*row["failed"], row.get("do_bench_fault")) if fault
    ]
    return "\n".join([*lines, "", *faults]).rstrip() + "\n"


def _cell(value: Any) -> str:
    return "–" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if n_gpus() else "cpu")
    parser.add_argument("--dsl", help="one DSL only (by default every one that is installed and runs there)")
    parser.add_argument("--n-verdicts", type=int, default=20)
    parser.add_argument("--out", type=Path, help="folder to write evaluator_<device>.json and .md into")
    given = parser.parse_args()
    names = [d for d, device in FILES if device == given.device and (given.dsl in (None, d))]
    names = [d for d in names if dsls.plugin(d).missing() is None]
    load = os.getloadavg()[0]
    rows = []
    for dsl in names:
        row = {"dsl": dsl, **host_path(dsl, given.device)}
        row |= verdicts(dsl, given.device, given.n_verdicts) | do_bench(dsl, given.device)
        print(json.dumps(row), flush=True)
        rows.append(row)
    versions = {k: v for d in names for k, v in dsls.plugin(d).versions().items()} | {"numpy": np.__version__}
    facts = {
        "command": f"python -m benchmarks.evaluator --device {given.device} --n-verdicts {given.n_verdicts}",
        "at": datetime.now(UTC).date().isoformat(),
        "device": open_arrays(given.device).describe(),
        "n_cores": os.cpu_count(),
        "load": f"{load:.1f}",
        "python": platform.python_version(),
        "versions": ", ".join(f"{k} {v}" for k, v in sorted(versions.items())),
    }
    if given.out:
        path = given.out / f"evaluator_{given.device}.json"
        path.write_text(json.dumps({"facts": facts, "rows": rows}, indent=1, sort_keys=True) + "\n", "utf-8")
        path.with_suffix(".md").write_text(table(rows, facts), "utf-8")


if __name__ == "__main__":
    main()
