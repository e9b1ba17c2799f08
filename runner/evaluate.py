"""The trusted side: grade a kernel by the contract, from draws, expectations and a clock that stay in this process."""

import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from runner import contract, dsls, guard, walls
from runner.arrays import Arrays, n_gpus, open_arrays
from runner.calls import Broken, Fault
from runner.catalogue import Problem
from runner.draws import Draws
from runner.errors import UserError
from runner.foreign import ForeignProblem, need_torch
from runner.foreign_draws import ForeignDraws
from runner.grading import Grading, Run
from runner.jail import Child
from runner.records import Stage, Verdict
from runner.session import Session


def evaluate(
    problem: Problem,
    dsl: str,
    kernel_path: Path | str,
    *,
    size: str | None = None,
    device: str | None = None,
    seed: int | None = None,
    compile_only: bool = False,
    timeout_s: float = contract.MAX_EVAL_S,
    child: Child | None = None,
    before_timing: Callable[[], None] | None = None,
) -> Verdict:
    """Grade one `kernel.py` for a problem and a DSL; a submission's fault is a failed verdict, never an exception.

    Args:
        size: `full` or `small`; by default full on the GPU and small on the processor.
        device: `cuda` or `cpu`; by default the GPU where there is one and the DSL can use it.
        seed: draws from this seed (tests only; by default from the operating system's randomness).
        compile_only: call the submission's `build()` with no GPU and stop there.
        child: a waiting child of `runner.pool`; it serves this submission and is ended.
        before_timing: called once the kernel is right and before it is timed (to wait until the machine is quiet).

    Raises:
        UserError: the DSL or the device cannot be used on this machine.
    """
    plugin = dsls.plugin(dsl)
    if (cure := plugin.missing()) is not None:
        raise UserError(f"{dsl}: not installed; {cure}")
    device = "cpu" if compile_only else pick_device(dsl, device)
    size = problem.size(device, size)
    if isinstance(problem, ForeignProblem):
        need_torch()
    started, grading = time.monotonic(), Grading()
    session: Session | None = None
    reason = detail = None
    try:
        text = kernel_text(Path(kernel_path))
        session = Session(dsl, "compile" if compile_only else device, started + timeout_s, child)
        child = None
        flags = session.ready()
        if compile_only:
            _compile(session, text, grading)
        else:
            draws = _draws(problem, open_arrays(device), size, seed, started + timeout_s)
            try:
                _grade(session, draws, text, flags, grading, before_timing)
            finally:
                grading.extra["draws_s"] = draws.watch.spent_s
                draws.close()
    except Fault as fault:
        reason, detail = fault.reason, fault.detail
        grading.stage = Stage(fault.stage)
    except Broken as fault:
        reason = f"infrastructure fault: {fault}"
        grading.extra["infrastructure"] = True
    finally:
        tail = ""
        if session is not None:
            tail = session.child.tail()
            session.close()
        if child is not None:
            child.close()
    if detail and detail != reason:
        tail = f"{tail}\n{detail}".strip()
    return _verdict(grading, reason, tail, problem, dsl, device, size, compile_only, time.monotonic() - started)


def pick_device(dsl: str, device: str | None = None) -> str:
    """The device that was asked for, or the best one that the DSL can use here; UserError when there is none."""
    can = dsls.plugin(dsl).devices
    if device is None:
        device = "cuda" if "cuda" in can and n_gpus() else "cpu"
    if device not in can:
        raise UserError(
            f"{device}: {dsl} runs on {' and '.join(can)} only; use a machine with a GPU, or --compile-only"
        )
    open_arrays(device)
    return device


def devices() -> dict[str, Any]:
    """Facts about this machine for `doctor`: devices, walls, DSLs with their versions or what is missing."""
    facts: dict[str, Any] = {"n_gpus": n_gpus(), "isolation": list(walls.isolation()), "dsls": {}}
    facts["cpu"] = open_arrays("cpu").describe()
    if facts["n_gpus"]:
        facts["cuda"] = open_arrays("cuda").describe()
        facts["isolation_cuda"] = list(walls.isolation("cuda"))
    for name in dsls.names():
        plugin = dsls.plugin(name)
        facts["dsls"][name] = {
            "missing": plugin.missing(),
            "versions": plugin.versions(),
            "devices": list(plugin.devices),
        }
    return facts


def _draws(problem: Problem, arrays: Arrays, size: str, seed: int | None, deadline: float) -> Draws | ForeignDraws:
    if isinstance(problem, ForeignProblem):
        return ForeignDraws(problem, arrays, seed, deadline)
    return Draws(problem, arrays, size, seed)


