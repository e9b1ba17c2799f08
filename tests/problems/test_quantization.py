"""Quantised problems 52 to 61: the quality bar, and each formula with codes read by ml_dtypes, in float64."""

import ml_dtypes
import numpy as np
import pytest

from tests.problems.support import close, exact, f64, inputs, nearest, quality, rounded, softmax_mix

NUMBERS = range(52, 62)


@pytest.mark.parametrize("number", NUMBERS)
def test_keeps_the_quality_bar(number):
    assert quality(number).faults == ()


def fp8(codes) -> np.ndarray:
    return codes.view(ml_dtypes.float8_e4m3fn).astype(np.float64)


def fp4(codes) -> np.ndarray:
    return codes.view(ml_dtypes.float4_e2m1fn).astype(np.float64)


def through_fp8(x) -> np.ndarray:
    """`x` [n, k] rounded to e4m3 with one scale for 128 columns, group by group."""
    out = np.empty(x.shape)
    for i in range(0, x.shape[1], 128):
        part = f64(x[:, i : i + 128])
        scale = np.abs(part).max(1, keepdims=True) / 448
        out[:, i : i + 128] = rounded(part / scale, ml_dtypes.float8_e4m3fn) * scale
    return out


def through_fp4(x, unit: float) -> np.ndarray:
    """`x` [n, k] rounded to nvfp4, block by block."""
    out = np.zeros(x.shape)
    for i in range(0, x.shape[1], 16):
        part = f64(x[:, i : i + 16])
        scale = rounded(np.abs(part).max(1, keepdims=True) / 6 / unit, ml_dtypes.float8_e4m3fn) * unit
        ratio = np.divide(part, scale, out=np.zeros_like(part), where=scale > 0)
        out[:, i : i + 16] = rounded(ratio, ml_dtypes.float4_e2m1fn) * scale
    return out


def blocks(codes, scale) -> np.ndarray:
    """Weights of e4m3 codes with a scale for each 128 x 128, block by block."""
    out = fp8(codes)
    for r in range(scale.shape[0]):
        for c in range(scale.shape[1]):
            out[r * 128 : (r + 1) * 128, c * 128 : (c + 1) * 128] *= np.float64(scale[r, c])
    return out


def nvfp4(codes, scale, unit) -> np.ndarray:
    value = fp4(codes).reshape(*scale.shape, 16) * fp8(scale)[..., None]
    return value.reshape(codes.shape) * np.float64(unit[0])


def test_fp8_output_projection():
    x, w, w_scale = inputs(52)
    close(exact(52, x, w, w_scale)[0], through_fp8(x) @ blocks(w, w_scale).T)


