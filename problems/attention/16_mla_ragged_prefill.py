"""Multi-head latent attention, causal prefill over ragged sequences, expanded heads: 16 heads, qk 192, v 128, bf16.

inputs   q         bf16 [n_queries, 16, 192]   the new tokens of all sequences, one after the other
         k         bf16 [n_tokens, 16, 192]    128 expanded from the latent, 64 rotary; a sequence's new tokens come
                                               last
         v         bf16 [n_tokens, 16, 128]
         q_indptr  i32  [n_seqs + 1]           sequence b owns q[q_indptr[b] : q_indptr[b + 1]]
         kv_indptr i32  [n_seqs + 1]           ... and k[kv_indptr[b] : kv_indptr[b + 1]], v likewise
outputs  out       bf16 [n_queries, 16, 128]   softmax(q . k / sqrt(192)) . v over the tokens that a query sees
         lse       f32  [n_queries, 16]        natural log of the sum of exp of the scaled scores

A sequence has at least as many tokens as queries; query i of n sees the tokens 0 .. n_tokens - n + i of its sequence
(bottom-right causal). Every head has its own keys and values. Scores, exponentials and sums are float32. A sequence may
be empty: no query, no token.
"""

from problems import precision

SOURCE = ("DeepSeek-V3 (128 heads, qk_nope 128 + qk_rope 64, v 128) under tensor parallelism 8: 16 heads a device; "
          "16 requests with 1024 new and 512 earlier tokens on average")
SIZES = {"full": {"n_seqs": 16, "n_queries": 16384, "n_earlier": 8192},
         "small": {"n_seqs": 3, "n_queries": 40, "n_earlier": 1300}}
N_HEADS, QK_DIM, V_DIM = 16, 192, 128
OUTPUTS = ("bf16", "f32")
INVARIANT = ("shapes, types, scale 1/sqrt(192), the totals of queries and of tokens; lengths are drawn, sequence 1 "
             "is empty")


def make_inputs(xp, rng, size="full"):
    s = SIZES[size]
    n_tokens = s["n_queries"] + s["n_earlier"]

    def normal(*shape, mean):
        return (rng.standard_normal(shape, dtype=xp.float32) + xp.float32(mean)).astype(precision.TYPES["bf16"])

    # Queries and keys share an offset (softmax forgets it, short sums do not); values vary about a mean.
    q, k = normal(s["n_queries"], N_HEADS, QK_DIM, mean=1), normal(n_tokens, N_HEADS, QK_DIM, mean=0.6)
    v = normal(n_tokens, N_HEADS, V_DIM, mean=0.25)
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
    kind = precision.wide_type()
    out = xp.zeros((q.shape[0], N_HEADS, V_DIM), kind)
    lse = xp.zeros(q.shape[:2], kind)
    q_bounds, kv_bounds = q_indptr.tolist(), kv_indptr.tolist()
    for b in range(len(q_bounds) - 1):
        rows, n = slice(q_bounds[b], q_bounds[b + 1]), q_bounds[b + 1] - q_bounds[b]
        if n == 0:
            continue
        tokens, n_tokens = slice(kv_bounds[b], kv_bounds[b + 1]), kv_bounds[b + 1] - kv_bounds[b]
        scores = precision.matmul(xp, q[rows].transpose(1, 0, 2), k[tokens].transpose(1, 2, 0)) * QK_DIM ** -0.5
        seen = xp.arange(n_tokens) <= (n_tokens - n + xp.arange(n))[:, None]
        scores = xp.where(seen, scores, scores.dtype.type(-xp.inf))
        top = xp.max(scores, axis=-1, keepdims=True)
        weights = xp.exp(scores - top)
        norm = precision.total(xp, weights)
        mixed = precision.matmul(xp, precision.narrow(weights, "bf16"), v[tokens].transpose(1, 0, 2)) / norm
        out[rows] = mixed.transpose(1, 0, 2)
        lse[rows] = (xp.log(norm) + top)[..., 0].T
    return precision.narrow(out, "bf16"), precision.narrow(lse, "f32")


def work(size="full"):
    s = SIZES[size]
    n_tokens = s["n_queries"] + s["n_earlier"]
    # On average over the lengths: a sequence's queries see its earlier tokens and half its new ones.
    n_pairs = s["n_queries"] * (s["n_earlier"] + s["n_queries"] // 2) // (s["n_seqs"] - 1)
    n_bytes = 2 * N_HEADS * (n_tokens + s["n_queries"]) * (QK_DIM + V_DIM)
    n_bytes += 4 * (s["n_queries"] * N_HEADS + 2 * (s["n_seqs"] + 1))
    return {"n_bytes": n_bytes, "n_operations": 2 * n_pairs * N_HEADS * (QK_DIM + V_DIM), "unit": "bf16"}
