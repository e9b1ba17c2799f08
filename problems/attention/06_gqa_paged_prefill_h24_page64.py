"""Grouped-query attention, causal prefill over a paged KV cache: 24 query heads, 8 KV heads, page size 64, bf16.

inputs   q             bf16 [n_queries, 24, 128]   the new tokens of all sequences, one after the other
         k_cache       bf16 [n_pages, 64, 8, 128]  v_cache likewise; the new tokens' keys are in it
         q_indptr      i32  [n_seqs + 1]           sequence b owns q[q_indptr[b] : q_indptr[b + 1]]
         kv_indptr     i32  [n_seqs + 1]           ... and kv_indices[kv_indptr[b] : kv_indptr[b + 1]]
         kv_indices    i32  [n_listed]             page numbers in token order, all different; entries past
                                                   kv_indptr[-1] are unused
         last_page_len i32  [n_seqs]               tokens in the last page, 1 to 64; 0 for an empty sequence
outputs  out           bf16 [n_queries, 24, 128]   softmax(q . k / sqrt(128)) . v over the tokens that a query sees
         lse           f32  [n_queries, 24]        natural log of the sum of exp of the scaled scores

A sequence has at least as many tokens as queries; query i of n sees the tokens 0 .. n_tokens - n + i of its sequence
(bottom-right causal), so every query sees one at least. Query head h reads KV head h // 3. Scores, exponentials and
sums are float32. What a last page holds past its length is no token. A sequence may be empty: no query, no token.
"""

from problems import precision

SOURCE = ("Llama 3.2 3B (24 query heads, 8 KV heads, head_dim 128), 16 requests with 512 new and 3584 cached tokens "
          "on average")
SIZES = {"full": {"n_seqs": 16, "n_queries": 8192, "n_cached": 57344, "n_pages": 1152},
         "small": {"n_seqs": 3, "n_queries": 40, "n_cached": 1400, "n_pages": 30}}
N_HEADS, N_KV_HEADS, HEAD_DIM, PAGE = 24, 8, 128, 64
OUTPUTS = ("bf16", "f32")
INVARIANT = ("shapes, types, scale 1/sqrt(128), the totals of queries and of tokens; "
             "lengths and page numbers are drawn, sequence 1 is empty")


def make_inputs(xp, rng, size="full"):
    s, bf16 = SIZES[size], precision.TYPES["bf16"]
    q = (rng.standard_normal((s["n_queries"], N_HEADS, HEAD_DIM), dtype=xp.float32) + 1).astype(bf16)
    shape = (s["n_pages"], PAGE, N_KV_HEADS, HEAD_DIM)
    # Keys share an offset (softmax forgets it, short sums do not); values vary about a mean.
    k = (rng.standard_normal(shape, dtype=xp.float32) + 0.6).astype(bf16)
    v = (rng.standard_normal(shape, dtype=xp.float32) + 0.25).astype(bf16)
    q_indptr = _split(xp, rng, s["n_seqs"], s["n_queries"])
    ends = q_indptr + _split(xp, rng, s["n_seqs"], s["n_cached"])
    n_tokens = ends[1:] - ends[:-1]
    n_pages = (n_tokens + PAGE - 1) // PAGE
    kv_indptr = xp.concatenate((xp.zeros(1, xp.int32), xp.cumsum(n_pages).astype(xp.int32)))
    last = (n_tokens - xp.maximum(n_pages - 1, 0) * PAGE).astype(xp.int32)
    n_listed = (s["n_queries"] + s["n_cached"]) // PAGE + s["n_seqs"]
    pages = xp.argsort(rng.random(s["n_pages"], dtype=xp.float32))
    return q, k, v, q_indptr, kv_indptr, pages[:n_listed].astype(xp.int32), last


def _split(xp, rng, n_parts, total):
    """Bounds i32 [n_parts + 1] of a random division of `total`; part 1 is empty."""
    share = rng.random(n_parts, dtype=xp.float32) + 0.5
    share[1] = 0
    ends = xp.floor(xp.cumsum(share) / xp.sum(share) * total).astype(xp.int32)
    ends[-1] = total
    return xp.concatenate((xp.zeros(1, xp.int32), ends))


def reference(xp, q, k_cache, v_cache, q_indptr, kv_indptr, kv_indices, last_page_len):
    group, kind = N_HEADS // N_KV_HEADS, precision.wide_type()
    out = xp.zeros(q.shape, kind)
    lse = xp.zeros(q.shape[:2], kind)
    q_bounds, kv_bounds = q_indptr.tolist(), kv_indptr.tolist()
    for b in range(len(q_bounds) - 1):
        rows, n = slice(q_bounds[b], q_bounds[b + 1]), q_bounds[b + 1] - q_bounds[b]
        if n == 0:
            continue
        pages = kv_indices[kv_bounds[b]:kv_bounds[b + 1]]
        n_tokens = (pages.size - 1) * PAGE + int(last_page_len[b])
        keys = k_cache[pages].reshape(-1, N_KV_HEADS, HEAD_DIM)[:n_tokens].transpose(1, 2, 0)      # [kv head, d, token]
        values = v_cache[pages].reshape(-1, N_KV_HEADS, HEAD_DIM)[:n_tokens].transpose(1, 0, 2)    # [kv head, token, d]
        queries = q[rows].reshape(n, N_KV_HEADS, group, HEAD_DIM).transpose(1, 2, 0, 3)
        scores = precision.matmul(xp, queries.reshape(N_KV_HEADS, group * n, HEAD_DIM), keys) * HEAD_DIM ** -0.5
        n_seen = keys.shape[2] - n + 1 + xp.arange(n)
        seen = xp.arange(keys.shape[2]) < xp.tile(n_seen, group)[:, None]
        scores = xp.where(seen, scores, scores.dtype.type(-xp.inf))
        top = xp.max(scores, axis=-1, keepdims=True)
        weights = xp.exp(scores - top)
        norm = precision.total(xp, weights)
        mixed = precision.matmul(xp, precision.narrow(weights, "bf16"), values) / norm
        out[rows] = mixed.reshape(N_HEADS, n, HEAD_DIM).transpose(1, 0, 2)
        lse[rows] = (xp.log(norm) + top).reshape(N_HEADS, n).T
    return precision.narrow(out, "bf16"), precision.narrow(lse, "f32")


def work(size="full"):
    s = SIZES[size]
    n_tokens = s["n_queries"] + s["n_cached"]
    # On average over the lengths: a sequence's queries see its earlier tokens and half its new ones.
    n_pairs = s["n_queries"] * (s["n_cached"] + s["n_queries"] // 2) // (s["n_seqs"] - 1)
    n_bytes = 2 * HEAD_DIM * (2 * n_tokens * N_KV_HEADS + 2 * s["n_queries"] * N_HEADS)
    n_bytes += 4 * (s["n_queries"] * N_HEADS + 2 * (s["n_seqs"] + 1) + n_tokens // PAGE + s["n_seqs"])
    return {"n_bytes": n_bytes, "n_operations": 4 * n_pairs * N_HEADS * HEAD_DIM, "unit": "bf16"}
