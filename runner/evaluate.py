"""The trusted side: grade one kernel by the contract, from draws, expectations and a clock that stay in this process."""

import secrets
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from runner import contract, dsls, guard, jail, roofline
from runner.arrays import Arrays, n_gpus, open_arrays
from runner.catalogue import Problem
from runner.errors import UserError
from runner.jail import Child
from runner.problem_check import anchor
from runner.records import DeviceKernels, Stage, Verdict
from runner.session import Broken, Call, Fault, Overhead, Session, median_known

MIN_REFERENCE_DRAWS = 10
REFERENCE_BUDGET_S = 20.0
N_HELD_CALLS = 2
LOOSE_FACTOR = 4.0
LOOSE_FLOOR = 2.0
EARLY_CHECK_EVERY = 10


@dataclass
class Grading:
    """What is known of a submission so far; a verdict can be written at any moment."""

    stage: Stage = Stage.LOAD
    findings: list[str] = field(default_factory=list)
    n_draws_passed: int = 0
    error_ratio: float | None = None
    kernel_ms_samples: list[float] = field(default_factory=list)
    reference_ms: float | None = None
    kernels: DeviceKernels | None = None
    extra: dict[str, Any] = field(default_factory=dict)


def evaluate(problem: Problem, dsl: str, kernel_path: Path | str, *, size: str | None = None, device: str | None = None,
             seed: int | None = None, compile_only: bool = False, timeout_s: float = contract.MAX_EVAL_S,
             child: Child | None = None, before_timing: Callable[[], None] | None = None) -> Verdict:
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
    size = size or ("full" if device == "cuda" else "small")
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
            _grade(session, Draws(problem, open_arrays(device), size, seed), text, flags, grading, before_timing)
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
        raise UserError(f"{device}: {dsl} runs on {' and '.join(can)} only; use a machine with a GPU, or --compile-only")
    open_arrays(device)
    return device


def devices() -> dict[str, Any]:
    """Facts about this machine for `doctor`: devices, walls, DSLs with their versions or what is missing."""
    facts: dict[str, Any] = {"n_gpus": n_gpus(), "isolation": list(jail.isolation()), "dsls": {}}
    facts["cpu"] = open_arrays("cpu").describe()
    if facts["n_gpus"]:
        facts["cuda"] = open_arrays("cuda").describe()
    for name in dsls.names():
        plugin = dsls.plugin(name)
        facts["dsls"][name] = {"missing": plugin.missing(), "versions": plugin.versions(), "devices": list(plugin.devices)}
    return facts


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


def _grade(session: Session, draws: "Draws", text: str, flags: dict, grading: Grading,
           before_timing: Callable[[], None] | None) -> None:
    arrays = draws.arrays
    # Under an account of its own the child cannot write these files; whoever changes them then is somebody else.
    roots = [] if session.child.uid else _sealed_roots()
    sealed = guard.seal(roots)
    first = draws.next()
    session.configure(arrays, first.inputs, first.own())
    overhead = session.calibrate(draws.between_calls)
    grading.extra.update(data_path="ipc" if session.boxes.shared_by_ipc else "shared memory", isolation=list(session.child.walls),
                         overhead_ms=asdict(overhead))
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


class Draw:
    """One draw: its inputs now, the reference's outputs and the anchor's when they are asked for."""

    def __init__(self, problem: Problem, arrays: Arrays, inputs: tuple):
        self.problem, self.arrays, self.inputs = problem, arrays, inputs
        self._own: tuple | None = None

    def own(self) -> tuple:
        if self._own is None:
            self._own = contract.as_tuple(self.problem.module.reference(self.arrays.xp, *self.inputs))
        return self._own

    def timed_own(self) -> float:
        """Run the reference by the timing rule; its milliseconds, the outputs being kept."""
        self.arrays.flush_cache()
        ms, outputs = self.arrays.timed(lambda: self.problem.module.reference(self.arrays.xp, *self.inputs))
        self._own = contract.as_tuple(outputs)
        return ms

    def check(self, outputs: tuple) -> contract.Check:
        due = anchor(self.problem, self.arrays.xp, self.inputs)
        return contract.check_outputs(self.arrays.xp, self.problem.module.OUTPUTS, outputs, self.own(), due)

    def near(self, outputs: tuple) -> contract.Check:
        """The same rule with the reference in the anchor's place: cheap enough for many draws."""
        return contract.check_outputs(self.arrays.xp, self.problem.module.OUTPUTS, outputs, self.own(), self.own())


class Draws:
    """Draws without end, from seeds that nobody can foresee and that never leave this process."""

    def __init__(self, problem: Problem, arrays: Arrays, size: str, seed: int | None):
        self.problem, self.arrays, self.size = problem, arrays, size
        self._seeds = None if seed is None else np.random.default_rng(seed)

    def next(self) -> Draw:
        seed = secrets.randbits(63) if self._seeds is None else int(self._seeds.integers(2**63))
        inputs = tuple(self.problem.module.make_inputs(self.arrays.xp, self.arrays.generator(seed), self.size))
        return Draw(self.problem, self.arrays, inputs)

    def between_calls(self) -> tuple:
        """Inputs of a new draw after the reference ran on the one before, as in the timed phase."""
        self.next().timed_own()
        return self.next().inputs


