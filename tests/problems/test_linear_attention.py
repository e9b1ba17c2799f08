"""Linear attention problems 62 to 74: the quality bar, and chunks, scans and transforms against token-by-token recurrences."""

import numpy as np
import pytest

from runner import catalogue, contract, problem_check
from tests.problems.support import close, exact, f64, inputs, quality

NUMBERS = range(62, 75)


@pytest.mark.parametrize("number", NUMBERS)
def test_keeps_the_quality_bar(number):
    assert quality(number).faults == ()


def unit(x):
    return x / np.sqrt(np.einsum("...d,...d", x, x) + 1e-6)[..., None]


def silu(x):
    return x / 2 * (1 + np.tanh(x / 2))


def walk(q, k, v, decay, beta, state):
    """One head's gated delta rule, as a product of transition matrices: q, k [n, d], v [n, e] -> (out [n, e], states)."""
    out, states, d = [], [], k.shape[1]
    for t in range(len(k)):
        forget = (np.eye(d) - beta[t] * np.outer(k[t], k[t])) @ np.diag(np.broadcast_to(decay[t], d))
        state = forget @ state + beta[t] * np.outer(k[t], v[t])
        out.append(q[t] @ state)
        states.append(state)
    return np.array(out).reshape(len(k), v.shape[1]), states


def gather(q, k, v, gates, state):
    """One head without the delta rule: every state is the sum of what was written, each times its decays since."""
    out, written = [], [(np.ones_like(k[0]), state)]
    for t in range(len(k)):
        written = [(faded * gates[t], what) for faded, what in written] + [(np.ones_like(k[0]), np.outer(k[t], v[t]))]
        out.append(sum((q[t] * faded) @ what for faded, what in written))
    return np.array(out), sum(faded[:, None] * what for faded, what in written)


@pytest.mark.parametrize("number", (62, 68))
def test_chunks_of_the_gated_delta_rule_are_its_recurrence(number):
    q, k, v, log_decay, beta, state = drawn = inputs(number)
    out, new = exact(number, *drawn)
    q, k, v, log_decay, beta, state = (f64(x) for x in drawn)
    assert q.shape[1] % 64, "the last chunk is ragged"
    for b, h in ((0, 0), (1, v.shape[2] - 1)):
        shared = h // (v.shape[2] // q.shape[2])
        due, states = walk(
            unit(q[b, :, shared]),
            unit(k[b, :, shared]),
            v[b, :, h],
            np.exp(log_decay[b, :, h]),
            beta[b, :, h],
            state[b, h],
        )
        close(out[b, :, h], due / np.sqrt(128))
        close(new[b, h], states[-1])


def test_chunks_of_the_delta_rule_are_its_recurrence_from_nothing():
    drawn = inputs(74)
    out, state = exact(74, *drawn)
    q, k, v, beta = (f64(x) for x in drawn)
    for h in (0, 2):
        due, states = walk(
            unit(silu(q[0, :, h])),
            unit(silu(k[0, :, h])),
            v[0, :, h],
            np.ones(q.shape[1]),
            beta[0, :, h],
            np.zeros((128, 128)),
        )
        close(out[0, :, h], due / np.sqrt(128))
        close(state[0, h], states[-1])


def test_a_delta_rule_that_writes_in_full_recalls_its_last_value():
    q, k, v, beta = inputs(74)
    out, _ = exact(74, k, k, v, np.ones_like(beta))
    close(f64(out) * np.sqrt(128), f64(v), rtol=1e-5)


def test_every_channel_of_one_rate_is_a_rate_of_the_head():
    q, k, v, log_decay, beta, state = inputs(68)
    rate = log_decay[..., :1]
    due = exact(62, q, k, v, rate[..., 0], beta, state)
    for got, want in zip(exact(68, q, k, v, np.broadcast_to(rate, log_decay.shape), beta, state), due, strict=True):
        close(got, want)


