"""The phases of one grading after the submission was loaded: correctness, warm-up, timing, and the last judgement."""

import secrets
import statistics
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from runner import contract, guard, roofline
from runner.calls import Call, Fault, Overhead, median_known
from runner.draws import Draw, Draws
from runner.records import DeviceKernels, Stage
from runner.session import Session

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
        """Fifty timed draws, some checked in full, some against the reference, and unannounced ones with the DSL held
        back.

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
        self.grading.extra.update(
            n_reference_draws=len(reference_ms),
            clock_ms={
                "parent": statistics.median(c.parent_ms for c in self.calls),
                "child": statistics.median(c.child_ms or 0.0 for c in self.calls),
                "armed": statistics.median(c.armed_ms for c in self.calls),
                "delivered": statistics.median(c.delivered_ms for c in self.calls),
                "idle_cpu": median_known(c.idle_cpu_ms for c in self.calls),
                "used_cpu": median_known(c.used_cpu_ms for c in self.calls),
                "delivered_cpu": median_known(c.delivered_cpu_ms for c in self.calls),
            },
        )
        device = self.session.device
        return guard.forged_clock(self.calls, self.overhead, device) or guard.work_outside_the_clock(
            self.calls, self.overhead, device
        )

    def _compare(self, draw: Draw, call: Call, index: int) -> None:
        if self.loose_limit is None:
            return
        near = draw.near(call.outputs)
        if near.error_ratio is None or near.error_ratio > self.loose_limit:
            check = draw.check(call.outputs)  # the cheap rule only raises the alarm; the full one decides
            if not check.ok:
                raise Fault("timing", f"wrong result on timed draw {index + 1}: {check.reason}")

    def _held_call(self) -> None:
        """One call with the DSL's kernels held back: a right answer without them was made by something else."""
        draw = self.draws.next()
        call = self.session.call(draw.inputs, held=True, rehearse=True)
        honest = call.fault is None and guard.claims_fault(call.claims, draw.own(), self.array_type) is None
        if honest and draw.check(call.outputs).ok:
            raise Fault(
                "guard",
                f"the answer does not depend on {self.session.plugin.NAME}: it stays right with its kernels held back",
            )

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
        floor_ms = roofline.measure(self.arrays).floor_ms(self.draws.work())
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
        rehearse = stage == "timing"
        call = self.session.call(draw.inputs, keep=keep, flags=flags, cold=cold, rehearse=rehearse)
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
