"""The quality bar of a problem: what the accuracy rule must refuse, what a reference must keep, and what it costs."""

import time
import tracemalloc
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from problems import formats, precision
from runner import catalogue, contract
from runner.catalogue import Problem
from runner.contract import Check

MUTANTS = ("zeros", "constant", "identity_copy", "axis_shift", "half_accumulation")
UNITS = ("bf16", "f16", "f32", "fp8", "int")
SMALL_S, SMALL_BYTES = 2.0, 1e9
FLOOR_MS = (0.02, 20.0)


@dataclass(frozen=True)
class Device:
    """What a device can do at best: bytes a second from its memory, operations a second by unit."""

    name: str
    bytes_per_s: float
    operations_per_s: dict[str, float]


# Copy rate as measured (docs of the runner); dense rates that a good kernel reaches, below the data sheet's peaks.
H200 = Device("NVIDIA H200", 3.97e12, {"bf16": 7e14, "f16": 7e14, "f32": 6e13, "fp8": 1.3e15, "int": 3e13})


@dataclass(frozen=True)
class Draw:
    """One draw of a problem: its inputs, the reference's outputs and the float64 anchor's, as tuples."""

    inputs: tuple
    own: tuple
    anchor: tuple


@dataclass(frozen=True)
class Quality:
    """What the quality bar found on one problem; it holds when `faults` is empty."""

    number: int
    name: str
    small_s: float
    small_bytes: int
    floor_ms: float
    tiled: Check | None = None
    refusals: dict[str, Check] = field(default_factory=dict)
    faults: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.faults


def anchor(problem: Problem, xp: Any, inputs: tuple) -> tuple:
    """The reference in float64 on the same inputs."""
    with precision.computing("anchor"):
        return contract.as_tuple(problem.module.reference(xp, *precision.upcast(inputs)))


def tiled(problem: Problem, xp: Any, inputs: tuple) -> tuple:
    """The reference with its float32 sums in another order: what a right submission returns."""
    with precision.computing("tiled"):
        return contract.as_tuple(problem.module.reference(xp, *inputs))


def draw(problem: Problem, xp: Any, seed: int, size: str = "small") -> Draw:
    """Inputs of that seed with the reference's outputs and the anchor's."""
    inputs = tuple(problem.module.make_inputs(xp, generator(xp, seed), size))
    return Draw(inputs, contract.as_tuple(problem.module.reference(xp, *inputs)), anchor(problem, xp, inputs))


def generator(xp: Any, seed: int) -> Any:
    """The array module's own random generator."""
    return xp.random.default_rng(seed)


def floor_ms(work: dict[str, Any], device: Device = H200) -> float:
    """Least time of a good kernel in milliseconds: the larger of traffic and arithmetic at the device's rates."""
    return 1e3 * max(work["n_bytes"] / device.bytes_per_s, work["n_operations"] / device.operations_per_s[work["unit"]])


def listing(root: Path | None = None, device: Device = H200) -> list[dict[str, Any]]:
    """One row a problem: number, family, name, title, formats, full-size bytes, operations, unit and floor in ms."""
    rows = []
    for problem in catalogue.problems_in(root):
        work = problem.module.work("full")
        rows.append(
            {
                "number": problem.number,
                "family": problem.family,
                "name": problem.name,
                "title": problem.title,
                "formats": "+".join(problem.module.OUTPUTS),
                "n_bytes": int(work["n_bytes"]),
                "n_operations": int(work["n_operations"]),
                "unit": work["unit"],
                "floor_ms": floor_ms(work, device),
            }
        )
    return rows