class Run:
    """The phases of one grading after the submission was loaded."""

    def __init__(self, session: Session, draws: Draws, overhead: Overhead, grading: Grading):
        self.session, self.draws, self.arrays = session, draws, draws.arrays
        self.problem, self.overhead, self.grading = draws.problem, overhead, grading
        self.calls: list[Call] = []
        self.loose_limit: float | None = LOOSE_FLOOR
        xp = self.arrays.xp
        self.array_type = f"{xp.ndarray.__module__}.{xp.ndarray.__name__}"

    def correctness(self, first: Draw) -> None:
        """Five draws by the full accuracy rule; how near the reference they come bounds the later, cheaper checks."""
        self.grading.stage, self.session.stage = Stage.CORRECTNESS, "correctness"
        draw = first
        for index in range(contract.N_CORRECTNESS_DRAWS):
            if index:
                draw = self.draws.next()
            call = self._call(draw, "correctness", cold=False)
            check = draw.check(call.outputs)
            self._keep_ratio(check)
            if not check.ok:
                raise Fault("correctness", f"wrong result on draw {index + 1}: {check.reason}")
            near = draw.near(call.outputs)
            if near.error_ratio is None or not np.isfinite(near.error_ratio):
                self.loose_limit = None
            elif self.loose_limit is not None:
                self.loose_limit = max(self.loose_limit, LOOSE_FACTOR * near.error_ratio)
            self.grading.n_draws_passed += 1
        self.arrays.release()

    def warm_up(self) -> None:
        self.grading.stage, self.session.stage = Stage.TIMING, "timing"
        for _ in range(contract.N_WARMUP_DRAWS):
            self._call(self.draws.next(), "timing", keep=False)

    def timing(self) -> None:
        """Fifty timed draws, some checked in full, some against the reference, and unannounced ones with the DSL held back.

        Work outside the clock is judged on medians; a breach is measured once more before it counts, since a busy
        machine can delay one series but hardly two.
        """
        reason = self._series()
        if reason is not None:
            reason = self._series()
        if reason is not None:
            raise Fault("guard", reason)
        self.grading.kernel_ms_samples = guard.kernel_ms_samples(self.calls, self.overhead, self.session.device)

    def _series(self) -> str | None:
        n_timed = contract.N_TIMED_DRAWS
        order = secrets.SystemRandom()
        checked = set(order.sample(range(n_timed), contract.N_TIMED_CHECKED))
        held_before = order.sample(range(1, n_timed), N_HELD_CALLS)
        first_ms = self.draws.next().timed_own()
        n_reference = int(min(n_timed, max(MIN_REFERENCE_DRAWS, REFERENCE_BUDGET_S * 1e3 / max(first_ms, 1e-3))))
        compared = set(order.sample(range(n_timed), n_reference))
        self.calls, reference_ms = [], []
        for index in range(n_timed):
            if index in held_before:
                self._held_call()
            draw = self.draws.next()
            call = self._call(draw, "timing", keep=index in checked or index in compared)
            if index % EARLY_CHECK_EVERY == 0:
                call.n_processes = len(self.session.child.members())
            self.calls.append(call)
            if index in compared:
                reference_ms.append(draw.timed_own())
                self._compare(draw, call, index)
            if index in checked:
                check = draw.check(call.outputs)
                self._keep_ratio(check)
                if not check.ok:
                    raise Fault("timing", f"wrong result on timed draw {index + 1}: {check.reason}")
        self.grading.reference_ms = contract.median_ms(reference_ms)
        self.grading.extra.update(n_reference_draws=len(reference_ms), clock_ms={
            "parent": statistics.median(c.parent_ms for c in self.calls),
            "child": statistics.median(c.child_ms or 0.0 for c in self.calls),
            "armed": statistics.median(c.armed_ms for c in self.calls),
            "delivered": statistics.median(c.delivered_ms for c in self.calls),
            "idle_cpu": median_known(c.idle_cpu_ms for c in self.calls),
            "used_cpu": median_known(c.used_cpu_ms for c in self.calls),
            "delivered_cpu": median_known(c.delivered_cpu_ms for c in self.calls)})
        device = self.session.device
        return (guard.forged_clock(self.calls, self.overhead, device)
                or guard.work_outside_the_clock(self.calls, self.overhead, device))

    def _compare(self, draw: Draw, call: Call, index: int) -> None:
        if self.loose_limit is None:
            return
        near = draw.near(call.outputs)
        if near.error_ratio is None or near.error_ratio > self.loose_limit:
            check = draw.check(call.outputs)       # the cheap rule only raises the alarm; the full one decides
            if not check.ok:
                raise Fault("timing", f"wrong result on timed draw {index + 1}: {check.reason}")

    def _held_call(self) -> None:
        """One call with the DSL's kernels held back: a right answer without them was made by something else."""
        draw = self.draws.next()
        call = self.session.call(draw.inputs, held=True)
        if call.fault is None and guard.claims_fault(call.claims, draw.own(), self.array_type) is None:
            if draw.check(call.outputs).ok:
                raise Fault("guard", f"the answer does not depend on {self.session.plugin.NAME}: it stays right with its kernels held back")

    def judge(self, flags: dict, mapped: set[str]) -> None:
        """What can only be said at the end: owners of the kernels, processes, foreign code, impossible times."""
        session, grading, device = self.session, self.grading, self.session.device
        grading.stage = Stage.GUARD
        dsl = session.plugin.NAME
        self._raise(guard.not_the_dsl(self.calls, dsl))
        n_processes = max(c.n_processes for c in self.calls)
        if n_processes > 1:
            raise Fault("guard", f"{n_processes} processes during timed calls, one is allowed")
        last = self._call(self.draws.next(), "guard", keep=False, flags=True)
        grading.findings += guard.changed_flags(flags, last.flags)
        if device == "cuda":
            self._watch_kernels(dsl)
        grading.extra["n_threads"] = session.child.n_threads()
        self._raise(guard.foreign_code(mapped, session.child.mapped(), dsl, str(session.child.scratch)))
        if not any(c.idle_cpu_ms is not None for c in self.calls):
            grading.findings.append("the kernel of this machine does not tell threads' time: idle work was not watched")
        kernel_ms = contract.median_ms(grading.kernel_ms_samples)
        floor_ms = roofline.measure(self.arrays).floor_ms(self.problem.module.work(self.draws.size))
        grading.extra["floor_ms"] = floor_ms
        self._raise(roofline.impossible(kernel_ms, floor_ms))
        grading.stage = Stage.DONE

    def _watch_kernels(self, dsl: str) -> None:
        answer = self.session.watch(True)
        if answer.get("fault"):
            self.grading.findings.append(f"device kernels were not recorded: {str(answer['fault'])[:160]}")
            return
        self._call(self.draws.next(), "guard", keep=False)
        answer = self.session.watch(False)
        if not isinstance(answer.get("kernels"), list):
            self.grading.findings.append(f"device kernels were not recorded: {str(answer.get('fault'))[:160]}")
            return
        self.grading.kernels = guard.owners(answer["kernels"], dsl)
        self._raise(guard.kernels_fault(self.grading.kernels, dsl))

    def _call(self, draw: Draw, stage: str, keep: bool = True, flags: bool = False, cold: bool = True) -> Call:
        call = self.session.call(draw.inputs, keep=keep, flags=flags, cold=cold)
        if call.fault is not None:
            where, words = call.fault
            raise Fault(where if where == "compile" else stage, words)
        if call.changed_input is not None:
            raise Fault("guard", f"input {call.changed_input} was changed by the call; inputs are read only")
        if keep and (fault := guard.claims_fault(call.claims, draw.own(), self.array_type)) is not None:
            raise Fault("correctness" if stage == "correctness" else stage, f"wrong result: {fault}")
        return call

    def _keep_ratio(self, check: contract.Check) -> None:
        if check.error_ratio is not None and np.isfinite(check.error_ratio):
            self.grading.error_ratio = max(self.grading.error_ratio or 0.0, check.error_ratio)

    def _raise(self, reason: str | None) -> None:
        if reason is not None:
            raise Fault("guard", reason)


