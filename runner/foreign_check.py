"""What a problem of another set must keep before kernels are graded on it, and how `solve` is called for it."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from runner import contract
from runner.arrays import open_arrays
from runner.calls import Broken
from runner.errors import UserError
from runner.foreign import ForeignProblem
from runner.foreign_draws import ForeignDraws


@dataclass(frozen=True)
class ForeignQuality:
    """What was found on one problem; it can be graded on when `faults` is empty."""

    number: int
    name: str
    reference_ms: float | None
    faults: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.faults


def quality(problem: ForeignProblem, device: str, seed: int = 0) -> ForeignQuality:
    """Draw twice, compute what is due, and try the contract on it: what cannot be graded on is said, never raised.

    Raises:
        UserError: PyTorch is not installed.
    """
    reference_ms, faults = None, []
    try:
        draws = ForeignDraws(problem, open_arrays(device), seed, time.monotonic() + contract.MAX_EVAL_S)
        try:
            first, second = draws.next(), draws.next()
            before = [_bytes(x) for x in first.inputs]
            if [_bytes(x) for x in second.inputs] == before and before:
                faults.append("two seeds draw the same inputs")
            reference_ms = second.timed_own()
            own = first.own()
            if [_bytes(x) for x in draws.ask("inputs", first.seed)[0]] != before:
                faults.append("one seed draws two different inputs")
            kept = first.check(own)
            if not kept.ok:
                faults.append(f"the reference breaks the contract: {kept.reason}")
            if first.check(tuple(x * 0 for x in own)).ok:
                faults.append("zeros pass the accuracy rule")
        finally:
            draws.close()
    except Broken as fault:
        faults.append(str(fault))
    return ForeignQuality(problem.number, problem.name, reference_ms, tuple(faults))


def statement(problem: ForeignProblem, device: str) -> str:
    """The problem's text with shapes and types of what `solve` gets and gives; UserError where it cannot be run."""
    try:
        draws = ForeignDraws(problem, open_arrays(device), 0, time.monotonic() + contract.MAX_EVAL_S)
    except Broken as fault:
        raise UserError(f"{problem.path}: {fault}") from None
    try:
        return problem.statement() + "".join(f"# {line}\n" for line in draws.forms())
    finally:
        draws.close()


def _bytes(value: Any) -> bytes:
    host = value.get() if hasattr(value, "get") else value
    return np.ascontiguousarray(host).tobytes() if hasattr(host, "shape") else repr(host).encode()
