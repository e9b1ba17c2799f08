"""Float8 and nvfp4 codes: decode and encode agree with ml_dtypes on every code and between all neighbours."""

import ml_dtypes
import numpy as np
import pytest

from problems import formats, precision
from runner import contract

NAMES = ("e4m3", "e5m2", "e2m1")
N_CODES = {"e4m3": 256, "e5m2": 256, "e2m1": 16}


def outside(name: str) -> np.ndarray:
    """Every code's value by ml_dtypes."""
    return np.arange(N_CODES[name], dtype=np.uint8).view(contract.CODE_TYPES[name]).astype(np.float64)


def dense() -> np.ndarray:
    """Every float32 with few mantissa bits, and their neighbours one step of float32 away, both signs."""
    top = np.arange(0, 1 << 16, dtype=np.uint32) << 16
    values = np.concatenate((top, top + 1, top - 1)).view(np.float32)
    return values[np.isfinite(values)]


@pytest.mark.parametrize("name", NAMES)
def test_every_code_decodes_as_in_ml_dtypes(name):
    codes = np.arange(N_CODES[name], dtype=np.uint8)
    got = formats.decode(np, name, codes)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, outside(name))
    number = ~np.isnan(got)
    np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(outside(name)[number]))


@pytest.mark.parametrize("name", NAMES)
def test_every_finite_code_survives_a_round_trip(name):
    codes = np.arange(N_CODES[name], dtype=np.uint8)
    finite = codes[np.isfinite(outside(name))]
    np.testing.assert_array_equal(formats.encode(np, name, formats.decode(np, name, finite)), finite)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", (np.float32, np.float64))
def test_encode_rounds_as_ml_dtypes_within_the_range(name, kind):
    values = dense().astype(kind)
    values = values[np.abs(values) <= formats.LARGEST[name]]
    due = values.astype(contract.CODE_TYPES[name]).view(np.uint8) & (N_CODES[name] - 1)
    np.testing.assert_array_equal(formats.encode(np, name, values), due)


@pytest.mark.parametrize("name", NAMES)
def test_encode_saturates_and_keeps_nan(name):
    largest = np.float32(formats.LARGEST[name])
    values = np.array([largest * 1.2, np.inf, 3e38, -largest * 1.2, -np.inf], np.float32)
    decoded = formats.decode(np, name, formats.encode(np, name, values))
    np.testing.assert_array_equal(decoded, np.array([1, 1, 1, -1, -1]) * largest)
    nan = formats.decode(np, name, formats.encode(np, name, np.array([np.nan], np.float32)))
    assert nan == 0 if name == "e2m1" else np.isnan(nan)


def test_float64_input_is_rounded_once():
    # Just above the midpoint of 1 and 1.125: float32 would first round it onto the tie, which goes to the even 1.
    value = np.array([1.0625 + 2.0**-40])
    assert formats.decode(np, "e4m3", formats.encode(np, "e4m3", value)) == 1.125
    assert formats.decode(np, "e4m3", formats.encode(np, "e4m3", value.astype(np.float32))) == 1.0


@pytest.mark.parametrize("mode, kind", (("own", np.float32), ("anchor", np.float64), ("half", ml_dtypes.bfloat16)))
def test_decode_returns_the_type_of_the_mode_without_loss(mode, kind):
    codes = np.arange(256, dtype=np.uint8)
    with precision.computing(mode):
        got = formats.decode(np, "e4m3", codes)
    assert got.dtype == kind
    np.testing.assert_array_equal(got.astype(np.float64), outside("e4m3"))


def test_nvfp4_is_the_product_of_code_block_scale_and_tensor_scale():
    rng = np.random.default_rng(5)
    codes = rng.integers(0, 16, (3, 64)).astype(np.uint8)
    scales = rng.integers(0, 127, (3, 4)).astype(np.uint8)
    due = codes.view(ml_dtypes.float4_e2m1fn).astype(np.float64).reshape(3, 4, 16)
    due = due * scales.view(ml_dtypes.float8_e4m3fn).astype(np.float64)[..., None] * 0.25
    got = formats.decode_nvfp4(np, codes, scales, np.array([0.25], np.float32))
    np.testing.assert_array_equal(got, due.reshape(3, 64))


def test_nvfp4_round_trip_errs_by_half_a_step_of_its_block_at_most():
    rng = np.random.default_rng(6)
    x = (rng.standard_normal((8, 64)) * np.exp(rng.standard_normal((8, 1)))).astype(np.float32)
    x[2, 16:32] = 0
    unit = np.float32(np.abs(x).max() / (448 * 6))
    codes, scales = formats.encode_nvfp4(np, x, unit)
    back = formats.decode_nvfp4(np, codes, scales, unit)
    # The widest gap of e2m1 is 2 (4 to 6); a block scale that was rounded down by 1/16 clips 6 by as much again.
    step = formats.decode(np, "e4m3", scales).repeat(16, axis=-1) * unit
    assert (np.abs(back - x) <= step * (1 + 6 / 16 * 1.001)).all()
    assert not codes[2, 16:32].any() and not back[2, 16:32].any()


def test_block_scales_cover_their_rows_and_columns():
    codes = np.full((5, 7), 0x38, np.uint8)  # 1.0 in e4m3
    scales = np.arange(6, dtype=np.float32).reshape(2, 3)
    got = formats.decode_blocks(np, "e4m3", codes, scales, (4, 3))
    np.testing.assert_array_equal(got, scales[np.arange(5)[:, None] // 4, np.arange(7)[None] // 3])


def test_groups_round_trip_within_half_a_step_and_reach_the_largest_code():
    rng = np.random.default_rng(7)
    x = (rng.standard_normal((5, 256)) * np.exp(3 * rng.standard_normal((5, 1)))).astype(np.float32)
    x[3, 128:] = 0
    codes, scales = formats.encode_groups(np, "e4m3", x, 128)
    assert scales.shape == (5, 2) and scales[3, 1] == 1
    back = formats.decode_groups(np, "e4m3", codes, scales)
    # Three mantissa bits: 1/16 of the value at most, and half of the smallest step (2^-9) below the normal range.
    assert (np.abs(back - x) <= np.maximum(np.abs(x) / 16, scales.repeat(128, axis=1) * 2.0**-10) * 1.0001).all()
    assert (np.abs(formats.decode(np, "e4m3", codes)).reshape(5, 2, 128).max(-1) == 448 * (scales != 1)).all()
