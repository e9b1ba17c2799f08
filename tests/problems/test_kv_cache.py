"""KV-cache problems 19 to 26: the quality bar, and each cache against one built token by token in plain Python."""

import ml_dtypes
import numpy as np
import pytest

from runner import catalogue
from tests.problems.support import close, exact, f64, inputs, nearest, quality

NUMBERS = range(19, 27)


@pytest.mark.parametrize("number", NUMBERS)
def test_keeps_the_quality_bar(number):
    assert quality(number).faults == ()


def own(number: int, drawn: tuple):
    return catalogue.problem(number).module.reference(np, *drawn)


def test_qk_norm_rope_write_token_by_token():
    qkv, q_weight, k_weight, positions, cos, sin, slots, k_cache, v_cache = drawn = inputs(19)
    q, new_k, new_v = exact(19, *drawn)
    due_k, due_v = f64(k_cache), f64(v_cache)

    def head(x, weight, t):
        x = f64(x) / np.sqrt(np.mean(f64(x) ** 2) + 1e-5) * f64(weight)
        turned = (x[:32] + 1j * x[32:64]) * (f64(cos[positions[t]]) + 1j * f64(sin[positions[t]]))
        return np.concatenate((turned.real, turned.imag, x[64:]))

    for t, slot in enumerate(slots):
        close(q[t, 95], head(qkv[t, 95], q_weight, t))
        if slot >= 0:
            due_k[slot // 64, slot % 64] = [head(qkv[t, 96 + h], k_weight, t) for h in range(8)]
            due_v[slot // 64, slot % 64] = f64(qkv[t, 104:])
    close(new_k, due_k)
    close(new_v, due_v)
    assert slots[1] == -1 and len(np.unique(slots)) == len(slots)


def test_latent_cache_write_turns_pairs_as_complex_numbers():
    q_pe, k_pe, kv_c, positions, inv_freq, slots, cache = drawn = inputs(20)
    q, new = exact(20, *drawn)
    turn = np.exp(1j * positions[:, None] * f64(inv_freq))

    def turned(x, turn):
        pairs = (f64(x[..., 0::2]) + 1j * f64(x[..., 1::2])) * turn
        return np.stack((pairs.real, pairs.imag), axis=-1).reshape(x.shape)

    close(q, turned(q_pe, turn[:, None]))
    due = f64(cache)
    for t, slot in enumerate(slots):
        if slot >= 0:
            due[slot // 64, slot % 64] = np.concatenate((f64(kv_c[t]), turned(k_pe, turn)[t]))
    close(new, due)
    assert slots[1] == -1


def test_quantised_append_rounds_as_ml_dtypes_and_leaves_the_rest():
    k, v, slots, *caches = drawn = inputs(21)
    k_cache, v_cache, k_scale, v_scale = caches
    outputs = exact(21, *drawn)
    sides = (k, k_cache, k_scale, *outputs[:2]), (v, v_cache, v_scale, *outputs[2:])
    for x, codes, scales, got_codes, got_scales in sides:
        due_codes, due_scales = codes.copy(), f64(scales)
        for t, slot in enumerate(slots):
            for h in range(8 if slot >= 0 else 0):
                row = f64(x[t, h])
                scale = np.abs(row).max() / 448 or 1.0
                due_scales[slot // 64, slot % 64, h] = scale
                due_codes[slot // 64, slot % 64, h] = nearest(row / scale, ml_dtypes.float8_e4m3fn)
        close(got_scales, due_scales)
        np.testing.assert_array_equal(got_codes, due_codes)
    assert slots[1] == -1 and outputs[1].reshape(-1, 8)[slots[2], 0] == 1
    assert not outputs[0].reshape(-1, 8, 128)[slots[2], 0].any()


def test_dual_insert_moves_each_token_to_its_two_places():
    k, v, index_k, slots, index_slots, kv_cache, index_cache = drawn = inputs(22)
    new_kv, new_index = own(22, drawn)
    due_kv, due_index = kv_cache.copy(), index_cache.copy()
    for t in range(len(k)):
        if slots[t] >= 0:
            due_kv[slots[t] // 64, 0, slots[t] % 64], due_kv[slots[t] // 64, 1, slots[t] % 64] = k[t], v[t]
        if index_slots[t] >= 0:
            due_index[index_slots[t] // 64, index_slots[t] % 64] = index_k[t]
    np.testing.assert_array_equal(new_kv, due_kv)
    np.testing.assert_array_equal(new_index, due_index)
    assert slots[2] == -1 and index_slots[2] >= 0 and index_slots[1] == -1


def test_latent_gather_reads_the_packed_bytes_token_by_token():
    cache, table, bounds = drawn = inputs(23)
    (rows,) = exact(23, *drawn)
    assert bounds[1] == bounds[2] and (table[1] == -1).all()
    for b in (0, 2, 3):
        for t in (0, (bounds[b + 1] - bounds[b]) // 2, bounds[b + 1] - bounds[b] - 1):
            packed = cache[table[b, t // 64], t % 64].tobytes()
            codes = np.frombuffer(packed[:512], ml_dtypes.float8_e4m3fn).astype(np.float64)
            scales = np.frombuffer(packed[512:528], "<f4").astype(np.float64)
            rope = np.frombuffer(packed[528:], ml_dtypes.bfloat16).astype(np.float64)
            due = np.concatenate((codes * scales.repeat(128), rope))
            np.testing.assert_array_equal(rows[bounds[b] + t], due)


def test_context_parallel_gather_deals_tokens_round_robin():
    shards, scale, table, bounds = drawn = inputs(24)
    (rows,) = exact(24, *drawn)
    assert bounds[1] == bounds[2]
    for b in (0, 2, 3):
        for t in range(0, bounds[b + 1] - bounds[b], 37):
            rank, held = t % 8, t // 8
            codes = shards[rank, table[b, held // 64], held % 64].view(ml_dtypes.float8_e4m3fn).astype(np.float64)
            np.testing.assert_array_equal(rows[bounds[b] + t], codes * np.float64(scale[rank]))


def test_block_copies_all_read_the_old_content():
    cache, pairs = inputs(25)
    got, due = own(25, (cache, pairs)), cache.copy()
    for source, target in pairs.tolist():
        if source >= 0:
            due[:, target] = cache[:, source]
    np.testing.assert_array_equal(got, due)
    targets = pairs[pairs[:, 0] >= 0, 1]
    assert len(np.unique(targets)) == len(targets) and (pairs[1] == -1).all()
    assert (pairs[-1] == pairs[-2][::-1]).all() and not np.array_equal(got[:, pairs[-1, 1]], cache[:, pairs[-1, 1]])


def test_block_tables_request_by_request():
    tables, n_blocks, new_blocks, n_new, n_computed, start, positions, sizes, windows = drawn = inputs(26)
    updated, counts, slots = own(26, drawn)
    due = [[list(row) for row in group] for group in tables.tolist()]
    due_slots = np.full(slots.shape, -1)
    n_gone = 0
    for g in range(4):
        for b in range(len(n_computed)):
            for i in range(n_new[g, b]):
                due[g][b][n_blocks[g, b] + i] = new_blocks[g, b, i]
            for j in range(len(due[g][b])):
                if windows[g] and j * sizes[g] + sizes[g] - 1 < n_computed[b] - windows[g] + 1:
                    due[g][b][j], n_gone = 0, n_gone + 1
            for i in range(start[b + 1] - start[b]):
                position = n_computed[b] + i
                assert positions[start[b] + i] == position
                due_slots[g, start[b] + i] = int(due[g][b][position // sizes[g]]) * int(sizes[g]) + position % sizes[g]
    np.testing.assert_array_equal(updated, due)
    np.testing.assert_array_equal(counts, n_blocks + n_new)
    np.testing.assert_array_equal(slots, due_slots)
    assert n_gone > 0 and start[1] == start[2] and slots.max() > 1 << 24 and (positions[start[-1] :] == -1).all()


def test_new_tokens_never_stand_in_a_block_that_has_left_the_window():
    *_, sizes, windows = drawn = inputs(26)
    _, _, slots = own(26, drawn)
    n_tokens = drawn[5][-1]
    assert (slots[:, :n_tokens] >= sizes[:, None]).all()
