"""Mixture-of-experts problems 44 to 51: the quality bar, and each against brute force, one token and expert at a time."""

import ml_dtypes
import numpy as np
import pytest
from scipy.special import expit, log_softmax

from problems import precision
from runner import catalogue
from tests.problems.support import close, exact, f64, inputs, quality

NUMBERS = range(44, 52)


@pytest.mark.parametrize("number", NUMBERS)
def test_keeps_the_quality_bar(number):
    assert quality(number).faults == ()


def silu(x):
    return x / 2 * (1 + np.tanh(x / 2))


def best(values, n, among=None):
    """Indices of the n largest, one at a time, the lower index first where values tie."""
    left = list(range(len(values)) if among is None else among)
    chosen = []
    for _ in range(n):
        top = max(left, key=lambda i: (values[i], -i))
        chosen.append(top)
        left.remove(top)
    return chosen


def group_limited(logits, bias):
    """Chosen experts and weights of one token: 8 groups of 32, best 4 by the sum of their best two, best 8 of those."""
    score = expit(logits)
    biased = score + bias
    worth = [sum(sorted(biased[g * 32 : g * 32 + 32])[-2:]) for g in range(8)]
    among = sorted(e for g in best(worth, 4) for e in range(g * 32, g * 32 + 32))
    ids = best(biased, 8, among)
    return ids, 2.5 * score[ids] / score[ids].sum()


def fp8(codes, scales, block):
    """Values of e4m3 codes, one block after the other."""
    values = f64(codes.view(ml_dtypes.float8_e4m3fn))
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            values[i * block[0] : (i + 1) * block[0], j * block[1] : (j + 1) * block[1]] *= scales[i, j]
    return values


def test_grouped_routing_and_fp8_experts_one_token_at_a_time():
    logits, bias, x, x_scale, w13, w13_scale, w2, w2_scale = inputs(44)
    (out,) = exact(44, logits, bias, x, x_scale, w13, w13_scale, w2, w2_scale)
    values, due = fp8(x, f64(x_scale), (1, 128)), np.zeros(out.shape)
    experts = [(fp8(w13[e], f64(w13_scale[e]), (128, 128)), fp8(w2[e], f64(w2_scale[e]), (128, 128))) for e in range(8)]
    n_local = np.zeros(len(x), int)
    for t in range(len(x)):
        for e, weight in zip(*group_limited(f64(logits[t]), f64(bias)), strict=True):
            if 40 <= e < 48:
                w_in, w_out = experts[e - 40]
                gate, up = np.split(w_in @ values[t], 2)
                due[t] += weight * (w_out @ (silu(gate) * up))
                n_local[t] += 1
    close(out, due)
    assert (n_local == 0).any() and (n_local > 1).any() and not out[n_local == 0].any()


def test_group_limited_choice_one_token_at_a_time():
    x, w_router, bias = inputs(49)
    ids, weights = exact(49, x, w_router, bias)
    for t in range(len(x)):
        due, due_weights = group_limited(f64(w_router) @ f64(x[t]), f64(bias))
        assert list(ids[t]) == due
        close(weights[t], due_weights)


@pytest.mark.parametrize("number", (44, 49))
def test_where_everything_ties_the_lowest_groups_and_experts_are_chosen(number):
    if number == 44:
        ids, weights = catalogue.problem(44).module.route(np, np.zeros((2, 256), np.float32), np.zeros(256, np.float32))
    else:
        x, w_router, bias = inputs(49)
        ids, weights = exact(49, np.zeros_like(x), w_router, np.zeros_like(bias))
    assert (ids == np.arange(8)).all()
    close(weights, np.full(ids.shape, 2.5 / 8))


def test_a_group_is_worth_its_best_two_not_its_best():
    bias = np.zeros(256, np.float32)
    bias[0], bias[[32, 33, 64, 65, 96, 97, 128, 129]] = 0.5, 0.4  # group 0 holds the best expert and no second one
    ids, _ = catalogue.problem(44).module.route(np, np.zeros((1, 256), np.float32), bias)
    assert list(ids[0]) == [32, 33, 64, 65, 96, 97, 128, 129]


