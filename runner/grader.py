"""A process that grades for another one, kernel after kernel on one device, which it holds while it grades."""

import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from runner.arrays import open_arrays
from runner.catalogue import Problem
from runner.channel import Gone, Lines
from runner.device_lock import DeviceLock
from runner.errors import UserError
from runner.evaluate import evaluate
from runner.foreign import ForeignProblem
from runner.pool import Pool
from runner.records import Stage, Verdict


def problem_line(problem: Problem) -> dict[str, Any]:
    """A problem as plain values, for another process that sees the same files."""
    line = {"number": problem.number, "name": problem.name, "family": problem.family, "path": str(problem.path)}
    if isinstance(problem, ForeignProblem):
        line |= {"kind": problem.kind, "compiled": problem.compiled}
    return line


def problem_of(line: dict[str, Any]) -> Problem:
    """The problem of `problem_line`'s values."""
    fields = {**line, "path": Path(line["path"])}
    return ForeignProblem(**fields) if "kind" in fields else Problem(**fields)


class Grader:
    """Grades on one device; not for two threads, since waiting children belong to the thread that started them.

    Args:
        device: `cuda` (this process's first visible GPU) or `cpu`.
        timeout_s: the longest that one evaluation may take once the device is held.
    """

    def __init__(self, device: str, lock: DeviceLock, timeout_s: float):
        self.device, self.lock, self.timeout_s = device, lock, timeout_s
        self._pool = Pool(n_waiting=1)

    def grade(self, problem: Problem, dsl: str, kernel: Path, tell: Callable[[dict[str, Any]], None]) -> None:
        """Grade one file: tells `{"held": true}` once the device is held, then `{"verdict": …}`.

        The device is held on until the next kernel's child has done its imports, which would disturb whoever times
        next.
        """
        with self.lock.held():
            tell({"held": True})
            tell({"verdict": self._verdict(problem, dsl, kernel).line()})
            self._pool.prepare(dsl, self.device)
            self._pool.wait_until_ready()

    def _verdict(self, problem: Problem, dsl: str, kernel: Path) -> Verdict:
        try:
            child = self._pool.take(dsl, self.device, successor=False)
            ready = self._pool.wait_until_ready
            unit = {"unit": self.lock.name}
            if self.lock.n_slots > 1:
                unit["n_at_once"] = self.lock.n_slots
            verdict = evaluate(
                problem, dsl, kernel, device=self.device, timeout_s=self.timeout_s, child=child, before_timing=ready
            )
            return verdict.model_copy(update=unit)
        except UserError:
            raise
        except Exception as fault:  # a full disk, no memory, a reference that broke: no kernel is to blame
            return broken(f"{type(fault).__name__}: {str(fault)[:300]}")

    def close(self) -> None:
        self._pool.close()


def broken(why: str) -> Verdict:
    """The verdict on a kernel that never reached evaluation."""
    reason = f"infrastructure fault: {' '.join(why.split())}"
    return Verdict(passed=False, stage=Stage.LOAD, reason=reason, infrastructure=True)


def main(arguments: list[str]) -> int:
    """Serve until the other side leaves; `arguments`: socket, device, lock's name, slots, slot, seconds."""
    fd, device, name, n_slots, slot, timeout_s = arguments
    lines = Lines(socket.socket(fileno=int(fd)))
    os.set_inheritable(int(fd), False)
    try:
        described = open_arrays(device).describe()
    except Exception as fault:
        lines.send({"ready": False, "fault": f"{type(fault).__name__}: {fault}"[:600]})
        return 1
    grader = Grader(device, DeviceLock(name, int(n_slots), int(slot)), float(timeout_s))
    lines.send({"ready": True, "device": described})
    try:
        with suppress(Gone):
            while True:
                order = lines.receive()
                try:
                    grader.grade(problem_of(order["problem"]), order["dsl"], Path(order["kernel"]), lines.send)
                except UserError as mistake:
                    lines.send({"mistake": str(mistake)})
    finally:
        grader.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
