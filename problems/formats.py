"""Exact decode and round-to-nearest-even encode of float8 (e4m3, e5m2) and nvfp4 (e2m1, two scale levels) codes.

Codes are uint8, one code a byte, as no array module but NumPy with ml_dtypes knows these types. Decoding reads a table;
encoding counts how many of the midpoints between neighbouring values lie below the magnitude. Both work on any array
module and in any precision mode.

nvfp4: a row is cut into blocks of 16; a value is `e2m1 x block scale (e4m3) x tensor scale (float32)`.
"""

from functools import cache
from typing import Any

import numpy as np

from problems import precision

LARGEST = {"e4m3": 448.0, "e5m2": 57344.0, "e2m1": 6.0}
BLOCK = 16                                    # values under one nvfp4 block scale
_BITS = {"e4m3": (4, 3, 7), "e5m2": (5, 2, 15), "e2m1": (2, 1, 1)}      # exponent bits, mantissa bits, exponent bias


@cache
def table(name: str) -> np.ndarray:
    """Value of every code of `e4m3`, `e5m2` or `e2m1`: float64 [256] or [16]; NaN where the code is no number.

    e4m3 has no infinities and one NaN a sign (0x7f, 0xff); e5m2 follows IEEE 754; e2m1 has neither (OCP MX v1.0).
    """
    n_exponent, n_mantissa, bias = _BITS[name]
    codes = np.arange(1 << (1 + n_exponent + n_mantissa))
    mantissa = codes & ((1 << n_mantissa) - 1)
    exponent = (codes >> n_mantissa) & ((1 << n_exponent) - 1)
    sign = np.where(codes >> (n_exponent + n_mantissa), -1.0, 1.0)
    fraction = mantissa / (1 << n_mantissa) + (exponent > 0)
    value = sign * fraction * 2.0 ** (np.maximum(exponent, 1) - bias)
    top = (1 << n_exponent) - 1
    if name == "e4m3":
        value[(exponent == top) & (mantissa == 7)] = np.nan
    if name == "e5m2":
        value[(exponent == top) & (mantissa > 0)] = np.nan
        value[(exponent == top) & (mantissa == 0)] = sign[(exponent == top) & (mantissa == 0)] * np.inf
    value.setflags(write=False)
    return value


def decode(xp: Any, name: str, codes: Any) -> Any:
    """Values of uint8 `codes`, same shape, exact, in the wide type (float32; float64 in the anchor)."""
    return xp.asarray(table(name).astype(precision.wide_type()))[codes]


def encode(xp: Any, name: str, x: Any) -> Any:
    """uint8 codes of the values nearest to `x`, ties to even; beyond the largest value, infinities too, it saturates.

    NaN becomes the NaN code of e4m3 and e5m2, and +0 in e2m1, which has none. The sign of zero is kept. float64 input
    is rounded once, from float64.
    """
    magnitudes, middles = _magnitudes(name)
    x = x if x.dtype == precision.TYPES["f64"] else x.astype(precision.TYPES["f32"], copy=False)
    size = xp.abs(x)
    below = xp.asarray(middles.astype(x.dtype))
    low = xp.searchsorted(below, size.ravel(), side="left").reshape(x.shape)      # a tie goes down ...
    high = xp.searchsorted(below, size.ravel(), side="right").reshape(x.shape)    # ... or up: the even code of the two
    code = xp.where(low % 2 == 0, low, high)
    code = xp.minimum(code, len(magnitudes) - 1).astype(xp.uint8)
    sign_bit = 1 << (sum(_BITS[name][:2]))
    code = xp.where(xp.signbit(x), code + xp.uint8(sign_bit), code).astype(xp.uint8)
    return xp.where(xp.isnan(x), xp.uint8(0 if name == "e2m1" else 0x7f), code).astype(xp.uint8)