def refusals(problem: Problem, xp: Any = np, seed: int = 0, drawn: Draw | None = None) -> dict[str, Check]:
    """What the accuracy rule says of five wrong answers at the small size; `ok` must be False for each.

    zeros, constant (the anchor's mean) and identity_copy (any input, cast and repeated) are put in the place of one
    output at a time, the others being right, and the mildest verdict counts. axis_shift is the reference on inputs
    whose main one is rolled by one along its last axis; half_accumulation is the reference with its sums in bfloat16,
    or the problem's own `half_mutant(xp, *inputs)` where nothing is summed.
    """
    drawn = drawn or draw(problem, xp, seed)
    names = problem.module.OUTPUTS
    halved = half(problem, xp, drawn.inputs)
    shifted = contract.as_tuple(problem.module.reference(xp, *_shifted(problem, xp, drawn.inputs)))
    return {
        "zeros": _alone(xp, names, drawn, lambda i: [xp.zeros_like(drawn.own[i])]),
        "constant": _alone(xp, names, drawn, lambda i: [_constant(xp, names[i], drawn.own[i], drawn.anchor[i])]),
        "identity_copy": _alone(xp, names, drawn, lambda i: _copies(xp, drawn.inputs, drawn.own[i])),
        "axis_shift": contract.check_outputs(xp, names, shifted, drawn.own, drawn.anchor),
        "half_accumulation": contract.check_outputs(xp, names, halved, drawn.own, drawn.anchor),
    }


def half(problem: Problem, xp: Any, inputs: tuple) -> tuple:
    """Outputs of the half-precision mutant, in the types that are due."""
    mutant = problem.get("half_mutant")
    if mutant:
        return contract.as_tuple(mutant(xp, *inputs))
    with precision.computing("half"):
        return contract.as_tuple(problem.module.reference(xp, *inputs))


def _alone(xp: Any, names: tuple, drawn: Draw, candidates: Any) -> Check:
    # The mildest verdict over every output replaced alone: one output that nothing guards is a hole.
    mildest = None
    for index in range(len(names)):
        for candidate in candidates(index):
            got = (*drawn.own[:index], candidate, *drawn.own[index + 1 :])
            check = contract.check_outputs(xp, names, got, drawn.own, drawn.anchor)
            if check.ok:
                return Check(True, check.error_ratio, f"output {index} ({names[index]}) passes")
            if mildest is None or (check.error_ratio or np.inf) < (mildest.error_ratio or np.inf):
                mildest = check
    return mildest


def _constant(xp: Any, name: str, own: Any, due: Any) -> Any:
    if name in contract.CODE_TYPES:
        mean = formats.decode(xp, name, due).astype(np.float32).mean()
        return xp.full_like(own, int(formats.encode(xp, name, xp.asarray(mean).reshape(1))[0]))
    wide = due.astype(np.float64)
    finite = xp.isfinite(wide)
    mean = float(xp.where(finite, wide, 0).sum() / max(1, int(finite.sum())))
    if name == "bool":
        return xp.full_like(own, mean >= 0.5)
    if name in contract.EXACT_TYPES:
        return xp.full_like(own, round(mean))
    # Infinities are given away: the rest must still be refused.
    return xp.where(finite, mean, wide).astype(own.dtype)


def _copies(xp: Any, inputs: tuple, own: Any) -> list:
    return [xp.resize(x.ravel(), own.shape).astype(own.dtype) for x in inputs if _is_array(x) and x.size]


def _is_array(x: Any) -> bool:
    return hasattr(x, "shape") and hasattr(x, "ravel")


def _shifted(problem: Problem, xp: Any, inputs: tuple) -> tuple:
    main = problem.get("MAIN_INPUT")
    if main is None:
        main = next(
            (
                i
                for i, x in enumerate(inputs)
                if _is_array(x) and x.size > 1 and (precision.is_float(x) or x.dtype == np.uint8)
            ),
            0,
        )
    x = inputs[main]
    axis = max((a for a in range(x.ndim) if x.shape[a] > 1), default=0)
    return (*inputs[:main], xp.roll(x, 1, axis=axis), *inputs[main + 1 :])


