"""The accuracy rule and the timing rule of a verdict, as pure functions of arrays and times."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from runner import digests

N_CORRECTNESS_DRAWS = 5
N_WARMUP_DRAWS = 10
N_TIMED_DRAWS = 50
N_TIMED_CHECKED = 3
ERROR_FACTOR = 3.0
MAX_KERNEL_BYTES = 300_000
MAX_EVAL_S = 600.0
BUDGET_S = 40 * 60.0
BUDGET_SUBMISSIONS = 10
CODE_FLIP_FACTOR = 3.0
CODE_FLIP_FLOOR = 0.002

CODE_TYPES = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "e2m1": ml_dtypes.float4_e2m1fn}
FLOAT_TYPES = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}
EXACT_TYPES = {
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8),
    "bool": np.dtype(np.bool_),
}


@dataclass(frozen=True)
class Check:
    """Whether one set of outputs keeps the accuracy rule; `error_ratio` is the worst error ÷ its limit (≤ 1 passes)."""

    ok: bool
    error_ratio: float | None = None
    reason: str | None = None


def settings() -> dict[str, Any]:
    """Every figure of the contract, for the record."""
    return {
        "n_correctness_draws": N_CORRECTNESS_DRAWS,
        "n_warmup_draws": N_WARMUP_DRAWS,
        "n_timed_draws": N_TIMED_DRAWS,
        "n_timed_checked": N_TIMED_CHECKED,
        "error_factor": ERROR_FACTOR,
        "max_kernel_bytes": MAX_KERNEL_BYTES,
        "max_eval_s": MAX_EVAL_S,
        "code_flip_factor": CODE_FLIP_FACTOR,
        "code_flip_floor": CODE_FLIP_FLOOR,
        "timing": "end to end, cold L2, median",
    }


def digest() -> str:
    return digests.of_value(settings())


def output_type(name: str) -> np.dtype:
    """The array type that an output format name (`bf16`, `i32`, `e4m3` …) stands for; codes are uint8."""
    if name in CODE_TYPES:
        return np.dtype(np.uint8)
    return FLOAT_TYPES.get(name) or EXACT_TYPES[name]


def epsilon(name: str) -> float:
    """Spacing of 1.0 in a float format: 2⁻⁷ for bf16, 2⁻¹⁰ for f16, 2⁻²³ for f32."""
    return float(ml_dtypes.finfo(FLOAT_TYPES[name]).eps)


def as_tuple(outputs: Any) -> tuple:
    """A single array as a tuple of one; tuples and lists as tuples."""
    return tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)


def check_outputs(xp: Any, formats: Sequence[str], got: Any, reference: Any, anchor: Any) -> Check:
    """Apply the accuracy rule to all outputs of one draw.

    Float outputs stay within 3 × max(|reference − anchor|, eps × max|anchor|) of the float64 anchor, as a maximum over
    the output; integers and booleans are equal; float8/float4 codes are at most one step off the anchor's code, and
    no more than max(3 × the reference's share, 0.2%) of them are off at all.

    Args:
        xp: the array module of all arrays.
        formats: one format name per output.
        got, reference, anchor: an array or a tuple of arrays; `anchor` computed in float64.
    """
    got, reference, anchor = as_tuple(got), as_tuple(reference), as_tuple(anchor)
    if len(got) != len(formats):
        return Check(False, None, f"{len(got)} outputs returned, {len(formats)} are due")
    worst = 0.0
    for index, name in enumerate(formats):
        check = _check_one(xp, name, got[index], reference[index], anchor[index])
        if not check.ok:
            return Check(False, check.error_ratio, f"output {index} ({name}): {check.reason}")
        worst = max(worst, check.error_ratio or 0.0)
    return Check(True, worst)


def _check_one(xp: Any, name: str, got: Any, reference: Any, anchor: Any) -> Check:
    if type(got) is not xp.ndarray:
        return Check(False, None, f"a {type(got).__name__} was returned, a plain {xp.__name__} array is due")
    if tuple(got.shape) != tuple(anchor.shape):
        return Check(False, None, f"shape {tuple(got.shape)}, {tuple(anchor.shape)} is due")
    if got.dtype != output_type(name):
        return Check(False, None, f"type {got.dtype}, {output_type(name)} is due")
    if anchor.size == 0:
        return Check(True, 0.0)
    if name in CODE_TYPES:
        return _check_codes(xp, name, got, reference, anchor)
    if name in EXACT_TYPES:
        n_wrong = int((got != anchor.astype(got.dtype)).sum())
        return Check(True, 0.0) if not n_wrong else Check(False, None, f"{n_wrong} of {got.size} values differ")
    return _check_floats(xp, name, got, reference, anchor)


def _check_floats(xp: Any, name: str, got: Any, reference: Any, anchor: Any) -> Check:
    got64, ref64, anchor64 = (x.astype(np.float64) for x in (got, reference, anchor))
    finite = xp.isfinite(anchor64)
    # Where the anchor is infinite (the log-sum-exp of an empty row) equality is due; where it is NaN nothing can be.
    if bool(xp.isnan(anchor64).any()):
        return Check(False, None, "the anchor is NaN: the problem's inputs are broken")
    if not bool((xp.isfinite(got64) == finite).all()) or not bool((finite | (got64 == anchor64)).all()):
        return Check(False, float("inf"), "NaN or infinity where a number is due (or the reverse)")
    zero = xp.zeros_like(anchor64)
    anchor64 = xp.where(finite, anchor64, zero)
    error = float(xp.abs(xp.where(finite, got64, zero) - anchor64).max())
    slack = float(xp.abs(xp.where(finite, ref64, zero) - anchor64).max())
    if not np.isfinite(slack):
        slack = 0.0
    limit = ERROR_FACTOR * max(slack, epsilon(name) * float(xp.abs(anchor64).max()))
    if error <= limit:
        return Check(True, error / limit if limit > 0 else 0.0)
    ratio = error / limit if limit > 0 else float("inf")
    return Check(False, ratio, f"error {error:.3e} exceeds its limit {limit:.3e}")


def code_steps(xp: Any, name: str, codes: Any) -> Any:
    """Place of each float8/float4 code on the ordered line of its format's values, as int32; NaN codes at 1000."""
    every = np.arange(256 if name != "e2m1" else 16, dtype=np.uint8)
    values = every.view(CODE_TYPES[name]) if name != "e2m1" else every.astype(np.uint8).view(np.uint8)
    floats = (
        values.astype(np.float64)
        if name != "e2m1"
        else np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float64)
    )
    place = np.full(256, 1000, np.int32)
    ordered = np.unique(floats[~np.isnan(floats)])
    known = ~np.isnan(floats)
    place[: len(every)][known] = np.searchsorted(ordered, floats[known]).astype(np.int32)
    return xp.asarray(place)[codes]


def _check_codes(xp: Any, name: str, got: Any, reference: Any, anchor: Any) -> Check:
    due = code_steps(xp, name, anchor)
    off = xp.abs(code_steps(xp, name, got) - due)
    if int(off.max()) > 1:
        return Check(False, float("inf"), f"{int((off > 1).sum())} of {got.size} codes are more than one step off")
    share = float((off > 0).mean())
    slack = float((code_steps(xp, name, reference) != due).mean())
    limit = max(CODE_FLIP_FACTOR * slack, CODE_FLIP_FLOOR)
    if share <= limit:
        return Check(True, share / limit)
    return Check(False, share / limit, f"{share:.2%} of the codes are one step off, {limit:.2%} may be")


def median_ms(samples_ms: Sequence[float]) -> float:
    """The figure of a verdict: the median of the timed draws, in milliseconds."""
    return float(statistics.median(samples_ms))


def speedup(reference_ms: float, kernel_ms: float) -> float:
    """Reference ÷ kernel, uncapped."""
    return reference_ms / kernel_ms
