"""Try each GPU mechanism of the evaluator by itself and say PASS or FAIL with a figure: `python -m benchmarks.gpu_smoke`."""

import json
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runner import catalogue, kernel_watch, roofline
from runner import walls as walls_of_machine
from runner.arrays import open_arrays
from runner.catalogue import Problem
from runner.evaluate import devices, evaluate
from runner.problem_check import anchor
from runner.session import Session

ROOT = Path(__file__).resolve().parents[1]
KERNELS = ROOT / "tests" / "runner" / "kernels"
ROW_NORM = Problem(0, "row_norm", "mlp_norm", ROOT / "tests" / "exploits" / "row_norm.py")
WALLS = ("net,pid,uid", "net,uid", "net,pid", "net", "")


def attempt(name: str, check: Callable[[], Any]) -> bool:
    """Run one check and print its line; whatever it raises is its failure."""
    started = time.monotonic()
    try:
        words, ok = check(), True
    except Exception as fault:
        last = traceback.extract_tb(fault.__traceback__)[-1]
        words = f"{type(fault).__name__}: {str(fault)[:500]} ({Path(last.filename).name}:{last.lineno})"
        ok = False
    print(f"{'PASS' if ok else 'FAIL'} {name} [{time.monotonic() - started:.1f} s] {words}", flush=True)
    return ok


def facts() -> str:
    return json.dumps(devices())


def bf16_draw() -> str:
    arrays = open_arrays("cuda")
    words = []
    for number in (28, 72, 1):
        problem = catalogue.problem(number)
        inputs = problem.module.make_inputs(arrays.xp, arrays.generator(7), "small")
        own = problem.module.reference(arrays.xp, *inputs)
        anchor(problem, arrays.xp, inputs)
        own = own if isinstance(own, tuple) else (own,)
        words.append(f"{number}: {inputs[0].dtype.name}{inputs[0].shape} -> {own[0].dtype.name}{own[0].shape}")
    return "; ".join(words)


def own_clock() -> str:
    arrays = open_arrays("cuda")
    x = arrays.xp.ones(16 << 20, arrays.xp.float32)
    arrays.timed(lambda: x * 2)
    warm, cold = [], []
    for _ in range(20):
        warm.append(arrays.timed(lambda: x.sum())[0])
    for _ in range(20):
        arrays.flush_cache()
        cold.append(arrays.timed(lambda: x[: 4 << 20].sum())[0])
    begun = time.perf_counter()
    arrays.flush_cache()
    flush_ms = 1e3 * (time.perf_counter() - begun)
    again = [arrays.timed(lambda: x[: 4 << 20].sum())[0] for _ in range(20)]
    nothing = statistics.median(arrays.timed(lambda: None)[0] for _ in range(20))
    return (
        f"nothing {nothing:.4f} ms; flush {flush_ms:.3f} ms; 16 MiB sum cold {statistics.median(cold):.4f} ms, "
        f"warm {statistics.median(again):.4f} ms; 64 MiB sum {statistics.median(warm):.4f} ms"
    )


def roof() -> str:
    measured = roofline.measure(open_arrays("cuda"))
    return f"{measured.bytes_per_s / 1e12:.2f} TB/s with headroom, cache {measured.cache_bytes / 2**20:.0f} MiB"


def cupti_names() -> str:
    arrays = open_arrays("cuda")
    x = arrays.xp.ones(1024, arrays.xp.float32)
    kernel_watch.start()
    (x * 3 + 1).sum()
    arrays.synchronise()
    seen = kernel_watch.stop()
    if not seen:
        raise RuntimeError("no kernel was recorded")
    return str(seen)[:400]