def test_packed_sequences_are_those_sequences_alone():
    q, k, v, log_decay, beta, state, indptr = drawn = inputs(71)
    out, new = exact(71, *drawn)
    assert (
        indptr[1] == indptr[2]
        and indptr[0] == 0
        and indptr[-1] == len(q)
        and (np.diff(indptr) > 0).sum() == len(state) - 1
    )
    for b, (start, stop) in enumerate(zip(indptr[:-1], indptr[1:], strict=True)):
        for h in (0, v.shape[1] - 1):
            shared = h // 2
            due, states = walk(
                unit(f64(q[start:stop, shared])),
                unit(f64(k[start:stop, shared])),
                f64(v[start:stop, h]),
                np.exp(f64(log_decay[start:stop, h])),
                f64(beta[start:stop, h]),
                f64(state[b, h]),
            )
            close(out[start:stop, h], due / np.sqrt(128))
            close(new[b, h], states[-1] if states else state[b, h])


def test_decode_is_the_last_step_of_a_prefill():
    q, k, v, log_decay, beta, state = inputs(62)
    n_last = q.shape[1] - 1
    out, new = exact(62, q, k, v, log_decay, beta, state)
    _, before = exact(62, *(x[:, :n_last] for x in (q, k, v, log_decay, beta)), state)
    heads = catalogue.problem(72).module
    wide = [
        np.repeat(x[:, n_last], n // x.shape[2], axis=1)
        for x, n in (
            (q, heads.N_QK_HEADS),
            (k, heads.N_QK_HEADS),
            (v, heads.N_V_HEADS),
            (log_decay, heads.N_V_HEADS),
            (beta, heads.N_V_HEADS),
        )
    ]
    n_copies = heads.N_V_HEADS // v.shape[2]
    stepped, after = exact(72, *wide, np.repeat(before, n_copies, axis=1))
    close(stepped[:, ::n_copies], out[:, n_last])
    close(after[:, ::n_copies], new)


def test_decode_step_is_one_transition():
    drawn = inputs(72)
    out, new = exact(72, *drawn)
    q, k, v, log_decay, beta, state = (f64(x) for x in drawn)
    for h in (0, 1, 31):
        due, (after,) = walk(
            unit(q[1, None, h // 2]),
            unit(k[1, None, h // 2]),
            v[1, None, h],
            np.exp(log_decay[1, None, h]),
            beta[1, None, h],
            state[1, h],
        )
        close(out[1, h], due[0] / np.sqrt(128))
        close(new[1, h], after)


def test_draft_tokens_are_repeated_decoding_from_the_accepted_state():
    q, k, v, log_decay, beta, states, n_accepted = drawn = inputs(73)
    out, news = exact(73, *drawn)
    for b in range(len(q)):
        for h in (0, 3):
            due, after = walk(
                unit(f64(q[b, :, h // 2])),
                unit(f64(k[b, :, h // 2])),
                f64(v[b, :, h]),
                np.exp(f64(log_decay[b, :, h])),
                f64(beta[b, :, h]),
                f64(states[b, n_accepted[b] - 1, h]),
            )
            close(out[b, :, h], due / np.sqrt(128))
            close(news[b, :, h], after)
    assert set(n_accepted.tolist()) <= {1, 2, 3, 4} and len(set(n_accepted.tolist())) > 1


def test_rejected_draft_states_are_not_read():
    q, k, v, log_decay, beta, states, n_accepted = drawn = inputs(73)
    spoilt = np.full_like(states, np.nan)
    every = np.arange(len(q))
    spoilt[every, n_accepted - 1] = states[every, n_accepted - 1]
    for got, due in zip(exact(73, q, k, v, log_decay, beta, spoilt, n_accepted), exact(73, *drawn), strict=True):
        np.testing.assert_array_equal(got, due)


def test_gated_linear_attention_is_a_sum_over_the_past():
    drawn = inputs(69)
    out, new = exact(69, *drawn)
    q, k, v, log_decay, state = (f64(x) for x in drawn)
    due, after = gather(q[0, :, 1], k[0, :, 1], v[0, :, 1], np.exp(log_decay[0, :, 1]), state[0, 1])
    close(out[0, :, 1], due / 16)
    close(new[0, 1], after)


def test_retention_is_a_masked_product_of_all_pairs():
    drawn = inputs(70)
    out, state = exact(70, *drawn)
    q, k, v, gate = (f64(x) for x in drawn)
    age = np.subtract.outer(np.arange(q.shape[1]), np.arange(q.shape[1]))
    for h, factor in ((0, 31 / 32), (1, 63 / 64)):
        fade = np.where(age >= 0, factor ** np.maximum(age, 0), 0)
        o = (q[0, :, h] @ k[0, :, h].T * fade) @ v[0, :, h] / 16
        close(out[0, :, h], o / np.sqrt((o * o).mean(-1, keepdims=True) + 1e-6) * silu(gate[0, :, h]))
        close(state[0, h], (k[0, :, h] * fade[-1][:, None]).T @ v[0, :, h])


def test_selective_scan_token_by_token():
    drawn = inputs(63)
    y, state = exact(63, *drawn)
    x, dt, dt_bias, a_log, b, c, skip = (f64(v) for v in drawn)
    assert x.shape[1] % 64, "the last chunk is ragged"
    for h in range(x.shape[2]):
        held = np.zeros((128, 64))
        for t in range(x.shape[1]):
            step = np.logaddexp(0, dt[1, t, h] + dt_bias[h])
            held = np.exp(-step * np.exp(a_log[h])) * held + step * np.outer(b[1, t, h // 2], x[1, t, h])
            close(y[1, t, h], c[1, t, h // 2] @ held + skip[h] * x[1, t, h])
        close(state[1, h], held)


def test_chunk_scan_token_by_token():
    drawn = inputs(64)
    y, states = exact(64, *drawn)
    x, log_decay, step, b, c, state = (f64(v) for v in drawn)
    held = state[0]
    for t in range(x.shape[1]):
        if t % 256 == 0:
            close(states[0, t // 256], held)
        held = np.exp(log_decay[0, t])[:, None, None] * held + np.einsum("h,hp,n->hpn", step[0, t], x[0, t], b[0, t])
        close(y[0, t], held @ c[0, t])
    close(states[0, -1], held)


def test_intra_chunk_is_a_scan_from_nothing_in_every_chunk():
    drawn = inputs(65)
    (y,) = exact(65, *drawn)
    x, step, rate, b, c = (f64(v) for v in drawn)
    for chunk in range(x.shape[1]):
        for h in range(x.shape[3]):
            held = np.zeros((128, 80))
            for t in range(128):
                now = step[0, chunk, t, h]
                held = np.exp(rate[h] * now) * held + now * np.outer(b[0, chunk, t, h // 2], x[0, chunk, t, h])
                close(y[0, chunk, t, h], c[0, chunk, t, h // 2] @ held)


def test_wkv_is_a_weighted_mean_of_the_past_by_log_weights():
    drawn = inputs(66)
    out, new = exact(66, *drawn)
    k, v, decay, bonus, state = (f64(x)[..., ::17] for x in drawn)
    n_seqs, n_tokens, n_channels = k.shape
    held = state[:, 1] > 0
    with np.errstate(divide="ignore"):
        first = np.where(held, state[:, 2] + np.log(state[:, 1]), -np.inf)
    values = np.concatenate(
        (np.divide(state[:, 0], state[:, 1], where=held, out=np.zeros_like(first))[:, None], v), axis=1
    )
    for t in range(n_tokens):
        ages = np.append(t, np.arange(t - 1, -1, -1))
        logs = np.concatenate((first[:, None], k[:, :t]), axis=1) + ages[:, None] * decay
        logs = np.concatenate((logs, (k[:, t] + bonus)[:, None]), axis=1)
        weights = np.exp(logs - logs.max(1, keepdims=True))
        due = (weights * values[:, : t + 2]).sum(1) / weights.sum(1)
        close(out[:, t, ::17], due)
    assert not state[0, :2].any() and (out[0, 0] == f64(drawn[1])[0, 0]).all()
    assert f64(drawn[0]).max() > 90, "an exponential without the running maximum overflows float32"
    faded = np.append(n_tokens, np.arange(n_tokens - 1, -1, -1))[:, None] * decay
    logs = np.concatenate((first[:, None], k), axis=1) + faded
    close(new[:, 2, ::17] + np.log(new[:, 1, ::17]), np.logaddexp.reduce(logs, axis=1))
    close(new[:, 2, ::17], (np.concatenate((state[:, 2:], k), axis=1) + faded).max(1))


def hyena_by_sums(drawn: tuple, kind: type) -> np.ndarray:
    """Both convolutions as sums over taps, in the given type."""
    u, short, short_bias, long, long_bias = (np.asarray(x).astype(kind) for x in drawn)
    n_tokens, n_channels = u.shape[-1], len(long)
    late = np.pad(u, ((0, 0), (0, 0), (2, 0)))
    z = sum(short[:, i, None] * late[..., i : i + n_tokens] for i in range(3)) + short_bias[:, None]
    x0, x1, v = np.split(z, 3, axis=1)
    gated = v * x1
    mixed = np.zeros_like(gated)
    for c in range(n_channels):
        lag = np.subtract.outer(np.arange(n_tokens), np.arange(n_tokens))
        mixed[:, c] = gated[:, c] @ np.where(lag >= 0, long[c, np.maximum(lag, 0)], kind(0)).T
    return x0 * (mixed + long_bias[:, None] * gated)


def test_long_convolution_is_a_direct_sum():
    drawn = inputs(67)
    (out,) = exact(67, *drawn)
    close(out, hyena_by_sums(drawn, np.float64))


def test_a_direct_sum_in_float32_keeps_the_rule_that_a_transform_sets():
    drawn = problem_check.draw(catalogue.problem(67), np, seed=5)
    got = hyena_by_sums(drawn.inputs, np.float32)
    assert contract.check_outputs(np, ("f32",), got, drawn.own, drawn.anchor).ok


@pytest.mark.parametrize("number, n_tokens", [(62, 1), (62, 64), (62, 65), (63, 1), (63, 63), (68, 1), (68, 65)])
def test_a_sequence_cut_short_gives_the_start_of_the_whole_one(number, n_tokens):
    drawn = inputs(number)
    by_token = [getattr(x, "ndim", 0) > 2 and x.shape[:2] == drawn[0].shape[:2] for x in drawn]
    whole, _ = exact(number, *drawn)
    cut, _ = exact(number, *(x[:, :n_tokens] if per else x for x, per in zip(drawn, by_token, strict=True)))
    close(cut, whole[:, :n_tokens])


@pytest.mark.parametrize(
    "number, written, axis",
    [
        (62, 2, 1),
        (63, 0, 1),
        (64, 0, 1),
        (65, 0, 2),
        (66, 0, 1),
        (67, 0, 2),
        (68, 2, 1),
        (69, 2, 1),
        (70, 2, 1),
        (74, 2, 1),
    ],
)
def test_no_token_reads_what_a_later_one_writes(number, written, axis):
    drawn = list(inputs(number))
    before = np.moveaxis(f64(exact(number, *drawn)[0]), axis, 0)
    drawn[written] = drawn[written].copy()
    np.moveaxis(drawn[written], axis, 0)[70:] *= 3
    after = np.moveaxis(f64(exact(number, *drawn)[0]), axis, 0)
    close(after[:70], before[:70], rtol=1e-12)
    assert np.abs(after[70:] - before[70:]).max() > 0.1 * np.abs(before).max()
