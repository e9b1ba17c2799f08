"""Measure every problem at full size on a GPU with CuPy: reference time, memory, floor, accuracy, agreement with NumPy.

    python benchmarks/problems_gpu.py [--out problems/h200.json] [--only 1-18,52] [--budget-s 220] [--keep]

With --keep, what the file already holds of unchanged problems is not measured again. Writes JSON after each problem,
which `mkb-analyze problems table` turns into problems/README.md. Needs numpy, cupy and ml_dtypes alone. A problem that
fails is recorded with its error and does not stop the rest.
"""

import argparse
import json
import os
import statistics
import sys
import time
import traceback
from functools import partial
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from problems import precision  # noqa: E402
from runner import catalogue, contract, problem_check  # noqa: E402

N_CALLS = 5
LONG_S = 1.0  # a reference longer than this is timed once
POOL = cp.get_default_memory_pool()


def event_ms(call: Any) -> float:
    """Milliseconds that the device spends from before `call` to after it."""
    start, stop = cp.cuda.Event(), cp.cuda.Event()
    start.record()
    call()
    stop.record()
    stop.synchronize()
    return float(cp.cuda.get_elapsed_time(start, stop))


def median_ms(call: Any, n_calls: int = N_CALLS) -> float:
    return statistics.median(event_ms(call) for _ in range(n_calls))


def measured_device() -> problem_check.Device:
    """Copy bandwidth and matrix rates of this device; fp8 counts twice bfloat16, integers as the table of the H200."""
    source, target = cp.zeros(1 << 30, cp.uint8), cp.zeros(1 << 30, cp.uint8)
    cp.copyto(target, source)
    bytes_per_s = 2 * source.nbytes / (median_ms(partial(cp.copyto, target, source), 10) * 1e-3)
    del source, target
    rates = {}
    for unit, n in (("bf16", 8192), ("f16", 8192), ("f32", 8192)):
        a = cp.random.default_rng(0).standard_normal((n, n), dtype=cp.float32).astype(precision.TYPES[unit])
        cp.matmul(a, a)
        rates[unit] = 2 * n**3 / (median_ms(partial(cp.matmul, a, a)) * 1e-3)
        del a
    rates["fp8"] = 2 * rates["bf16"]
    rates["int"] = problem_check.H200.operations_per_s["int"]
    properties = cp.cuda.runtime.getDeviceProperties(0)
    POOL.free_all_blocks()
    return problem_check.Device(properties["name"].decode(), bytes_per_s, rates)


def moved(inputs: tuple) -> tuple:
    return tuple(cp.asarray(x) if isinstance(x, np.ndarray) else x for x in inputs)


def host(outputs: Any) -> tuple:
    return tuple(x.get() if isinstance(x, cp.ndarray) else x for x in contract.as_tuple(outputs))


def agreement(problem: catalogue.Problem) -> dict[str, Any]:
    """Whether the reference on CuPy keeps the contract at the small size, on NumPy's inputs against NumPy's anchor."""
    drawn = problem_check.draw(problem, np, seed=0)
    got = host(problem.module.reference(cp, *moved(drawn.inputs)))
    check = contract.check_outputs(np, problem.module.OUTPUTS, got, drawn.own, drawn.anchor)
    return {"agrees": check.ok, "agreement_ratio": finite(check.error_ratio), "disagreement": check.reason}


def full_size(problem: catalogue.Problem, device: problem_check.Device) -> dict[str, Any]:
    """Time and memory of the reference at full size, and its distance from the float64 anchor where memory allows."""
    module = problem.module
    work = module.work("full")
    row = {
        "n_bytes": int(work["n_bytes"]),
        "n_operations": int(work["n_operations"]),
        "unit": work["unit"],
        "floor_ms": problem_check.floor_ms(work, device),
    }
    inputs = tuple(module.make_inputs(cp, cp.random.default_rng(1), "full"))
    cp.cuda.Device().synchronize()
    POOL.free_all_blocks()
    row["input_bytes"] = POOL.used_bytes()
    started = time.perf_counter()
    own = contract.as_tuple(module.reference(cp, *inputs))
    cp.cuda.Device().synchronize()
    first_s = time.perf_counter() - started
    row["peak_bytes"] = POOL.total_bytes()
    n_calls = N_CALLS if first_s < LONG_S else 1
    row["reference_ms"], row["n_calls"] = median_ms(lambda: module.reference(cp, *inputs), n_calls), n_calls
    POOL.free_all_blocks()
    try:
        check = contract.check_outputs(cp, module.OUTPUTS, own, own, problem_check.anchor(problem, cp, inputs))
        row["own_ok"], row["own_ratio"] = check.ok, finite(check.error_ratio)
    except cp.cuda.memory.OutOfMemoryError:
        row["own_ok"], row["own_ratio"] = None, None
    return row


