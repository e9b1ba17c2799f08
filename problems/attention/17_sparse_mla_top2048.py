"""Sparse latent attention (MLA) over 2048 given tokens a query: 16 heads, paged cache, page size 64, bf16.

inputs   q_nope    bf16 [n_queries, 16, 512]   queries carried into the latent space (absorbed projection)
         q_pe      bf16 [n_queries, 16, 64]    their rotary part
         ckv_cache bf16 [n_pages, 64, 512]     latents: keys and values at once, shared by all heads
         kpe_cache bf16 [n_pages, 64, 64]      rotary keys, shared by all heads
         slots     i32  [n_queries, 2048]      page * 64 + place of each token to attend to; -1 stands for none
outputs  out       bf16 [n_queries, 16, 512]   softmax((q_nope . ckv + q_pe . kpe) / sqrt(192)) . ckv over those tokens
         lse       f32  [n_queries, 16]        natural log of the sum of exp of the scaled scores

The slots of a query are all different and in no order; -1 may stand anywhere. A query may have none at all: then its
`out` is 0 and its `lse` is -inf. Scores, exponentials and sums are float32.
"""

from problems import precision

SOURCE = ("DeepSeek-V3.2 (index_topk 2048, kv_lora_rank 512, qk_rope_head_dim 64, 128 heads) under tensor "
          "parallelism 8: "
          "16 heads a device; 128 decoding queries over 262144 cached tokens")
SIZES = {"full": {"n_queries": 128, "n_pages": 4096}, "small": {"n_queries": 4, "n_pages": 40}}
N_HEADS, LATENT, ROPE, PAGE, TOP = 16, 512, 64, 64, 2048
SCALE = (128 + ROPE) ** -0.5
OUTPUTS = ("bf16", "f32")
INVARIANT = "shapes, types, scale 1/sqrt(192); slots are drawn, query 1 has none, query 2 has a quarter of 2048"


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
    # A stride that shares no factor with the number of slots visits different ones: no two of a query's are equal.
    n_slots = s["n_pages"] * PAGE
    first = rng.integers(0, n_slots, (s["n_queries"], 1)).astype(xp.int64)
    stride = rng.integers(0, n_slots // 30, (s["n_queries"], 1)).astype(xp.int64) * 30 + 1
    slots = (first + stride * xp.arange(TOP)) % n_slots
    absent = rng.random((s["n_queries"], TOP), dtype=xp.float32) < 0.02
    absent[1] = True
    absent[2] = rng.random(TOP, dtype=xp.float32) < 0.75
    return q_nope, q_pe, ckv, kpe, xp.where(absent, -1, slots).astype(xp.int32)


def reference(xp, q_nope, q_pe, ckv_cache, kpe_cache, slots):
    given = slots >= 0
    place = xp.maximum(slots, 0)
    ckv = ckv_cache.reshape(-1, LATENT)[place]                                     # [query, 2048, 512]
    kpe = kpe_cache.reshape(-1, ROPE)[place]
    scores = precision.matmul(xp, q_nope, ckv.transpose(0, 2, 1)) + precision.matmul(xp, q_pe, kpe.transpose(0, 2, 1))
    scores = xp.where(given[:, None], scores * SCALE, scores.dtype.type(-xp.inf))
    some = given.any(axis=1)[:, None, None]
    top = xp.where(some, xp.max(scores, axis=-1, keepdims=True), scores.dtype.type(0))
    weights = xp.exp(scores - top)
    norm = precision.total(xp, weights)
    norm = xp.where(some, norm, norm.dtype.type(1))
    out = precision.matmul(xp, precision.narrow(weights, "bf16"), ckv) / norm
    lse = xp.where(some, xp.log(norm) + top, norm.dtype.type(-xp.inf))[..., 0]
    return precision.narrow(out, "bf16"), precision.narrow(lse, "f32")


def work(size="full"):
    s = SIZES[size]
    n_tokens = int(TOP * (0.98 * (s["n_queries"] - 2) + 0.25))                     # on average
    n_bytes = 2 * n_tokens * (LATENT + ROPE) + 2 * s["n_queries"] * N_HEADS * (2 * LATENT + ROPE)
    n_bytes += 4 * s["n_queries"] * (N_HEADS + TOP)
    return {"n_bytes": n_bytes, "n_operations": 2 * n_tokens * N_HEADS * (2 * LATENT + ROPE), "unit": "bf16"}