@cache
def _magnitudes(name: str) -> tuple[np.ndarray, np.ndarray]:
    # Non-negative finite values in code order, and the midpoints between neighbours: exact in float32 and float64.
    values = table(name)[: len(table(name)) // 2]
    values = values[np.isfinite(values)]
    return values, (values[1:] + values[:-1]) / 2


def draw(xp: Any, rng: Any, name: str, shape: tuple[int, ...], mean: float = 0.0, std: float = 1.0) -> Any:
    """Codes of normally distributed values, for input recipes."""
    return encode(xp, name, rng.standard_normal(shape, dtype=xp.float32) * xp.float32(std) + xp.float32(mean))


def decode_blocks(xp: Any, name: str, codes: Any, scales: Any, block: tuple[int, int]) -> Any:
    """Values of float8 `codes` [n, k] with one scale a `block` (rows, columns): `scales` [ceil n/r, ceil k/c]."""
    spread = xp.repeat(xp.repeat(precision.wide(scales), block[0], axis=0), block[1], axis=1)
    return decode(xp, name, codes) * spread[: codes.shape[0], : codes.shape[1]]


def encode_groups(xp: Any, name: str, x: Any, group: int) -> tuple[Any, Any]:
    """Quantise `x` [..., k] with one scale a row and `group` of columns: max|group| / largest value, 1 for zeros.

    Returns codes [..., k] and scales [..., k / group] in the type of `x` (float32 at least): value = code * scale.
    """
    kind = precision.TYPES["f64"] if x.dtype == precision.TYPES["f64"] else precision.TYPES["f32"]
    groups = x.astype(kind).reshape(*x.shape[:-1], x.shape[-1] // group, group)
    largest = xp.max(xp.abs(groups), axis=-1)
    scales = xp.where(largest > 0, largest / kind.type(LARGEST[name]), kind.type(1))
    return encode(xp, name, groups / scales[..., None]).reshape(x.shape), scales


def decode_groups(xp: Any, name: str, codes: Any, scales: Any) -> Any:
    """Values of `codes` [..., k] with `scales` [..., k / group], in the wide type."""
    return decode(xp, name, codes) * xp.repeat(precision.wide(scales), codes.shape[-1] // scales.shape[-1], axis=-1)


def decode_nvfp4(xp: Any, codes: Any, block_scales: Any, tensor_scale: Any) -> Any:
    """Values of nvfp4: e2m1 `codes` [..., k], e4m3 `block_scales` [..., k / 16], `tensor_scale` [] or [1], float32.

    Returns the wide type. e2m1 x e4m3 is exact in float32 (and in bfloat16); the tensor scale comes last.
    """
    spread = xp.repeat(decode(xp, "e4m3", block_scales), BLOCK, axis=-1)
    return decode(xp, "e2m1", codes) * spread * precision.wide(xp.asarray(tensor_scale)).reshape(())


def encode_nvfp4(xp: Any, x: Any, tensor_scale: Any) -> tuple[Any, Any]:
    """Quantise `x` [..., k]: the block scale is the e4m3 nearest to max|block| / 6 / tensor_scale, then the values.

    Returns e2m1 codes [..., k] and e4m3 block scales [..., k / 16]; a block whose scale rounds to 0 has codes 0.
    """
    kind = precision.TYPES["f64"] if x.dtype == precision.TYPES["f64"] else precision.TYPES["f32"]
    unit = xp.asarray(tensor_scale).astype(kind).reshape(())
    blocks = x.astype(kind).reshape(*x.shape[:-1], x.shape[-1] // BLOCK, BLOCK)
    scales = encode(xp, "e4m3", xp.max(xp.abs(blocks), axis=-1) / kind.type(LARGEST["e2m1"]) / unit)
    step = xp.asarray(table("e4m3").astype(kind))[scales] * unit
    zero = step == 0
    codes = encode(xp, "e2m1", blocks / xp.where(zero, 1, step).astype(kind)[..., None])
    return xp.where(zero[..., None], xp.uint8(0), codes).reshape(x.shape), scales
