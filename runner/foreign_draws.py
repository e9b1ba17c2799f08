"""Draws of a problem of another set: a referee process makes them, this side copies them and applies the rule."""

import secrets
from pathlib import Path
from typing import Any

import numpy as np

from runner import contract
from runner.arrays import Arrays, dtype_of
from runner.boxes import ALIGN, Slot
from runner.calls import Broken
from runner.channel import CONTROL_BYTES, Garbled, Gone, Late, SharedMemory
from runner.draws import Stopwatch
from runner.foreign import ForeignProblem, need_torch
from runner.jail import Child

_MAX_BYTES = 64 << 30


class ForeignDraw:
    """One draw: its inputs now, the reference's outputs and the anchor's when they are asked for."""

    def __init__(self, draws: "ForeignDraws", seed: int, inputs: tuple):
        self.draws, self.seed, self.inputs = draws, seed, inputs
        self._own: tuple | None = None

    def own(self) -> tuple:
        if self._own is None:
            with self.draws.watch.running():
                self._own = self.draws.ask("own", self.seed)[0]
        return self._own

    def timed_own(self) -> float:
        """Run the baseline by the timing rule, in the referee; its milliseconds.

        What it returns is not kept where Inductor made it: what is due is what the reference itself gives.
        """
        with self.draws.watch.running():
            outputs, ms = self.draws.ask("timed", self.seed)
            if not self.draws.problem.compiled:
                self._own = outputs
        return ms

    def check(self, outputs: tuple) -> contract.Check:
        with self.draws.watch.running():
            due = self.draws.ask("anchor", self.seed)[0]
            return contract.check_outputs(self.draws.arrays.xp, self.draws.formats, outputs, self.own(), due)

    def near(self, outputs: tuple) -> contract.Check:
        """The same rule with the reference in the anchor's place: cheap enough for many draws."""
        with self.draws.watch.running():
            return contract.check_outputs(self.draws.arrays.xp, self.draws.formats, outputs, self.own(), self.own())