def test_fp8_gate_and_up_sum_block_by_block():
    x, x_scale, gate_w, up_w, gate_scale, up_scale = drawn = inputs(53)
    for got, w, scale in zip(exact(53, *drawn), (gate_w, up_w), (gate_scale, up_scale), strict=True):
        due = np.zeros((x.shape[0], w.shape[0]))
        for c in range(x.shape[1] // 128):  # codes are multiplied first, scales come to each partial sum
            part = slice(c * 128, (c + 1) * 128)
            due += (fp8(x[:, part]) @ fp8(w[:, part]).T) * f64(x_scale[:, c : c + 1]) * f64(scale[:, c]).repeat(128)
        close(got, due)


def test_qkv_projection_norms_queries_and_keys_but_not_values():
    x, w, w_scale, q_weight, k_weight = drawn = inputs(54)
    q, k, v = exact(54, *drawn)
    y = (through_fp8(x) @ blocks(w, w_scale).T).reshape(len(x), 6, 128)

    def norm(y, weight):
        return y / np.sqrt((y**2).mean(-1, keepdims=True) + 1e-6) * f64(weight)

    close(q, norm(y[:, :4], q_weight))
    close(k, norm(y[:, 4:5], k_weight))
    close(v, y[:, 5:])


def test_embedding_projection_fills_the_image_tokens_in_order():
    features, embeds, is_image, w, w_scale, w_unit, x_unit, bias = drawn = inputs(55)
    (out,) = exact(55, *drawn)
    y = through_fp4(features, np.float64(x_unit[0])) @ nvfp4(w, w_scale, w_unit).T + f64(bias)
    due, i = f64(embeds), 0
    for t in range(len(embeds)):
        if is_image[t]:
            due[t], i = y[i], i + 1
    close(out, due)
    assert i == len(features) < len(embeds)


def test_latent_compression_ends_in_codes_of_the_normed_latent():
    x, x_scale, w, w_scale, norm_weight, latent_scale = drawn = inputs(56)
    codes, k_pe = exact(56, *drawn)
    y = (fp8(x) * f64(x_scale).repeat(128, axis=1)) @ blocks(w, w_scale).T
    c = y[:, :512]
    c = c / np.sqrt((c**2).mean(1, keepdims=True) + 1e-6) * f64(norm_weight) / np.float64(latent_scale[0])
    assert np.abs(c).max() < 448
    np.testing.assert_array_equal(codes, nearest(c, ml_dtypes.float8_e4m3fn))
    close(k_pe, y[:, 512:])


def test_attention_block_query_by_query():
    x, qkv_w, o_w, qkv_scale, o_scale, qkv_unit, o_unit, x_unit, a_unit, cos, sin = drawn = inputs(57)
    (out,) = exact(57, *drawn)
    n, hidden = x.shape[1:]
    turn = f64(cos) + 1j * f64(sin)
    b = 1
    qkv = (through_fp4(x[b], np.float64(x_unit[0])) @ nvfp4(qkv_w, qkv_scale, qkv_unit).T).reshape(n, 6, 128)
    rotary = (qkv[..., :64] + 1j * qkv[..., 64:]) * turn[:, None]
    turned = np.concatenate((rotary.real, rotary.imag), axis=-1)
    turned[:, :4] /= np.sqrt(128)
    mixed = np.array(
        [[softmax_mix(turned[: i + 1, 4] @ turned[i, h], qkv[: i + 1, 5])[0] for h in range(4)] for i in range(n)]
    )
    due = through_fp4(mixed.reshape(n, hidden), np.float64(a_unit[0])) @ nvfp4(o_w, o_scale, o_unit).T
    close(out[b], due)


def test_attention_scores_and_their_sum():
    q, k, q_scale, k_scale, q_unit, k_unit = drawn = inputs(58)
    scores, lse = exact(58, *drawn)
    queries, keys = nvfp4(q, q_scale, q_unit), nvfp4(k, k_scale, k_unit)
    for h, i in ((0, 0), (7, 20), (39, 47)):
        row = keys[1, h // 5] @ queries[1, h, i] / np.sqrt(128)
        close(scores[1, h, i, : i + 1], row[: i + 1])
        assert np.isneginf(scores[1, h, i, i + 1 :]).all()
        close(lse[1, h, i], softmax_mix(row[: i + 1], np.zeros((i + 1, 1)))[1])


def test_nvfp4_output_projection_adds_the_residual():
    x, residual, w, w_scale, w_unit, x_unit = drawn = inputs(59)
    due = f64(residual) + through_fp4(x, np.float64(x_unit[0])) @ nvfp4(w, w_scale, w_unit).T
    close(exact(59, *drawn)[0], due)


def test_mamba_output_gates_before_it_norms_by_groups():
    y, z, norm_weight, w, w_scale, w_unit, x_unit = drawn = inputs(60)
    g = f64(y) * f64(z) * (0.5 + 0.5 * np.tanh(f64(z) / 2))
    parts = [part / np.sqrt((part**2).mean(1, keepdims=True) + 1e-5) for part in np.split(g, 8, axis=1)]
    x = np.concatenate(parts, axis=1)
    due = through_fp4(x * f64(norm_weight), np.float64(x_unit[0])) @ nvfp4(w, w_scale, w_unit).T
    close(exact(60, *drawn)[0], due)


def test_silu_gating_ends_in_nvfp4_of_the_product():
    x, x_scale, gate_w, up_w, gate_scale, up_scale, x_unit, w_unit, h_unit = drawn = inputs(61)
    codes, scale = exact(61, *drawn)
    values = nvfp4(x, x_scale, x_unit)
    gate, up = values @ nvfp4(gate_w, gate_scale, w_unit).T, values @ nvfp4(up_w, up_scale, w_unit).T
    h = gate * (0.5 + 0.5 * np.tanh(gate / 2)) * up
    close(nvfp4(codes, scale, h_unit), through_fp4(h, np.float64(h_unit[0])))


@pytest.mark.parametrize("number, unit", ((55, -2), (59, -1)))
def test_activations_reach_over_most_of_their_range_and_do_not_saturate(number, unit):
    drawn = inputs(number)
    assert 0.1 < np.abs(f64(drawn[0])).max() / (6 * 448 * np.float64(drawn[unit][0])) < 1
