"""Latent attention (MLA), one decoding step over a paged cache: 16 heads, latent 512 + rope 64, page size 1, bf16.

inputs   q_nope     bf16 [n_seqs, 16, 512]    queries already carried into the latent space (absorbed projection)
         q_pe       bf16 [n_seqs, 16, 64]     their rotary part
         ckv_cache  bf16 [n_pages, 1, 512]    latents: keys and values at once, shared by all heads
         kpe_cache  bf16 [n_pages, 1, 64]     rotary keys, shared by all heads
         kv_indptr  i32  [n_seqs + 1]         sequence b owns kv_indices[kv_indptr[b] : kv_indptr[b + 1]]
         kv_indices i32  [n_tokens]           page numbers in token order, all different; unused pages exist
outputs  out        bf16 [n_seqs, 16, 512]    softmax((q_nope . ckv + q_pe . kpe) / sqrt(192)) . ckv
         lse        f32  [n_seqs, 16]         natural log of the sum of exp of the scaled scores

The scale is that of the heads before absorption, 128 + 64 wide. Scores, exponentials and sums are float32. A sequence
may be empty: then its `out` is 0 and its `lse` is -inf.
"""

from problems import precision

SOURCE = ("DeepSeek-V3 (128 heads, kv_lora_rank 512, qk_rope_head_dim 64) under tensor parallelism 8: 16 heads a "
          "device; "
          "a decoding batch of 128 with 2048 tokens each on average")
SIZES = {"full": {"n_seqs": 128, "n_tokens": 262144, "n_pages": 294912},
         "small": {"n_seqs": 4, "n_tokens": 1800, "n_pages": 2048}}
N_HEADS, LATENT, ROPE, PAGE = 16, 512, 64, 1
SCALE = (128 + ROPE) ** -0.5
OUTPUTS = ("bf16", "f32")
INVARIANT = ("shapes, types, scale 1/sqrt(192) and the total of tokens; lengths and page numbers are drawn, "
             "sequence 1 is empty")


def make_inputs(xp, rng, size="full"):
    s = SIZES[size]

    def normal(*shape, mean, std=1.0):
        x = rng.standard_normal(shape, dtype=xp.float32) * xp.float32(std) + xp.float32(mean)
        return x.astype(precision.TYPES["bf16"])

    # Latents have a mean, which softmax forgets and a short sum does not.
    q_nope = normal(s["n_seqs"], N_HEADS, LATENT, mean=0.25, std=0.5)
    q_pe = normal(s["n_seqs"], N_HEADS, ROPE, mean=0.5)
    ckv = normal(s["n_pages"], PAGE, LATENT, mean=0.4)
    kpe = normal(s["n_pages"], PAGE, ROPE, mean=0.5)
    share = rng.random(s["n_seqs"], dtype=xp.float32) + 0.5
    share[1] = 0
    ends = xp.floor(xp.cumsum(share) / xp.sum(share) * s["n_tokens"]).astype(xp.int32)
    ends[-1] = s["n_tokens"]
    indptr = xp.concatenate((xp.zeros(1, xp.int32), ends))
    indices = xp.argsort(rng.random(s["n_pages"], dtype=xp.float32))[:s["n_tokens"]].astype(xp.int32)
    return q_nope, q_pe, ckv, kpe, indptr, indices


def reference(xp, q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices):
    n_seqs, kind = q_nope.shape[0], precision.wide_type()
    out = xp.zeros((n_seqs, N_HEADS, LATENT), kind)
    lse = xp.full((n_seqs, N_HEADS), -xp.inf, kind)
    bounds = kv_indptr.tolist()
    for b in range(n_seqs):
        pages = kv_indices[bounds[b]:bounds[b + 1]]
        if pages.size == 0:
            continue
        ckv, kpe = ckv_cache[pages].reshape(-1, LATENT), kpe_cache[pages].reshape(-1, ROPE)
        scores = precision.matmul(xp, q_nope[b], ckv.T) + precision.matmul(xp, q_pe[b], kpe.T)
        scores = scores * SCALE
        top = xp.max(scores, axis=-1, keepdims=True)
        weights = xp.exp(scores - top)
        norm = precision.total(xp, weights)
        out[b] = precision.matmul(xp, precision.narrow(weights, "bf16"), ckv) / norm
        lse[b] = (xp.log(norm) + top)[:, 0]
    return precision.narrow(out, "bf16"), precision.narrow(lse, "f32")


def work(size="full"):
    s = SIZES[size]
    cache = 2 * s["n_tokens"] * (LATENT + ROPE)
    q_and_out = 2 * s["n_seqs"] * N_HEADS * (2 * LATENT + ROPE)
    return {"n_bytes": cache + q_and_out + 4 * (s["n_seqs"] * (N_HEADS + 1) + 1 + s["n_tokens"]),
            "n_operations": 2 * s["n_tokens"] * N_HEADS * (2 * LATENT + ROPE), "unit": "bf16"}
