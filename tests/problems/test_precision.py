"""Precision modes: what each computes in, against sums done outside."""

import math

import ml_dtypes
import numpy as np
import pytest

from problems import precision

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 700)).astype(np.float32) + 1


def test_every_mode_sums_in_its_own_type():
    types = {}
    for mode in ("own", "anchor", "half", "tiled"):
        with precision.computing(mode):
            types[mode] = (precision.total(np, X).dtype, precision.matmul(np, X, X.T).dtype, precision.wide(X).dtype)
    bf16 = np.dtype(ml_dtypes.bfloat16)
    due = {"own": np.float32, "tiled": np.float32, "anchor": np.float64, "half": bf16}
    assert types == {mode: (kind,) * 3 for mode, kind in due.items()}


@pytest.mark.parametrize("mode, rtol", (("own", 1e-6), ("tiled", 1e-6), ("anchor", 1e-14)))
@pytest.mark.parametrize("n", (1, 31, 32, 33, 700))
def test_sums_and_products_are_those_of_exact_summation(mode, rtol, n):
    x = X[:, :n].astype(np.float64)
    with precision.computing(mode):
        total = precision.total(np, X[:, :n].astype(np.float64 if mode == "anchor" else np.float32))[:, 0]
        product = precision.matmul(np, X[:, :n], X[:, :n].T)
    np.testing.assert_allclose(total, [math.fsum(row) for row in x], rtol=rtol)
    np.testing.assert_allclose(product, [[math.fsum(a * b) for b in x] for a in x], rtol=max(rtol, 1e-13))


def test_tiled_sums_are_not_bit_for_bit_the_plain_ones():
    own = precision.matmul(np, X, X.T)
    with precision.computing("tiled"):
        assert (precision.matmul(np, X, X.T) != own).any()


def test_half_sums_of_ones_stall_at_256():
    ones = np.ones((1, 1000), np.float32)
    with precision.computing("half"):
        assert precision.total(np, ones) == 256 and precision.matmul(np, ones, ones.T) == 256


@pytest.mark.parametrize("mode", ("own", "half", "tiled"))
@pytest.mark.parametrize("axis", (0, 1, -1))
def test_total_keeps_or_drops_the_axis_like_numpy(mode, axis):
    with precision.computing(mode):
        kept, dropped = precision.total(np, X, axis=axis), precision.total(np, X, axis=axis, keepdims=False)
    assert kept.shape == X.sum(axis=axis, keepdims=True).shape and dropped.shape == X.sum(axis=axis).shape
    np.testing.assert_array_equal(kept.ravel(), dropped.ravel())


def test_anchor_never_rounds_and_a_mode_ends_with_its_block():
    value = np.array([1 + 2.0**-20])
    with precision.computing("anchor"):
        assert precision.narrow(value, "bf16")[0] == value[0]
    assert precision.narrow(value, "bf16")[0] == 1
    with pytest.raises(ValueError, match="precision mode"), precision.computing("quarter"):
        pass


def test_upcast_touches_floats_alone():
    bf16, codes, count = X.astype(ml_dtypes.bfloat16), np.arange(3, dtype=np.uint8), 5
    up = precision.upcast((bf16, codes, count))
    assert up[0].dtype == np.float64 and up[1] is codes and up[2] == 5
    np.testing.assert_array_equal(up[0], bf16.astype(np.float64))
