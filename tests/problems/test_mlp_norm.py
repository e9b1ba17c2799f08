"""MLP and norm problems 27 to 43: the quality bar, and each formula against another one in float64."""

import numpy as np
import pytest
from scipy import special, stats

from runner import catalogue
from tests.problems.support import close, exact, f64, inputs, quality

NUMBERS = range(27, 44)


@pytest.mark.parametrize("number", NUMBERS)
def test_keeps_the_quality_bar(number):
    assert quality(number).faults == ()


def rms_normed(x, eps):
    """Rows of length sqrt(n), but for eps: by the row's length, not by its mean of squares."""
    n = x.shape[-1]
    return x * np.sqrt(n) / np.sqrt(np.linalg.norm(x, axis=-1, keepdims=True) ** 2 + n * eps)


def silu(x):
    return x / 2 * (1 + np.tanh(x / 2))


def gelu_tanh(x):
    """The tanh form through the logistic function, safe for complex numbers."""
    return x / (1 + np.exp(-2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def standardised(x, eps):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(
        ((x - x.mean(-1, keepdims=True)) ** 2).mean(-1, keepdims=True) + eps
    )


def test_patch_merger_is_a_sum_over_the_four_places_of_a_window():
    x, weight, w1, b1, w2, b2 = (f64(v) for v in inputs(27))
    n = rms_normed(x, 1e-6) * weight
    w1 = w1.reshape(len(w1), 4, x.shape[1])
    a = b1 + sum(n[place::4] @ w1[:, place].T for place in range(4))
    close(exact(27, x, weight, w1.reshape(len(w1), -1), b1, w2, b2)[0], a * stats.norm.cdf(a) @ w2.T + b2)


def test_residual_rmsnorm_gives_rows_of_known_length():
    x, residual, weight = (f64(v) for v in inputs(28))
    y, new = exact(28, x, residual, weight)
    close(new, x + residual)
    close(y, rms_normed(x + residual, 1e-5) * weight)


def test_gelu_feed_forward_through_the_logistic_function():
    x, w1, b1, w2, b2 = (f64(v) for v in inputs(29))
    close(exact(29, x, w1, b1, w2, b2)[0], gelu_tanh(x @ w1.T + b1) @ w2.T + b2)


def test_global_response_norm_compares_channels_within_one_picture():
    x, w1, b1, gamma, beta, w2, b2 = (f64(v) for v in inputs(30))
    (out,) = exact(30, x, w1, b1, gamma, beta, w2, b2)
    for picture in range(len(x)):
        a = x[picture] @ w1.T + b1
        h = a * special.ndtr(a)
        lengths = np.array([np.linalg.norm(h[:, c]) for c in range(h.shape[1])])
        close(out[picture], (h * (gamma * lengths / (lengths.mean() + 1e-6) + 1) + beta) @ w2.T + b2)


def test_group_norm_is_a_standard_score_within_each_group():
    x, gamma, beta = (f64(v) for v in inputs(31))
    x[1, 20:30] = 7  # group 2 of picture 1 holds equal values
    (y,) = exact(31, x, gamma, beta)
    for picture, group in ((0, 0), (1, 31), (0, 15)):
        channels = slice(group * 10, group * 10 + 10)
        values = x[picture, channels]
        score = (values - values.mean()) / np.hypot(values.std(), np.sqrt(1e-5))
        close(y[picture, channels], score * gamma[channels, None] + beta[channels, None])
    close(y[1, 20:30], np.broadcast_to(beta[20:30, None], y[1, 20:30].shape))


def test_swiglu_mlp_through_the_hyperbolic_tangent():
    x, w_gate, w_up, w_down = (f64(v) for v in inputs(32))
    close(exact(32, x, w_gate, w_up, w_down)[0], (silu(x @ w_gate.T) * (x @ w_up.T)) @ w_down.T)


def test_residual_rmsnorm_swiglu_is_the_chain_of_its_parts():
    x, residual, weight, w_gate, w_up, w_down = (f64(v) for v in inputs(33))
    out, new = exact(33, x, residual, weight, w_gate, w_up, w_down)
    n = rms_normed(x + residual, 1e-5) * weight
    close(out, (silu(n @ w_gate.T) * (n @ w_up.T)) @ w_down.T)
    close(new, x + residual)


def swiglu(x, w_gate, w_up, w_down):
    return (silu(x @ w_gate.T) * (x @ w_up.T)) @ w_down.T


def kokoro(x, w1, b1, w2, b2, gamma, beta):
    return standardised(x + gelu_tanh(x @ w1.T + b1) @ w2.T + b2, 1e-12) * gamma + beta


def step1x(x, w1, b1, w2, b2):
    return gelu_tanh(x @ w1.T + b1) @ w2.T + b2


def residual_norm(h, weight):
    return h / np.sqrt((h * h).mean(-1, keepdims=True) + 1e-6) * weight


def slope(forward, values, which, direction, grad):
    """Derivative of sum(forward * grad) along a direction, by a complex step: exact to rounding."""
    moved = [np.asarray(v, complex) for v in values]
    moved[which] = moved[which] + 1e-30j * direction
    return (forward(*moved) * grad).sum().imag / 1e-30


# Number, the forward pass, its arguments among the inputs, the place of the outer gradient, and parameters that the
# backward pass need not know (their values cannot matter: they are added).
BACKWARD = {34: (swiglu, (0, 1, 2, 3), 4, 0), 35: (kokoro, (0, 1, 2, 3, 4, 5), 6, 1), 37: (step1x, (0, 1, 2, 3), 4, 1)}


@pytest.mark.parametrize(
    "number, which", [(n, i) for n, n_grads in ((34, 4), (35, 7), (37, 5)) for i in range(n_grads)]
)
def test_backward_is_the_complex_step_derivative_of_the_forward_pass(number, which):
    forward, places, grad_place, n_shifts = BACKWARD[number]
    drawn = [f64(v) for v in inputs(number)]
    grads = exact(number, *drawn)
    values = [drawn[i] for i in places] + [np.full(drawn[0].shape[-1], 0.3)] * n_shifts
    direction = np.random.default_rng(which).standard_normal(values[which].shape)
    due = slope(forward, values, which, direction, drawn[grad_place])
    assert grads[which].shape == values[which].shape
    np.testing.assert_allclose((grads[which] * direction).sum(), due, rtol=1e-9)


@pytest.mark.parametrize("which", (0, 1))
def test_residual_rmsnorm_backward_adds_the_gradient_of_the_stream(which):
    h, weight, grad_y, grad_stream = (f64(v) for v in inputs(38))
    grads = exact(38, h, weight, grad_y, grad_stream)
    direction = np.random.default_rng(which).standard_normal((h, weight)[which].shape)
    due = slope(residual_norm, (h, weight), which, direction, grad_y)
    due += (grad_stream * direction).sum() if which == 0 else 0
    np.testing.assert_allclose((grads[which] * direction).sum(), due, rtol=1e-9)


@pytest.mark.parametrize("which", (0, 1))
def test_embedding_backward_is_the_derivative_by_the_table(which):
    tokens, table, weight, grad_y = inputs(43)
    values = (f64(table), f64(weight))
    grads = exact(43, tokens, *values, f64(grad_y))
    direction = np.random.default_rng(which).standard_normal(values[which].shape)
    due = slope(lambda t, w: residual_norm(t[tokens], w), values, which, direction, f64(grad_y))
    np.testing.assert_allclose((grads[which] * direction).sum(), due, rtol=1e-9)


def test_embedding_backward_sums_repeats_and_leaves_absent_tokens_at_zero():
    tokens, table, weight, grad_y = inputs(43)
    grad_table, _ = exact(43, tokens, table, weight, grad_y)
    counts = np.bincount(tokens, minlength=len(table))
    assert counts.max() > 16 and (counts == 0).any(), "the draw must hold long repeats and absent tokens"
    one_by_one = np.zeros(table.shape)
    for place, token in enumerate(tokens):
        one_by_one[token] += exact(43, tokens[place : place + 1], table, weight, grad_y[place : place + 1])[0][token]
    close(grad_table, one_by_one)
    assert not grad_table[counts == 0].any()


@pytest.mark.parametrize("number", (36, 41))
def test_head_norm_gives_every_head_a_known_length(number):
    drawn = [f64(v) for v in inputs(number)]
    heads = drawn[0] if number == 36 else drawn[0].reshape(-1, 3, 8, 192)
    heads[1] = 0
    due = rms_normed(heads, 1e-6)
    due = (due * drawn[1],) if number == 36 else (due[:, 0] * drawn[1], due[:, 1] * drawn[2], due[:, 2])
    got = exact(number, heads.reshape(drawn[0].shape), *drawn[1:])
    for y, want in zip(got, due, strict=True):
        close(y, want)
        assert not y[1].any()


def test_adaln_modulates_each_picture_by_its_own_condition():
    x, cond, w_mod, b_mod, w_out, b_out = (f64(v) for v in inputs(39))
    (out,) = exact(39, x, cond, w_mod, b_mod, w_out, b_out)
    scale_w, shift_w = np.split(w_mod, 2)
    scale_b, shift_b = np.split(b_mod, 2)
    for picture in range(len(x)):
        scale, shift = scale_w @ silu(cond[picture]) + scale_b, shift_w @ silu(cond[picture]) + shift_b
        score = standardised(x[picture], 1e-6)
        close(out[picture], score @ (w_out * (1 + scale)).T + w_out @ shift + b_out)


def test_stream_collapse_gives_every_stream_the_length_of_the_first():
    streams, w = (f64(v) for v in inputs(40))
    streams[2, 3] = 0  # a token whose second projection vanishes
    (out,) = exact(40, streams, w)
    length = np.linalg.norm(streams[0], axis=-1, keepdims=True)
    due = streams[0].copy()
    for stream, projection in zip(streams[1:], w, strict=True):
        p = stream @ projection.T
        due += length * np.divide(
            p, np.linalg.norm(p, axis=-1, keepdims=True), out=np.zeros_like(p), where=p.any(-1)[:, None]
        )
    close(out, due / 4)


def test_shifted_embedding_takes_the_token_after_each_place():
    tokens, following, table, hidden, embed_weight, hidden_weight = inputs(42)
    (out,) = exact(42, tokens, following, table, hidden, embed_weight, hidden_weight)
    n_seqs, n_tokens = tokens.shape
    for b in range(n_seqs):
        for t in range(n_tokens):
            token = following[b] if t == n_tokens - 1 else tokens[b, t + 1]
            both = (
                rms_normed(f64(table[token]), 1e-6) * f64(embed_weight),
                rms_normed(f64(hidden[b, t]), 1e-6) * f64(hidden_weight),
            )
            close(out[b, t], np.concatenate(both))


def test_a_group_of_gradients_that_is_constant_does_not_move_a_layer_norm():
    x, w1, b1, w2, b2, gamma, grad_y = (f64(v) for v in inputs(35))
    grads = exact(35, x, w1, b1, w2, b2, np.ones_like(gamma), np.ones_like(grad_y))
    assert np.abs(grads[0]).max() < 1e-12, "a layer norm's mean output is fixed, so its input gets no gradient"


def test_problem_text_names_every_output():
    for number in NUMBERS:
        module = catalogue.problem(number).module
        listed = module.__doc__.split("outputs", 1)[1]
        assert all(name in listed for name in set(module.OUTPUTS)), number
