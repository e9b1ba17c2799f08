"""At which precision a reference computes: its own types, the float64 anchor, or half precision on purpose."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import ml_dtypes
import numpy as np

from problems import tensor_cores

TYPES = {
    "bf16": np.dtype(ml_dtypes.bfloat16), "f16": np.dtype(np.float16), "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64), "i32": np.dtype(np.int32), "i64": np.dtype(np.int64), "u8": np.dtype(np.uint8),
    "bool": np.dtype(np.bool_),
}
HALVES = (TYPES["bf16"], TYPES["f16"])
_MODES = ("own", "anchor", "half", "tiled")
TILE = 32
_mode: ContextVar[str] = ContextVar("precision", default="own")


@contextmanager
def computing(mode: str) -> Iterator[None]:
    """Evaluate references in `own` types, as the float64 `anchor`, or as a submission may: in `half` or `tiled`.

    `half` is what a wrong submission does: bfloat16 where float32 is due. The contract must refuse it. `tiled` is what
    a right one does: float32 sums in another order, tile by tile from the far end. The contract must let it pass.
    """
    if mode not in _MODES:
        raise ValueError(f"{mode!r}: a precision mode is one of {', '.join(_MODES)}")
    token = _mode.set(mode)
    try:
        yield
    finally:
        _mode.reset(token)


def is_float(x: Any) -> bool:
    """Whether an array (or scalar) holds floating point numbers, bfloat16 included."""
    dtype = np.dtype(getattr(x, "dtype", type(x)))
    return dtype.kind == "f" or dtype in HALVES


def wide_type() -> np.dtype:
    """The type in which sums are due: float32; float64 in the anchor; bfloat16 in the half-precision mutant."""
    return {"anchor": TYPES["f64"], "half": TYPES["bf16"]}.get(_mode.get(), TYPES["f32"])


def wide(x: Any) -> Any:
    """`x` in the type in which sums and elementwise mathematics are due; float64 input never loses digits."""
    kind = wide_type()
    if kind == TYPES["f32"] and x.dtype == TYPES["f64"]:
        return x
    return x.astype(kind, copy=False)


def narrow(x: Any, name: str) -> Any:
    """`x` rounded to the named type (`bf16`, `f32` …), except in the anchor, which never rounds floats."""
    kind = TYPES[name]
    if _mode.get() == "anchor" and (kind.kind == "f" or kind in HALVES):
        return x.astype(TYPES["f64"], copy=False)
    return x.astype(kind, copy=False)


def matmul(xp: Any, a: Any, b: Any) -> Any:
    """Matrix product over the last axis of `a` and the last but one of `b`, summed in the wide type, which it returns.

    Half-precision operands go to the tensor cores (float32 sums, not rounded afterwards), so that a reference's time is
    a fair baseline; NumPy has no such product and multiplies in float32.
    """
    mode = _mode.get()
    if mode == "half":
        return _matmul_half(xp, a, b)
    if mode == "own" and xp.__name__ == "cupy" and a.dtype == b.dtype and a.dtype in HALVES:
        return tensor_cores.matmul(xp, a, b)
    a, b = wide(a), wide(b)
    if mode == "tiled":
        starts = range(a.shape[-1] // TILE * TILE, -1, -TILE)
        return sum(xp.matmul(a[..., k:k + TILE], b[..., k:k + TILE, :]) for k in starts)
    return xp.matmul(a, b)


def _matmul_half(xp: Any, a: Any, b: Any) -> Any:
    # One product at a time, rounded to bfloat16 after each addition: what a half-precision accumulator does.
    kind = TYPES["bf16"]
    a32, b32 = a.astype(TYPES["f32"]), b.astype(TYPES["f32"])
    total = None
    for k in range(a.shape[-1]):
        term = a32[..., :, k:k + 1] * b32[..., k:k + 1, :]
        total = term.astype(kind) if total is None else (total.astype(TYPES["f32"]) + term).astype(kind)
    return total


def total(xp: Any, x: Any, axis: int = -1, keepdims: bool = True) -> Any:
    """Sum over one axis in the wide type; in the half-precision mutant one term at a time in bfloat16."""
    if _mode.get() == "tiled":
        x = xp.moveaxis(wide(x), axis, -1)
        starts = range(x.shape[-1] // TILE * TILE, -1, -TILE)
        tiled = sum(xp.sum(x[..., k:k + TILE], axis=-1) for k in starts)
        return xp.expand_dims(tiled, axis) if keepdims else tiled
    if _mode.get() != "half":
        return xp.sum(wide(x), axis=axis, keepdims=keepdims)
    moved = xp.moveaxis(x.astype(TYPES["f32"]), axis, 0)
    running = xp.zeros(moved.shape[1:], TYPES["bf16"])
    for k in range(moved.shape[0]):
        running = (running.astype(TYPES["f32"]) + moved[k]).astype(TYPES["bf16"])
    return xp.expand_dims(running, axis) if keepdims else running


def upcast(inputs: tuple) -> tuple:
    """The same inputs with every floating array in float64: what the anchor is computed from."""
    return tuple(x.astype(TYPES["f64"]) if hasattr(x, "astype") and is_float(x) else x for x in inputs)