def test_capacity_dispatch_is_a_loop_with_counters():
    logits, x = inputs(45)
    buffer, slots, weights = exact(45, logits, x)
    n_tokens, n_experts = logits.shape
    n_places = int(np.ceil(1.25 * 8 * n_tokens / n_experts))
    due, filled, n_dropped, n_tied = np.zeros(buffer.shape), np.zeros(n_experts, int), 0, 0
    for t in range(n_tokens):
        ids = best(logits[t], 8)
        n_tied += len(set(logits[t, ids])) < 8
        p = np.exp(log_softmax(f64(logits[t])))
        for k, e in enumerate(ids):
            if filled[e] < n_places:
                due[e, filled[e]] = f64(x[t])
                assert slots[t, k] == e * n_places + filled[e]
                np.testing.assert_allclose(weights[t, k], p[e] / p[ids].sum(), rtol=1e-12)
            else:
                n_dropped += 1
                assert slots[t, k] == -1 and weights[t, k] == 0
            filled[e] += 1
    np.testing.assert_array_equal(f64(buffer), due)
    assert n_dropped and n_tied > 1 and (filled < n_places).any(), "the draw must hold drops, ties and room"


def test_an_expert_that_no_token_chose_has_an_empty_buffer():
    logits, x = inputs(45)
    logits[:, 5] = -50
    logits[0] = np.arange(len(logits[0]), 0, -1)
    logits[0, 5] = -50
    buffer, _, _ = exact(45, logits, x)
    assert not f64(buffer[5]).any() and f64(buffer[0]).any()


def routed_through_all(x, w_router, ids):
    """Weights of the chosen experts by the softmax over all of them, safe for complex numbers."""
    p = np.exp(x @ w_router.T)
    p = p / p.sum(-1, keepdims=True)
    chosen = np.take_along_axis(p, ids.astype(int), axis=-1)
    return chosen / chosen.sum(-1, keepdims=True)


@pytest.mark.parametrize("which", (0, 1))
def test_router_backward_is_the_complex_step_derivative(which):
    x, w_router, ids, places, grad_rows, grad_weights = inputs(46)
    values = [f64(x), f64(w_router)]
    grads = exact(46, *values, ids, places, f64(grad_rows), f64(grad_weights))
    direction = np.random.default_rng(which).standard_normal(values[which].shape)
    moved = [v.astype(complex) for v in values]
    moved[which] += 1e-30j * direction
    sent = np.zeros(grad_rows.shape, complex)
    for t in range(len(x)):
        sent[places[t]] = moved[0][t]
    loss = (sent * f64(grad_rows)).sum() + (routed_through_all(*moved, ids) * f64(grad_weights)).sum()
    np.testing.assert_allclose((grads[which] * direction).sum(), loss.imag / 1e-30, rtol=1e-9)
    assert sorted(places.ravel()) == list(range(places.size)) and not grads[1][-1].any()
    assert (np.diff(ids.ravel()[np.argsort(places.ravel())]) >= 0).all(), "rows are not sorted by expert"


def mlp(x, gate, up, down):
    return down @ (silu(gate @ x) * (up @ x))


def test_correction_bias_moves_the_choice_and_not_the_weights():
    x, w_router, bias, gate, up, down, s_gate, s_up, s_down = (f64(v) for v in inputs(47))
    (out,) = exact(47, x, w_router, bias, gate, up, down, s_gate, s_up, s_down)
    n_moved = 0
    for t in range(len(x)):
        p = np.exp(log_softmax(w_router @ x[t]))
        ids = best(p + bias, 6)
        n_moved += set(ids) != set(best(p, 6))
        due = mlp(x[t], s_gate, s_up, s_down) + sum(
            p[e] / p[ids].sum() * mlp(x[t], gate[e], up[e], down[e]) for e in ids
        )
        np.testing.assert_allclose(out[t], due, rtol=0, atol=1e-9 * np.abs(out).max())
    assert n_moved, "the bias decides nowhere"


def test_corrected_ties_go_to_the_lower_index():
    x, w_router, bias, *_ = inputs(47)
    with precision.computing("anchor"):
        ids, weights = catalogue.problem(47).module.route(np, np.zeros_like(x), w_router, np.zeros_like(bias))
    assert (ids == np.arange(6)).all()
    close(weights, np.full(ids.shape, 1 / 6))