class ForeignDraws:
    """Draws without end, as `runner.draws.Draws` gives them; `close()` ends the referee.

    Raises (as do its draws):
        Broken: the problem itself cannot be run or breaks its own rules; no submission is to blame.
    """

    def __init__(self, problem: ForeignProblem, arrays: Arrays, seed: int | None, deadline: float):
        need_torch()
        self.problem, self.arrays, self.size, self.deadline = problem, arrays, "full", deadline
        self.watch = Stopwatch(arrays)
        self._seeds = None if seed is None else np.random.default_rng(seed)
        self.memory: SharedMemory | None = None
        self.child = Child("torch", arrays.device, {"USER": "nobody"}, module="runner.referee")
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        ready = self._receive()
        self.child.settle()
        if not ready.get("ready"):
            raise Broken(f"the referee could not start: {str(ready.get('fault'))[:600]}")
        path = Path(self.child.scratch) / "problem.py"
        path.write_bytes(self.problem.path.read_bytes())
        path.chmod(0o444)
        order = {"op": "open", "path": "problem.py", "kind": self.problem.kind, "compiled": self.problem.compiled}
        forms = self._exchange({**order, "seed": self._seed()})
        self._inputs, self._outputs = forms.get("inputs"), forms.get("outputs")
        self.formats = tuple(form[2] if form else "number" for form in self._outputs)
        for index, name in enumerate(self.formats):
            if name is None or name == "number":
                raise Broken(f"output {index} of the problem has a type that the contract does not know")
        widened = [_anchored(form) for form in self._outputs]
        self._slots = {"inputs": self._laid(self._inputs), "own": self._laid(self._outputs)}
        self._slots |= {"timed": self._slots["own"], "anchor": self._laid(widened)}
        n_bytes = max(_end(slots) for slots in self._slots.values())
        if n_bytes > _MAX_BYTES:
            raise Broken(f"one draw takes {n_bytes:,} bytes, {_MAX_BYTES:,} are the limit")
        self.memory = SharedMemory(n_bytes)
        self._exchange({"op": "memory"}, (self.memory.fd,))

    def next(self) -> ForeignDraw:
        with self.watch.running():
            seed = self._seed()
            return ForeignDraw(self, seed, self.ask("inputs", seed)[0])

    def between_calls(self) -> tuple:
        """Inputs of a new draw after the baseline ran on the one before, as in the timed phase."""
        self.next().timed_own()
        return self.next().inputs

    def forms(self) -> list[str]:
        """One line an input and an output, as `solve` gets and gives them."""
        lines = [f"input {i}: {_form(form)}" for i, form in enumerate(self._inputs)]
        return [*lines, *(f"output {i}: {_form(form)}" for i, form in enumerate(self._outputs))]

    def work(self) -> dict[str, Any]:
        """What any kernel must do: write the outputs. What it need not read of the inputs, nobody here knows."""
        return {"n_bytes": _end(self._slots["own"]), "n_operations": 0, "unit": "f32"}

    def ask(self, op: str, seed: int) -> tuple[tuple, float]:
        """Arrays that the referee made for that seed, copied, with the milliseconds that it took (if it was timed)."""
        slots = self._slots[op]
        answer = self._exchange({"op": op, "seed": seed, "offsets": [s.offset if s else 0 for s in slots]})
        told = [form and form[:2] for form in answer.get("arrays") or ()]
        due = [[list(s.shape), s.dtype] if s else None for s in slots]
        if told != due:
            raise Broken(f"the problem's {op} change their shapes or types between draws: {told} after {due}"[:400])
        plain = answer.get("plain") or [None] * len(slots)
        values = tuple(self._copied(s) if s else p for s, p in zip(slots, plain, strict=True))
        return values, float(answer.get("ms") or 0.0)

    def _copied(self, slot: Slot) -> Any:
        if not slot.n_bytes:
            return self.arrays.xp.zeros(slot.shape, dtype_of(slot.dtype))
        start = CONTROL_BYTES + slot.offset
        return self.arrays.xp.array(np.ndarray(slot.shape, dtype_of(slot.dtype), self.memory.map, start))

    def _laid(self, forms: list) -> list[Slot | None]:
        slots: list[Slot | None] = []
        at = 0
        for form in forms:
            slots.append(Slot(tuple(form[0]), form[1], at) if form else None)
            at += -(-max(slots[-1].n_bytes, 1) // ALIGN) * ALIGN if slots[-1] else 0
        return slots

    def _seed(self) -> int:
        return secrets.randbits(62) if self._seeds is None else int(self._seeds.integers(2**62))

    def _exchange(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> dict[str, Any]:
        try:
            self.child.lines.send(message, fds)
        except Gone:
            raise self._gone() from None
        answer = self._receive()
        if answer.get("fault"):
            raise Broken(f"problem {self.problem.path.name}: {str(answer['fault'])[:700]}")
        return answer

    def _receive(self) -> dict[str, Any]:
        try:
            return self.child.lines.receive(self.deadline, self.child.look)
        except Gone:
            raise self._gone() from None
        except (Late, Garbled) as fault:
            raise Broken(f"problem {self.problem.path.name}: {fault}") from None

    def _gone(self) -> Broken:
        return Broken(f"the referee of {self.problem.path.name} {self.child.exit_words()}: {self.child.tail()[-400:]}")

    def close(self) -> None:
        self.child.close()
        if self.memory:
            self.memory.close()


def _form(form: list | None) -> str:
    return f"{form[2] or form[1]} {form[0]}" if form else "a plain number"


def _anchored(form: list) -> list:
    return [form[0], "float64", None] if form[2] in ("f32", "bf16", "f16") else form


def _end(slots: list[Slot | None]) -> int:
    return max((s.offset + s.n_bytes for s in slots if s), default=0)
