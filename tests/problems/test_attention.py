"""Attention problems 01 to 18: the quality bar, and each formula against another one in float64."""

import ml_dtypes
import numpy as np
import pytest

from runner import catalogue
from tests.problems.support import close, exact, f64, inputs, quality, softmax_mix

NUMBERS = range(1, 19)


@pytest.mark.parametrize("number", NUMBERS)
def test_keeps_the_quality_bar(number):
    assert quality(number).faults == ()


def tokens_of(number: int, drawn: tuple, b: int) -> tuple[np.ndarray, np.ndarray]:
    """Keys and values [token, kv head, d] of sequence b of a grouped-query problem, gathered one token at a time."""
    if number in (8, 9):
        _, k, v, _, kv_indptr = drawn
        return f64(k[kv_indptr[b] : kv_indptr[b + 1]]), f64(v[kv_indptr[b] : kv_indptr[b + 1]])
    paged = drawn[3:] if number <= 3 else drawn[4:]
    k_cache, v_cache, page = drawn[1], drawn[2], drawn[1].shape[1]
    pages = paged[1][paged[0][b] : paged[0][b + 1]]
    n = len(pages) * page if page == 1 else max(len(pages) - 1, 0) * page + int(paged[2][b])
    rows = [(pages[t // page], t % page) for t in range(n)]
    k, v = (f64([cache[row] for row in rows]).reshape(n, *cache.shape[2:]) for cache in (k_cache, v_cache))
    return k, v


def attended(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One query [head, d] over tokens [token, kv head, d], by online softmax."""
    group = q.shape[0] // k.shape[1]
    each = [softmax_mix(k[:, h // group] @ q[h] / np.sqrt(q.shape[1]), v[:, h // group]) for h in range(q.shape[0])]
    return np.array([mix for mix, _ in each]), np.array([lse for _, lse in each])


@pytest.mark.parametrize("number", (1, 2, 3))
def test_paged_decode_is_online_softmax_over_gathered_tokens(number):
    drawn = inputs(number)
    out, lse = exact(number, *drawn)
    for b in (0, 1, 3):
        due, due_lse = attended(f64(drawn[0][b]), *tokens_of(number, drawn, b))
        close(out[b], due)
        close(lse[b], due_lse)


@pytest.mark.parametrize("number", (4, 5, 6, 7, 8, 9))
def test_prefill_is_one_decode_a_query_over_the_tokens_it_sees(number):
    drawn = inputs(number)
    q_indptr = drawn[3]
    out, lse = exact(number, *drawn)
    for b in (0, 2):
        k, v = tokens_of(number, drawn, b)
        n = q_indptr[b + 1] - q_indptr[b]
        for i in (0, n // 2, n - 1):
            seen = len(k) - n + i + 1
            due, due_lse = attended(f64(drawn[0][q_indptr[b] + i]), k[:seen], v[:seen])
            close(out[q_indptr[b] + i], due)
            close(lse[q_indptr[b] + i], due_lse)


@pytest.mark.parametrize("number", (1, 2, 3, 14))
def test_empty_sequence_gives_zero_and_minus_infinity(number):
    drawn = inputs(number)
    indptr = drawn[4] if number == 14 else drawn[3]
    assert indptr[1] == indptr[2]
    out, lse = catalogue.problem(number).module.reference(np, *drawn)
    assert not f64(out[1]).any() and np.isneginf(lse[1]).all()


@pytest.mark.parametrize("number", (3, 6, 7))
def test_what_a_last_page_holds_past_its_length_changes_nothing(number):
    drawn = inputs(number)
    indptr, indices, last = drawn[3:] if number == 3 else drawn[4:]
    due = exact(number, *drawn)
    for b in (0, 2):
        page = indices[indptr[b + 1] - 1]
        drawn[1][page, last[b] :] = 77
        drawn[2][page, last[b] :] = -77
    for got, want in zip(exact(number, *drawn), due, strict=True):
        np.testing.assert_array_equal(got, want)


def gemma_forward(q, k, v, q_weight, k_weight, cos, sin):
    """Forward pass of problem 10, safe for complex numbers; no maximum is taken off, the cap bounds the scores."""

    def norm(x, weight):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * (1 + weight)

    def rope(x):
        a, b = np.split(x, 2, axis=-1)
        c, s = cos[:, None], sin[:, None]
        return np.concatenate((a * c - b * s, b * c + a * s), axis=-1)

    q, k, v = rope(norm(q, q_weight)), np.repeat(rope(norm(k, k_weight)), 2, axis=2), np.repeat(v, 2, axis=2)
    scores = 50 * np.tanh(np.einsum("bihd,bjhd->bhij", q, k) / 16 / 50)
    p = np.exp(scores) * np.tril(np.ones(scores.shape[-2:]))
    return np.einsum("bhij,bjhd->bihd", p / p.sum(-1, keepdims=True), v)


@pytest.mark.parametrize("which", range(5))
def test_backward_is_the_complex_step_derivative_of_the_forward_pass(which):
    values = [f64(x) for x in inputs(10)]
    grads = exact(10, *values)
    direction = np.random.default_rng(which).standard_normal(values[which].shape)
    moved = list(values[:7])
    moved[which] = values[which] + 1e-30j * direction
    slope = (gemma_forward(*moved) * values[7]).sum().imag / 1e-30
    np.testing.assert_allclose((grads[which] * direction).sum(), slope, rtol=1e-9)


def test_variable_length_attention_is_dense_attention_with_a_block_mask():
    q, k, v, bounds = inputs(11)
    (out,) = exact(11, q, k, v, bounds)
    image = np.searchsorted(bounds[1:], np.arange(len(q)), side="right")
    scores = np.einsum("ihd,jhd->hij", f64(q), f64(k)) / np.sqrt(80)
    p = np.where(image[:, None] == image, np.exp(scores - scores.max()), 0)
    close(out, np.einsum("hij,jhd->ihd", p / p.sum(-1, keepdims=True), f64(v)))
    assert bounds[1] == bounds[2]


def test_local_attention_is_dense_attention_with_a_band_mask():
    q, k, v, dim_scale, timing, pos_proj, n_valid = (f64(x) for x in inputs(12))
    (out,) = exact(12, q, k, v, dim_scale, timing, pos_proj, n_valid.astype(np.int32))
    n = q.shape[1]
    position_keys = (timing @ pos_proj).reshape(13, 8, 192)
    distance = np.arange(n)[:, None] - np.arange(n)
    x = q * np.logaddexp(0, dim_scale) / (np.sqrt(192) * np.log(2))
    scores = np.einsum("bihd,bjhd->bhij", x, k)
    scores += np.einsum("bihd,rhd->bhir", x, position_keys)[:, :, np.arange(n)[:, None], np.clip(distance, 0, 12)]
    seen = (distance >= 0) & (distance < 13) & (np.arange(n) < n_valid[:, None])[:, None, None]
    p = np.where(seen, np.exp(50 * np.tanh(scores / 50)), 0)
    due = np.einsum("bhij,bjhd->bihd", p / np.maximum(p.sum(-1, keepdims=True), 1e-300), v)
    due[np.arange(n) >= n_valid[:, None]] = 0
    close(out, due)
    assert n_valid[1] == 0 and not out[1].any()


def test_joint_attention_turns_pairs_as_complex_numbers_whatever_the_order_of_streams():
    image, text, *weights, cos, sin = (f64(x) for x in inputs(13))
    image_out, text_out = exact(13, image, text, *weights, cos, sin)
    n_text, n_image = text.shape[1], image.shape[1]
    turn = cos + 1j * sin

    def pairs(x, weight, turn):
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * weight
        return (x[..., 0::2] + 1j * x[..., 1::2]) * turn[:, None]

    q, k = (
        np.concatenate(
            (pairs(image[:, :, i], weights[i], turn[n_text:]), pairs(text[:, :, i], weights[2 + i], turn[:n_text])), 1
        )
        for i in (0, 1)
    )
    p = np.exp(np.einsum("bihd,bjhd->bhij", q, k.conj()).real / np.sqrt(128))
    v = np.concatenate((image[:, :, 2], text[:, :, 2]), 1)
    due = np.einsum("bhij,bjhd->bihd", p / p.sum(-1, keepdims=True), v).reshape(*v.shape[:2], -1)
    close(image_out, due[:, :n_image])
    close(text_out, due[:, n_image:])


def test_absorbed_latent_attention_is_the_expanded_one():
    rng = np.random.default_rng(8)
    q_nope, q_pe, ckv, kpe, indptr, indices = inputs(14)
    q, up_k, up_v = (rng.standard_normal(shape) * 0.1 for shape in ((4, 16, 128), (16, 128, 512), (16, 512, 128)))
    out, _ = exact(14, np.einsum("bhd,hdc->bhc", q, up_k), q_pe, ckv, kpe, indptr, indices)
    for b in (0, 2):
        latent, rope = (f64(x[indices[indptr[b] : indptr[b + 1]], 0]) for x in (ckv, kpe))
        for h in (0, 15):
            keys = np.concatenate((latent @ up_k[h].T, rope), axis=1)
            query = np.concatenate((q[b, h], f64(q_pe[b, h])))
            due, _ = softmax_mix(keys @ query / np.sqrt(192), latent @ up_v[h])
            close(out[b, h] @ up_v[h], due)


def test_latent_prefill_is_one_latent_decode_a_query():
    q_nope, q_pe, ckv, kpe, q_indptr, kv_indptr, indices = inputs(15)
    out, lse = exact(15, q_nope, q_pe, ckv, kpe, q_indptr, kv_indptr, indices)
    b = 2
    n, row = q_indptr[b + 1] - q_indptr[b], q_indptr[b]
    for i in (0, n - 1):
        pages = indices[kv_indptr[b] : kv_indptr[b + 1] - n + i + 1]
        one = np.array([0, 0, 0, len(pages)], np.int32)  # three sequences, the last of them filled
        query = [np.repeat(x[row + i : row + i + 1], 3, axis=0) for x in (q_nope, q_pe)]
        due, due_lse = exact(14, *query, ckv, kpe, one, pages)
        close(out[row + i], due[2])
        close(lse[row + i], due_lse[2])


def test_ragged_latent_prefill_is_one_softmax_a_query_and_head():
    q, k, v, q_indptr, kv_indptr = inputs(16)
    out, lse = exact(16, q, k, v, q_indptr, kv_indptr)
    b = 0
    n, n_tokens = q_indptr[b + 1] - q_indptr[b], kv_indptr[b + 1] - kv_indptr[b]
    for i, h in ((0, 0), (n - 1, 15)):
        seen = slice(kv_indptr[b], kv_indptr[b] + n_tokens - n + i + 1)
        due, due_lse = softmax_mix(f64(k[seen, h]) @ f64(q[i, h]) / np.sqrt(192), f64(v[seen, h]))
        close(out[i, h], due)
        close(lse[i, h], due_lse)


def test_sparse_attention_is_dense_attention_with_a_mask():
    q_nope, q_pe, ckv, kpe, slots = inputs(17)
    out, lse = exact(17, q_nope, q_pe, ckv, kpe, slots)
    latent, rope = f64(ckv).reshape(-1, 512), f64(kpe).reshape(-1, 64)
    chosen = np.zeros((len(slots), len(latent)), bool)
    for b, row in enumerate(slots):
        chosen[b, row[row >= 0]] = True
        assert chosen[b].sum() == (row >= 0).sum(), "slots repeat"
    scores = (np.einsum("bhc,tc->bht", f64(q_nope), latent) + np.einsum("bhc,tc->bht", f64(q_pe), rope)) / np.sqrt(192)
    p = np.where(chosen[:, None], np.exp(scores - scores.max()), 0)
    norm = p.sum(-1, keepdims=True)
    close(out, np.einsum("bht,tc->bhc", p / np.maximum(norm, 1e-300), latent))
    with np.errstate(divide="ignore"):
        close(lse, np.log(norm)[..., 0] + scores.max())
    assert not chosen[1].any() and np.isneginf(lse[1]).all() and not out[1].any()


def test_indexer_sorts_exact_integer_scores_and_breaks_ties_by_place():
    q, k_cache, k_scale, weights, seq_lens, table = inputs(18)
    (slots,) = exact(18, q, k_cache, k_scale, weights, seq_lens, table)

    def halves(codes):
        return (codes.view(ml_dtypes.float8_e4m3fn).astype(np.float64) * 2).astype(np.int64)

    n_ties = 0
    for b, n in enumerate(seq_lens):
        flat = np.array([table[b, t // 64] * 64 + t % 64 for t in range(n)], np.int64)
        keys = halves(k_cache.reshape(-1, 128)[flat]) if n else np.zeros((0, 128), np.int64)
        score = np.maximum(keys @ halves(q[b]).T, 0) @ (weights[b] * 8).astype(np.int64)
        score = score * (k_scale.reshape(-1)[flat] * 2).astype(np.int64)  # in units of 1/64
        order = sorted(range(n), key=lambda t: (-score[t], t))[:2048]
        n_ties += len(order) - len(np.unique(score[order]))
        np.testing.assert_array_equal(slots[b], np.concatenate((flat[order], np.full(2048 - len(order), -1))))
    assert n_ties > 0 and seq_lens[1] == 0 and 0 < seq_lens[2] < 2048 < seq_lens[0]