def test_ten_experts_and_a_gated_shared_one_token_at_a_time():
    x, w_router, gate, up, down, s_gate, s_up, s_down, w_shared = (f64(v) for v in inputs(48))
    x[0] = 1e-3  # a small token, for which a zero one would show nothing
    (out,) = exact(48, x, w_router, gate, up, down, s_gate, s_up, s_down, w_shared)
    for t in range(len(x)):
        p = np.exp(log_softmax(w_router @ x[t]))
        ids = best(p, 10)
        due = mlp(x[t], s_gate, s_up, s_down) * expit(w_shared[0] @ x[t])
        due = due + sum(p[e] / p[ids].sum() * mlp(x[t], gate[e], up[e], down[e]) for e in ids)
        np.testing.assert_allclose(out[t], due, rtol=0, atol=1e-9 * np.abs(out).max())


@pytest.mark.parametrize("number, idle", [(47, 3), (48, 7), (51, 2)])
def test_an_expert_without_tokens_cannot_matter(number, idle):
    drawn = list(inputs(number))
    if number == 47:
        drawn[2][idle], weights = -10, range(3, 6)
    elif number == 48:
        drawn[0] = np.abs(drawn[0])
        drawn[1][idle], weights = -10, range(2, 5)
        drawn[0][0] = drawn[0][1]
    else:
        drawn[2][idle], weights = -100, range(3, 7)
    before = exact(number, *drawn)
    for i in weights:
        drawn[i] = drawn[i].copy()
        drawn[i][idle] = 5
    np.testing.assert_array_equal(before[0], exact(number, *drawn)[0])


def rank_forward(x, weights, w_gate, w_up, w_down, ids):
    y = np.zeros(x.shape, complex)
    for t in range(len(x)):
        for k, e in enumerate(ids[t]):
            if 16 <= e < 24:
                y[t] += weights[t, k] * mlp(x[t], w_gate[e - 16], w_up[e - 16], w_down[e - 16])
    return y


@pytest.mark.parametrize("which", range(5))
def test_expert_parallel_backward_is_the_complex_step_derivative(which):
    x, ids, weights, w_gate, w_up, w_down, grad_y = inputs(50)
    values = [f64(v) for v in (x, weights, w_gate, w_up, w_down)]
    grads = exact(50, values[0], ids, *values[1:], f64(grad_y))
    direction = np.random.default_rng(which).standard_normal(values[which].shape)
    moved = [v.astype(complex) for v in values]
    moved[which] += 1e-30j * direction
    due = (rank_forward(*moved, ids) * f64(grad_y)).sum().imag / 1e-30
    np.testing.assert_allclose((grads[which] * direction).sum(), due, rtol=1e-9)


def test_experts_of_other_ranks_and_idle_ones_have_no_gradient():
    drawn = inputs(50)
    ids = drawn[1]
    grad_x, grad_weights, *grad_experts = exact(50, *drawn)
    local = (ids >= 16) & (ids < 24)
    assert not (ids == 19).any() and not local.any(-1).all(), (
        "the draw must hold an idle expert and a token without any"
    )
    assert not grad_weights[~local].any() and not grad_x[~local.any(-1)].any()
    assert all(not grad[3].any() and grad[2].any() for grad in grad_experts)


def test_clamped_experts_with_biases_one_token_at_a_time():
    x, w_router, b_router, w_in, b_in, w_out, b_out = (f64(v) for v in inputs(51))
    (out,) = exact(51, x, w_router, b_router, w_in, b_in, w_out, b_out)
    n_clamped = 0
    for t in range(len(x)):
        z = w_router @ x[t] + b_router
        ids = best(z, 4)
        due = np.zeros(out.shape[1])
        for e, share in zip(ids, np.exp(log_softmax(z[ids])), strict=True):
            a = (w_in[e] @ x[t] + b_in[e]).reshape(-1, 2)
            n_clamped += (a > 7).sum()
            gate, up = np.where(a[:, 0] > 7, 7, a[:, 0]), np.where(np.abs(a[:, 1]) > 7, 7 * np.sign(a[:, 1]), a[:, 1])
            due += share * (w_out[e] @ ((up + 1) * gate * expit(1.702 * gate)) + b_out[e])
        np.testing.assert_allclose(out[t], due, rtol=0, atol=1e-9 * np.abs(out).max())
    assert n_clamped, "no value reaches the limit"
