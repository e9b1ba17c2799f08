"""The devices of this machine as one evaluator: each takes one evaluation at a time, whoever asks."""

import asyncio
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from runner import contract
from runner.catalogue import Problem
from runner.errors import UserError
from runner.execute import Agent, Graded
from runner.grader import broken
from runner.grading_unit import GradingProcess, Lost, Unusable, units

log = logging.getLogger(__name__)
N_TRIES = 3  # of one kernel whose grading process was lost


class Fleet(Protocol):
    """Where a run's kernels are graded; an `execute.Evaluate` that says what it is and can be ended."""

    device: str

    async def __call__(self, problem: Problem, dsl: str, kernel: str) -> Graded: ...

    def words(self) -> str:
        """One line: which devices, and how many evaluations hold one at a time."""

    def agent(self, agent: Agent, asked: Any) -> Agent:
        """The agent by which this fleet makes the attempts of `agent` (an experiment's, `experiment.Asked`)."""

    def close(self) -> None:
        """End every process of the fleet."""


class LocalFleet:
    """Every visible GPU of this machine, or the processor; nobody is charged the wait for a device.

    Each device has a grading process of its own, which sees no other device. One that is lost is replaced and the
    kernel graded again (a grading writes nothing); a device whose process cannot start twice in a row is left out.

    Args:
        device: `cuda` or `cpu`.
        per_device: evaluations at once on the processor; 1 on a GPU.
        timeout_s: the longest that one evaluation may take.

    Raises:
        UserError: see `grading_unit.units`.
    """

    def __init__(self, device: str, per_device: int = 1, timeout_s: float = contract.MAX_EVAL_S):
        self.device, self.per_device = device, per_device
        self.processes = [GradingProcess(unit, timeout_s) for unit in units(device, per_device)]
        self._free, self._n_usable = list(self.processes), len(self.processes)
        self._changed, self._closed = threading.Condition(), False
        self._n_failed_starts = dict.fromkeys(self.processes, 0)
        # A grading process ends with the thread that started it: these threads live as long as the fleet.
        self._threads = ThreadPoolExecutor(len(self.processes), thread_name_prefix="grade")

    async def __call__(self, problem: Problem, dsl: str, kernel: str) -> Graded:
        asked = time.monotonic()
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._grade, problem, dsl, kernel, asked)

    def words(self) -> str:
        described, n = self.processes[0].unit.described, len(self.processes)
        if self.device == "cuda":
            return f"graded on {n} × {described}: one evaluation at a time holds a GPU"
        if n == 1:
            return f"graded on the processor ({described}): one evaluation at a time holds it"
        return (
            f"graded on the processor ({described}), {n} evaluations at once: they slow each other down, so these "
            "times serve to try things out and are no figures"
        )

    def agent(self, agent: Agent, asked: Any) -> Agent:
        """The agent itself: attempts wait for a network, and this process can wait for many."""
        return agent

    def _grade(self, problem: Problem, dsl: str, kernel: str, asked: float) -> Graded:
        n_lost, why = 0, ""
        while n_lost < N_TRIES:
            process = self._take(dsl)
            try:
                verdict, held_at = process.grade(problem, dsl, kernel)
                self._n_failed_starts[process] = 0
                return Graded(verdict, held_at - asked)
            except Lost as fault:
                n_lost, why = n_lost + 1, str(fault)
                log.warning("%s", fault)
            except Unusable as fault:
                self._failed_to_start(process, str(fault))
            finally:
                self._give(process)
        return Graded(broken(f"{why} ({n_lost} times)"), time.monotonic() - asked)

    def _take(self, dsl: str) -> GradingProcess:
        """A free device, best one that has a child of this DSL waiting; waits for one."""
        with self._changed:
            while not self._free:
                if self._closed or not self._n_usable:
                    raise UserError(f"{self.device}: no device answers any more; see `mkb-analyze doctor`, run again")
                self._changed.wait()
            if self._closed:
                raise Lost("the fleet is closed")
            process = next((p for p in self._free if p.last_dsl == dsl), self._free[0])
            self._free.remove(process)
            return process

    def _give(self, process: GradingProcess) -> None:
        with self._changed:
            if self._n_failed_starts[process] < 2:
                self._free.append(process)
            self._changed.notify_all()

    def _failed_to_start(self, process: GradingProcess, why: str) -> None:
        with self._changed:
            self._n_failed_starts[process] += 1
            if self._n_failed_starts[process] == 2:
                self._n_usable -= 1
                log.error("%s: left out, its process does not start: %s", process.unit.lock.name, why)

    def close(self) -> None:
        """End every grading process at once, and with it whatever is under way."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for process in self.processes:
            process.close()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for process in self.processes:
            process.end()