def kernel_text(path: Path) -> str:
    """A submission's text, or the Fault that keeps it from being graded."""
    try:
        n_bytes = path.stat().st_size
        if n_bytes > contract.MAX_KERNEL_BYTES:
            raise Fault("load", f"oversized: {n_bytes:,} bytes, {contract.MAX_KERNEL_BYTES:,} are the limit")
        return path.read_bytes().decode("utf-8")
    except OSError as fault:
        raise Fault("load", f"unreadable: {fault.strerror or fault}") from None
    except UnicodeDecodeError:
        raise Fault("load", "unreadable: not UTF-8 text") from None


def _compile(session: Session, text: str, grading: Grading) -> None:
    loaded = session.load(text)
    grading.findings += _findings(loaded)
    grading.stage = Stage.COMPILE
    if not loaded.get("build"):
        raise Fault("compile", "no `build`: --compile-only needs build(), which compiles every kernel and returns them")
    grading.extra["n_kernels_compiled"] = session.build()


def _grade(
    session: Session,
    draws: Draws | ForeignDraws,
    text: str,
    flags: dict,
    grading: Grading,
    before_timing: Callable[[], None] | None,
) -> None:
    arrays = draws.arrays
    # Under an account of its own the child cannot write these files; whoever changes them then is somebody else.
    roots = [] if session.child.uid else _sealed_roots()
    sealed = guard.seal(roots)
    first = draws.next()
    session.configure(arrays, first.inputs, first.own())
    overhead = session.calibrate(draws.between_calls)
    grading.extra.update(
        data_path="ipc" if session.boxes.shared_by_ipc else "shared memory",
        isolation=list(session.child.walls),
        overhead_ms=asdict(overhead),
    )
    if session.ipc_fault:
        grading.findings.append(f"CUDA IPC is not available here: {str(session.ipc_fault)[:120]}")
    mapped = session.child.mapped()
    loaded = session.load(text)
    grading.findings += _findings(loaded)
    if loaded.get("build"):
        grading.stage = Stage.COMPILE
        session.build()
    run = Run(session, draws, overhead, grading)
    run.correctness(first)
    if before_timing is not None:
        before_timing()
    run.warm_up()
    run.timing()
    run.judge(flags, mapped)
    if (fault := guard.broken_seal(sealed, guard.seal(roots))) is not None:
        raise Fault("guard", fault)


def _sealed_roots() -> list[Path]:
    return [walls.project_root() / "runner", walls.project_root() / "problems", Path(np.__file__).parent / "_core"]


def _findings(loaded: dict[str, Any]) -> list[str]:
    found = loaded.get("findings")
    return [str(f)[:200] for f in found[:40]] if isinstance(found, list) else []


def _verdict(
    grading: Grading,
    reason: str | None,
    tail: str,
    problem: Problem,
    dsl: str,
    device: str,
    size: str,
    compile_only: bool,
    eval_s: float,
) -> Verdict:
    common = dict(
        findings=tuple(grading.findings),
        device=open_arrays(device).describe(),
        baseline=problem.baseline,
        size=size,
        contract_sha256=contract.digest(),
        eval_s=eval_s,
        error_ratio=grading.error_ratio,
        n_draws_passed=grading.n_draws_passed,
        kernels=grading.kernels,
        stderr_tail=tail[-4000:] or None,
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        dsl=dsl,
        problem=problem.number,
        **grading.extra,
    )
    if compile_only:
        compiled = reason is None
        return Verdict(
            passed=False,
            stage=Stage.COMPILE if compiled else grading.stage,
            compiled=compiled,
            reason=reason or "compiled; not run (--compile-only)",
            **common,
        )
    samples = tuple(grading.kernel_ms_samples)
    kernel_ms = contract.median_ms(samples) if samples else None
    if reason is None:
        return Verdict(
            passed=True,
            stage=Stage.DONE,
            kernel_ms=kernel_ms,
            kernel_ms_samples=samples,
            reference_ms=grading.reference_ms,
            speedup=contract.speedup(grading.reference_ms, kernel_ms),
            **common,
        )
    stage = Stage.GUARD if grading.stage is Stage.DONE else grading.stage
    return Verdict(
        passed=False,
        stage=stage,
        reason=reason,
        kernel_ms=kernel_ms,
        kernel_ms_samples=samples,
        reference_ms=grading.reference_ms,
        **common,
    )