def quality(problem: Problem, xp: Any = np, seed: int = 0, device: Device = H200) -> Quality:
    """Run the whole bar on one problem at its small size: cost, determinism, purity, formats, work and refusals."""
    faults = list(_declared_faults(problem))
    module = problem.module
    inputs = tuple(module.make_inputs(xp, generator(xp, seed), "small"))
    before = [_bytes(x) for x in inputs]
    started = time.perf_counter()
    own = contract.as_tuple(module.reference(xp, *inputs))
    small_s = time.perf_counter() - started
    if [_bytes(x) for x in inputs] != before:
        faults.append("the reference changes its inputs")
    drawn = Draw(inputs, own, anchor(problem, xp, inputs))
    kept = contract.check_outputs(xp, module.OUTPUTS, own, own, drawn.anchor)
    if not kept.ok:
        faults.append(f"the reference breaks its own contract: {kept.reason}")
    right = contract.check_outputs(xp, module.OUTPUTS, tiled(problem, xp, inputs), own, drawn.anchor)
    if not right.ok:
        faults.append(f"float32 sums in another order are refused: {right.reason}")
    faults += _draw_faults(problem, xp, seed, inputs, before)
    verdicts = refusals(problem, xp, seed, drawn)
    faults += [f"{name} passes the accuracy rule" for name, check in verdicts.items() if check.ok]
    small_bytes = peak_bytes(problem, seed)
    if small_s > SMALL_S:
        faults.append(f"the small size takes {small_s:.1f} s, {SMALL_S:g} s is the limit")
    if small_bytes > SMALL_BYTES:
        faults.append(f"the small size takes {small_bytes / 1e9:.2f} GB, {SMALL_BYTES / 1e9:g} GB is the limit")
    floor = floor_ms(module.work("full"), device)
    if not FLOOR_MS[0] <= floor <= FLOOR_MS[1]:
        faults.append(f"the floor at full size is {floor:.4f} ms, {FLOOR_MS[0]:g} to {FLOOR_MS[1]:g} ms are due")
    return Quality(problem.number, problem.name, small_s, small_bytes, floor, right, verdicts, tuple(faults))


def _declared_faults(problem: Problem) -> list[str]:
    module, faults = problem.module, []
    for name in ("SOURCE", "SIZES", "OUTPUTS", "INVARIANT", "make_inputs", "reference", "work"):
        if not getattr(module, name, None):
            faults.append(f"{name} is missing or empty")
    if not (module.__doc__ or "").strip():
        faults.append("the docstring is missing")
    for size in ("full", "small"):
        if any(type(value) is not int for value in module.SIZES[size].values()):
            faults.append(f"SIZES[{size!r}] holds something other than plain integers")
        work = module.work(size)
        if not work["n_bytes"] > 0 or not work["n_operations"] > 0 or work["unit"] not in UNITS:
            faults.append(f"work({size!r}) is not positive or its unit is none of {', '.join(UNITS)}")
    return faults


def _draw_faults(problem: Problem, xp: Any, seed: int, inputs: tuple, before: list) -> list[str]:
    again = problem.module.make_inputs(xp, generator(xp, seed), "small")
    other = problem.module.make_inputs(xp, generator(xp, seed + 1), "small")
    faults = []
    if [_bytes(x) for x in again] != before:
        faults.append("one seed draws two different inputs")
    if [_bytes(x) for x in other] == before:
        faults.append("two seeds draw the same inputs")
    if [_form(x) for x in other] != [_form(x) for x in inputs]:
        faults.append("shapes or types differ between draws")
    return faults


def _bytes(x: Any) -> bytes:
    if not _is_array(x):
        return repr(x).encode()
    host = x.get() if hasattr(x, "get") else x
    return np.ascontiguousarray(host).tobytes()


def _form(x: Any) -> tuple:
    return (tuple(x.shape), str(x.dtype)) if _is_array(x) else (type(x).__name__,)


def peak_bytes(problem: Problem, seed: int = 0) -> int:
    """Most memory that the small size's inputs and reference hold at once on NumPy, in bytes."""
    tracemalloc.start()
    try:
        inputs = problem.module.make_inputs(np, generator(np, seed), "small")
        problem.module.reference(np, *inputs)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