def finite(value: float | None) -> float | None:
    return value if value is not None and np.isfinite(value) else None


def measure(problem: catalogue.Problem, device: problem_check.Device) -> dict[str, Any]:
    """Everything about one problem; a failure of either half is named and leaves the other half standing."""
    row: dict[str, Any] = {"name": problem.name, "sha256": problem.sha256, "error": None}
    started = time.perf_counter()
    for part in (lambda: agreement(problem), lambda: full_size(problem, device)):
        try:
            row.update(part())
        except Exception as fault:
            place = traceback.extract_tb(fault.__traceback__)[-1]
            text = f"{type(fault).__name__}: {fault} ({Path(place.filename).name}:{place.lineno})"
            row["error"] = f"{row['error']}; {text}" if row["error"] else text
        POOL.free_all_blocks()
    row["measured_in_s"] = time.perf_counter() - started
    return row


def earlier(path: Path, device: problem_check.Device) -> dict[str, Any]:
    """Rows that the file holds for this kind of device."""
    if not path.exists():
        return {}
    record = json.loads(path.read_text("utf-8"))
    return record["problems"] if record["device"]["name"] == device.name else {}


def sound(row: dict[str, Any] | None, problem: catalogue.Problem) -> bool:
    """Whether a row is of this very text and without a fault."""
    fresh = bool(row) and row["sha256"] == problem.sha256
    return fresh and not row["error"] and row["agrees"] and row["own_ok"] is not False


def write(path: Path, record: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".partial")
    unfinished.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", "utf-8")
    os.replace(unfinished, path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=catalogue.problem_root() / "h200.json")
    parser.add_argument("--only", default="all")
    parser.add_argument("--budget-s", type=float, default=220.0)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    started = time.perf_counter()
    POOL.set_limit(size=100 << 30)
    device = measured_device()
    record: dict[str, Any] = {
        "device": {
            "name": device.name,
            "bytes_per_s": device.bytes_per_s,
            "operations_per_s": device.operations_per_s,
            "cupy": cp.__version__,
        },
        "problems": earlier(options.out, device) if options.keep else {},
    }
    for problem in catalogue.select(options.only):
        if sound(record["problems"].get(f"{problem.number:02d}"), problem):
            continue
        if time.perf_counter() - started > options.budget_s:
            print(f"{options.budget_s:g} s are spent: the problems from {problem.number:02d} on are not measured")
            break
        row = measure(problem, device)
        record["problems"][f"{problem.number:02d}"] = row
        record["problems"] = dict(sorted(record["problems"].items()))
        write(options.out, record)
        print(
            f"{problem.number:02d} {problem.name:36s} {row.get('reference_ms', float('nan')):9.3f} ms  floor "
            f"{row.get('floor_ms', float('nan')):7.3f} ms  peak {row.get('peak_bytes', 0) / 1e9:5.1f} GB  agrees "
            f"{row.get('agrees')}  own {row.get('own_ratio')}  in {row['measured_in_s']:.1f} s"
            + (f"  ERROR {row['error']}" if row["error"] else ""),
            flush=True,
        )
    faults = [
        number
        for number, row in record["problems"].items()
        if row["error"] or not row.get("agrees") or row.get("own_ok") is False
    ]
    seconds = time.perf_counter() - started
    print(f"{len(record['problems'])} recorded, {seconds:.0f} s, faults: {', '.join(faults) or 'none'}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
