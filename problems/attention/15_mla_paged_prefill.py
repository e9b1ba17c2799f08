"""Latent attention (MLA), causal prefill over a paged cache: 16 heads, latent 512 + rope 64, page size 1, bf16.

inputs   q_nope     bf16 [n_queries, 16, 512]   queries of all sequences, carried into the latent space (absorbed)
         q_pe       bf16 [n_queries, 16, 64]    their rotary part
         ckv_cache  bf16 [n_pages, 1, 512]      latents: keys and values at once, shared by all heads
         kpe_cache  bf16 [n_pages, 1, 64]       rotary keys, shared by all heads
         q_indptr   i32  [n_seqs + 1]           sequence b owns the queries q_indptr[b] : q_indptr[b + 1]
         kv_indptr  i32  [n_seqs + 1]           ... and kv_indices[kv_indptr[b] : kv_indptr[b + 1]]
         kv_indices i32  [n_tokens]             page numbers in token order, all different; unused pages exist
outputs  out        bf16 [n_queries, 16, 512]   softmax((q_nope . ckv + q_pe . kpe) / sqrt(192)) . ckv
         lse        f32  [n_queries, 16]        natural log of the sum of exp of the scaled scores

The new tokens are in the cache. A sequence has at least as many tokens as queries; query i of n sees the tokens 0 ..
n_tokens - n + i of its sequence (bottom-right causal). Scores, exponentials and sums are float32. A sequence may be
empty: no query, no token.
"""

from problems import precision

SOURCE = ("DeepSeek-V3 (128 heads, kv_lora_rank 512, qk_rope_head_dim 64) under tensor parallelism 8: 16 heads a "
          "device; "
          "8 requests with 256 new and 2048 cached tokens on average")
SIZES = {"full": {"n_seqs": 8, "n_queries": 2048, "n_cached": 16384, "n_pages": 20736},
         "small": {"n_seqs": 3, "n_queries": 32, "n_cached": 1100, "n_pages": 1300}}
N_HEADS, LATENT, ROPE, PAGE = 16, 512, 64, 1
SCALE = (128 + ROPE) ** -0.5
OUTPUTS = ("bf16", "f32")
INVARIANT = ("shapes, types, scale 1/sqrt(192), the totals of queries and of tokens; "
             "lengths and page numbers are drawn, sequence 1 is empty")


def make_inputs(xp, rng, size="full"):
    s = SIZES[size]

    def normal(*shape, mean, std=1.0):
        x = rng.standard_normal(shape, dtype=xp.float32) * xp.float32(std) + xp.float32(mean)
        return x.astype(precision.TYPES["bf16"])

    # Latents have a mean, which softmax forgets and a short sum does not.
    q_nope = normal(s["n_queries"], N_HEADS, LATENT, mean=0.25, std=0.5)
    q_pe = normal(s["n_queries"], N_HEADS, ROPE, mean=0.5)
    ckv = normal(s["n_pages"], PAGE, LATENT, mean=0.4)
    kpe = normal(s["n_pages"], PAGE, ROPE, mean=0.5)
    q_indptr = _split(xp, rng, s["n_seqs"], s["n_queries"])
    kv_indptr = (q_indptr + _split(xp, rng, s["n_seqs"], s["n_cached"])).astype(xp.int32)
    pages = xp.argsort(rng.random(s["n_pages"], dtype=xp.float32))
    return q_nope, q_pe, ckv, kpe, q_indptr, kv_indptr, pages[:s["n_queries"] + s["n_cached"]].astype(xp.int32)


def _split(xp, rng, n_parts, total):
    """Bounds i32 [n_parts + 1] of a random division of `total`; part 1 is empty."""
    share = rng.random(n_parts, dtype=xp.float32) + 0.5
    share[1] = 0
    ends = xp.floor(xp.cumsum(share) / xp.sum(share) * total).astype(xp.int32)
    ends[-1] = total
    return xp.concatenate((xp.zeros(1, xp.int32), ends))


def reference(xp, q_nope, q_pe, ckv_cache, kpe_cache, q_indptr, kv_indptr, kv_indices):
    kind = precision.wide_type()
    out = xp.zeros(q_nope.shape, kind)
    lse = xp.zeros(q_nope.shape[:2], kind)
    q_bounds, kv_bounds = q_indptr.tolist(), kv_indptr.tolist()
    for b in range(len(q_bounds) - 1):
        rows, n = slice(q_bounds[b], q_bounds[b + 1]), q_bounds[b + 1] - q_bounds[b]
        if n == 0:
            continue
        pages = kv_indices[kv_bounds[b]:kv_bounds[b + 1]]
        ckv, kpe = ckv_cache[pages].reshape(-1, LATENT), kpe_cache[pages].reshape(-1, ROPE)
        scores = precision.matmul(xp, q_nope[rows].reshape(-1, LATENT), ckv.T)
        scores = (scores + precision.matmul(xp, q_pe[rows].reshape(-1, ROPE), kpe.T)) * SCALE      # [n * head, token]
        n_seen = pages.size - n + 1 + xp.arange(n)
        seen = xp.arange(pages.size) < xp.repeat(n_seen, N_HEADS)[:, None]
        scores = xp.where(seen, scores, scores.dtype.type(-xp.inf))
        top = xp.max(scores, axis=-1, keepdims=True)
        weights = xp.exp(scores - top)
        norm = precision.total(xp, weights)
        mixed = precision.matmul(xp, precision.narrow(weights, "bf16"), ckv) / norm
        out[rows] = mixed.reshape(n, N_HEADS, LATENT)
        lse[rows] = (xp.log(norm) + top).reshape(n, N_HEADS)
    return precision.narrow(out, "bf16"), precision.narrow(lse, "f32")


def work(size="full"):
    s = SIZES[size]
    n_tokens = s["n_queries"] + s["n_cached"]
    # On average over the lengths: a sequence's queries see its cached tokens and half its new ones.
    n_pairs = s["n_queries"] * (s["n_cached"] + s["n_queries"] // 2) // (s["n_seqs"] - 1)
    n_bytes = 2 * (n_tokens * (LATENT + ROPE) + s["n_queries"] * N_HEADS * (2 * LATENT + ROPE))
    n_bytes += 4 * (s["n_queries"] * N_HEADS + 2 * (s["n_seqs"] + 1) + n_tokens)
    return {"n_bytes": n_bytes, "n_operations": 2 * n_pairs * N_HEADS * (2 * LATENT + ROPE), "unit": "bf16"}
