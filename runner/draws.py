"""Draws of a problem: inputs from seeds that nobody can foresee, and what is due for them."""

import secrets

import numpy as np

from runner import contract
from runner.arrays import Arrays
from runner.catalogue import Problem
from runner.problem_check import anchor


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