def _sealed_roots() -> list[Path]:
    return [jail.project_root() / "runner", jail.project_root() / "problems", Path(np.__file__).parent / "_core"]


def _findings(loaded: dict[str, Any]) -> list[str]:
    found = loaded.get("findings")
    return [str(f)[:200] for f in found[:40]] if isinstance(found, list) else []


def _verdict(grading: Grading, reason: str | None, tail: str, problem: Problem, dsl: str, device: str, size: str,
             compile_only: bool, eval_s: float) -> Verdict:
    common = dict(findings=tuple(grading.findings), device=open_arrays(device).describe(), size=size,
                  contract_sha256=contract.digest(), eval_s=eval_s, error_ratio=grading.error_ratio,
                  n_draws_passed=grading.n_draws_passed, kernels=grading.kernels, stderr_tail=tail[-4000:] or None,
                  at=datetime.now(timezone.utc).isoformat(timespec="seconds"), dsl=dsl, problem=problem.number, **grading.extra)
    if compile_only:
        compiled = reason is None
        return Verdict(passed=False, stage=Stage.COMPILE if compiled else grading.stage, compiled=compiled,
                       reason=reason or "compiled; not run (--compile-only)", **common)
    samples = tuple(grading.kernel_ms_samples)
    kernel_ms = contract.median_ms(samples) if samples else None
    if reason is None:
        return Verdict(passed=True, stage=Stage.DONE, kernel_ms=kernel_ms, kernel_ms_samples=samples,
                       reference_ms=grading.reference_ms, speedup=contract.speedup(grading.reference_ms, kernel_ms), **common)
    stage = Stage.GUARD if grading.stage is Stage.DONE else grading.stage
    return Verdict(passed=False, stage=stage, reason=reason, kernel_ms=kernel_ms, kernel_ms_samples=samples,
                   reference_ms=grading.reference_ms, **common)