def two_processes(walls: str, dsl: str = "cutedsl", ipc: str = "1") -> str:
    """Start a child behind these walls, share memory with it, and run the handshake with nothing in it."""
    os.environ["MKB_ISOLATION"], os.environ["MKB_CUDA_IPC"] = walls, ipc
    walls_of_machine.isolation.cache_clear()
    arrays = open_arrays("cuda")
    inputs = ROW_NORM.module.make_inputs(arrays.xp, arrays.generator(1), "full")
    own = (ROW_NORM.module.reference(arrays.xp, *inputs),)
    begun = time.monotonic()
    session = Session(dsl, "cuda", time.monotonic() + 60)
    try:
        session.ready()
        ready_s = time.monotonic() - begun
        session.configure(arrays, inputs, own)
        overhead = session.calibrate(lambda: inputs)
        calls = [session.call(inputs, nothing=True) for _ in range(20)]
        session.boxes.read()
        idle = [c.idle_cpu_ms for c in calls if c.idle_cpu_ms is not None]
        words = (
            f"walls {session.child.walls} ipc {session.boxes.shared_by_ipc} fault {session.ipc_fault}; ready {ready_s:.1f} s; "
            f"clock +{overhead.clock_ms * 1e3:.1f} us, armed {overhead.armed_ms * 1e3:.1f} us, delivered "
            f"{overhead.delivered_ms * 1e3:.1f} us; parent {statistics.median(c.parent_ms for c in calls) * 1e3:.1f} us, child "
            f"{statistics.median(c.child_ms or 0 for c in calls) * 1e3:.1f} us, idle "
            f"{statistics.median(idle) * 1e3 if idle else float('nan'):.1f} us, threads {session.child.n_threads()}"
        )
        if ipc == "1" and not session.boxes.shared_by_ipc:
            raise RuntimeError(words)
        return words
    except Exception as fault:
        raise RuntimeError(f"{fault} | tail: {session.child.tail()[-600:]}") from fault
    finally:
        session.close()


def graded(dsl: str, kernel: Path, size: str, problem: Problem = ROW_NORM, expect: str | None = None) -> str:
    """One whole evaluation; `expect` is a word that the reason of a refusal must hold."""
    verdict = evaluate(problem, dsl, kernel, size=size, device="cuda", timeout_s=60)
    line = verdict.line()
    samples = line.pop("kernel_ms_samples", ())
    words = json.dumps(line) + (
        f" spread {statistics.pstdev(samples) / statistics.mean(samples):.1%}" if samples else ""
    )
    if verdict.passed != (expect is None) or (expect and expect not in (verdict.reason or "")):
        raise RuntimeError(words[-1800:])
    return words


def main() -> int:
    begun = time.monotonic()
    checks: list[tuple[str, Callable[[], Any]]] = [
        ("facts", facts),
        ("bf16 draws by CuPy's Generator", bf16_draw),
        ("events, flush, cold cache", own_clock),
        ("roofline", roof),
        ("CUPTI names", cupti_names),
    ]
    results = [attempt(name, check) for name, check in checks]
    chosen = None
    for walls in WALLS:
        ok = attempt(f"CUDA IPC behind [{walls}]", lambda: two_processes(walls))
        if ok:
            chosen = walls
            break
    results.append(chosen is not None)
    results.append(attempt("copies through the host", lambda: two_processes(chosen or "", ipc="0")))
    os.environ["MKB_ISOLATION"], os.environ["MKB_CUDA_IPC"] = chosen if chosen is not None else "net,pid,uid", "1"
    walls_of_machine.isolation.cache_clear()
    print(f"walls used from here on: {os.environ['MKB_ISOLATION']!r}", flush=True)
    for size in ("small", "full"):
        for dsl, file in (("tirx", "row_norm_tirx_cuda.py"), ("cutedsl", "row_norm_cutedsl.py")):
            if time.monotonic() - begun < 100:
                results.append(attempt(f"evaluate {dsl} {size}", lambda: graded(dsl, KERNELS / file, size)))
    decoy = ROOT / "tests" / "exploits" / "cuda" / "decoy_tirx.py"
    results.append(attempt("decoy kernel is refused", lambda: graded("tirx", decoy, "full", expect="does not depend")))
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed [{time.monotonic() - begun:.0f} s]")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
