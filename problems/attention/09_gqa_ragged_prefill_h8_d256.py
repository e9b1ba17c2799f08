"""Grouped-query attention, causal prefill over packed sequences: 8 query heads, 1 KV head of dimension 256, bf16.

inputs   q         bf16 [n_queries, 8, 256]  the new tokens of all sequences, one after the other
         k         bf16 [n_tokens, 1, 256]   v likewise; a sequence's new tokens are its last ones
         q_indptr  i32  [n_seqs + 1]         sequence b owns q[q_indptr[b] : q_indptr[b + 1]]
         kv_indptr i32  [n_seqs + 1]         ... and k[kv_indptr[b] : kv_indptr[b + 1]], v likewise
outputs  out       bf16 [n_queries, 8, 256]  softmax(q . k / sqrt(256)) . v over the tokens that a query sees
         lse       f32  [n_queries, 8]       natural log of the sum of exp of the scaled scores

A sequence has at least as many tokens as queries; query i of n sees the tokens 0 .. n_tokens - n + i of its sequence
(bottom-right causal), so every query sees one at least. All query heads read the one KV head. Scores, exponentials and
sums are float32. A sequence may be empty: no query, no token.
"""

from problems import precision

SOURCE = ("Gemma 2B (8 query heads, 1 KV head, head_dim 256), 16 requests with 1024 new and 1024 earlier tokens on "
          "average")
SIZES = {"full": {"n_seqs": 16, "n_queries": 16384, "n_earlier": 16384},
         "small": {"n_seqs": 3, "n_queries": 40, "n_earlier": 1400}}
N_HEADS, N_KV_HEADS, HEAD_DIM = 8, 1, 256
OUTPUTS = ("bf16", "f32")
INVARIANT = ("shapes, types, scale 1/sqrt(256), the totals of queries and of tokens; "
             "lengths are drawn, sequence 1 is empty")


def make_inputs(xp, rng, size="full"):
    s, bf16 = SIZES[size], precision.TYPES["bf16"]
    q = (rng.standard_normal((s["n_queries"], N_HEADS, HEAD_DIM), dtype=xp.float32) + 1).astype(bf16)
    shape = (s["n_queries"] + s["n_earlier"], N_KV_HEADS, HEAD_DIM)
    # Keys share an offset (softmax forgets it, short sums do not); values vary about a mean.
    k = (rng.standard_normal(shape, dtype=xp.float32) + 0.6).astype(bf16)
    v = (rng.standard_normal(shape, dtype=xp.float32) + 0.25).astype(bf16)
    q_indptr = _split(xp, rng, s["n_seqs"], s["n_queries"])
    kv_indptr = q_indptr + _split(xp, rng, s["n_seqs"], s["n_earlier"])
    return q, k, v, q_indptr, kv_indptr.astype(xp.int32)


def _split(xp, rng, n_parts, total):
    """Bounds i32 [n_parts + 1] of a random division of `total`; part 1 is empty."""
    share = rng.random(n_parts, dtype=xp.float32) + 0.5
    share[1] = 0
    ends = xp.floor(xp.cumsum(share) / xp.sum(share) * total).astype(xp.int32)
    ends[-1] = total
    return xp.concatenate((xp.zeros(1, xp.int32), ends))


def reference(xp, q, k, v, q_indptr, kv_indptr):
    group, kind = N_HEADS // N_KV_HEADS, precision.wide_type()
    out = xp.zeros(q.shape, kind)
    lse = xp.zeros(q.shape[:2], kind)
    q_bounds, kv_bounds = q_indptr.tolist(), kv_indptr.tolist()
    for b in range(len(q_bounds) - 1):
        rows, n = slice(q_bounds[b], q_bounds[b + 1]), q_bounds[b + 1] - q_bounds[b]
        if n == 0:
            continue
        tokens = slice(kv_bounds[b], kv_bounds[b + 1])
        keys = k[tokens].transpose(1, 2, 0)                              # [kv head, d, token]
        values = v[tokens].transpose(1, 0, 2)                            # [kv head, token, d]
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
    n_tokens = s["n_queries"] + s["n_earlier"]
    # On average over the lengths: a sequence's queries see its earlier tokens and half its new ones.
    n_pairs = s["n_queries"] * (s["n_earlier"] + s["n_queries"] // 2) // (s["n_seqs"] - 1)
    n_bytes = 2 * HEAD_DIM * (2 * n_tokens * N_KV_HEADS + 2 * s["n_queries"] * N_HEADS)
    n_bytes += 4 * (s["n_queries"] * N_HEADS + 2 * (s["n_seqs"] + 1))
    return {"n_bytes": n_bytes, "n_operations": 4 * n_pairs * N_HEADS * HEAD_DIM, "unit": "bf16"}
