"""Draws of a problem: inputs from seeds that nobody can foresee, and what is due for them."""

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from runner import contract
from runner.arrays import Arrays
from runner.catalogue import Problem
from runner.problem_check import anchor


class Stopwatch:
    """Seconds spent on draws (inputs, references, anchors, comparisons), the device's work on them included."""

    def __init__(self, arrays: Arrays):
        self.arrays, self.spent_s, self._depth = arrays, 0.0, 0

    @contextmanager
    def running(self) -> Iterator[None]:
        started = time.perf_counter()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self.arrays.synchronise()
                self.spent_s += time.perf_counter() - started


class Draw:
    """One draw: its inputs now, the reference's outputs and the anchor's when they are asked for."""

    def __init__(self, problem: Problem, arrays: Arrays, inputs: tuple, watch: Stopwatch):
        self.problem, self.arrays, self.inputs, self.watch = problem, arrays, inputs, watch
        self._own: tuple | None = None

    def own(self) -> tuple:
        if self._own is None:
            with self.watch.running():
                self._own = contract.as_tuple(self.problem.module.reference(self.arrays.xp, *self.inputs))
        return self._own

    def timed_own(self) -> float:
        """Run the reference by the timing rule; its milliseconds, the outputs being kept."""
        with self.watch.running():
            self.arrays.flush_cache()
            ms, outputs = self.arrays.timed(lambda: self.problem.module.reference(self.arrays.xp, *self.inputs))
            self._own = contract.as_tuple(outputs)
        return ms

    def check(self, outputs: tuple) -> contract.Check:
        with self.watch.running():
            due = anchor(self.problem, self.arrays.xp, self.inputs)
            return contract.check_outputs(self.arrays.xp, self.problem.module.OUTPUTS, outputs, self.own(), due)

    def near(self, outputs: tuple) -> contract.Check:
        """The same rule with the reference in the anchor's place: cheap enough for many draws."""
        with self.watch.running():
            return contract.check_outputs(self.arrays.xp, self.problem.module.OUTPUTS, outputs, self.own(), self.own())


class Draws:
    """Draws without end, from seeds that nobody can foresee and that never leave this process."""

    def __init__(self, problem: Problem, arrays: Arrays, size: str, seed: int | None):
        self.problem, self.arrays, self.size = problem, arrays, size
        self.watch = Stopwatch(arrays)
        self._seeds = None if seed is None else np.random.default_rng(seed)

    def next(self) -> Draw:
        seed = secrets.randbits(63) if self._seeds is None else int(self._seeds.integers(2**63))
        with self.watch.running():
            inputs = tuple(self.problem.module.make_inputs(self.arrays.xp, self.arrays.generator(seed), self.size))
        return Draw(self.problem, self.arrays, inputs, self.watch)

    def work(self) -> dict[str, Any]:
        """Bytes and operations that no kernel can do without."""
        return self.problem.module.work(self.size)

    def close(self) -> None:
        """Nothing is held open."""

    def between_calls(self) -> tuple:
        """Inputs of a new draw after the reference ran on the one before, as in the timed phase."""
        self.next().timed_own()
        return self.next().inputs
