"""Per-head RMSNorm of queries and keys + partial rotary embedding + write to a paged KV cache, GLM-4, bf16.

inputs   qkv       bf16 [n_tokens, 112, 128]      96 query heads, then 8 key heads, then 8 value heads
         q_weight  bf16 [128]                     norm weights, one set for all heads; k_weight likewise
         positions i64  [n_tokens]
         cos, sin  f32  [32768, 32]               rotary factors by position
         slots     i64  [n_tokens]                page * 64 + place of each token, all different; -1: not to be cached
         k_cache   bf16 [n_pages, 64, 8, 128]     v_cache likewise
outputs  q         bf16 [n_tokens, 96, 128]       normed and turned
         k_cache, v_cache                         as the inputs, but for the slots written; the inputs stay as they are

Queries and keys: x / sqrt(mean(x^2) + 1e-5) * weight over the 128 of a head, in float32 and not rounded in between;
then of the first 64 values, halves a and b of 32, (a, b) becomes (a cos - b sin, b cos + a sin); the other 64 stay.
Values are written as they are.
"""

from problems import precision

SOURCE = ("GLM-4.5 (96 query heads, 8 KV heads, head_dim 128, QK-norm, partial rotary 0.5, eps 1e-5); 8192 prefill "
          "tokens")
SIZES = {"full": {"n_tokens": 8192, "n_pages": 256}, "small": {"n_tokens": 24, "n_pages": 2}}
N_HEADS, N_KV_HEADS, HEAD_DIM, ROTARY, PAGE, EPS, MAX_POSITION = 96, 8, 128, 64, 64, 1e-5, 32768
OUTPUTS = ("bf16", "bf16", "bf16")
INVARIANT = "shapes, types, eps and the rotary table; positions and slots are drawn, token 1 is not to be cached"


def make_inputs(xp, rng, size="full"):
    s, bf16 = SIZES[size], precision.TYPES["bf16"]

    def normal(*shape, mean=0.0, std=1.0):
        return rng.standard_normal(shape, dtype=xp.float32) * xp.float32(std) + xp.float32(mean)

    qkv = normal(s["n_tokens"], N_HEADS + 2 * N_KV_HEADS, HEAD_DIM)
    qkv[..., 0] += 20  # an outlier channel, as trained models have: its square dwarfs the rest
    q_weight, k_weight = (normal(HEAD_DIM, mean=1.0, std=0.1).astype(bf16) for _ in range(2))
    positions = rng.integers(0, MAX_POSITION, s["n_tokens"]).astype(xp.int64)
    angle = xp.arange(MAX_POSITION)[:, None] / 1e6 ** (xp.arange(ROTARY // 2) / (ROTARY // 2))
    slots = xp.argsort(rng.random(s["n_pages"] * PAGE, dtype=xp.float32))[:s["n_tokens"]].astype(xp.int64)
    slots[1] = -1
    k_cache, v_cache = (normal(s["n_pages"], PAGE, N_KV_HEADS, HEAD_DIM, mean=0.5).astype(bf16) for _ in range(2))
    return (qkv.astype(bf16), q_weight, k_weight, positions, xp.cos(angle).astype(xp.float32),
            xp.sin(angle).astype(xp.float32), slots, k_cache, v_cache)


def reference(xp, qkv, q_weight, k_weight, positions, cos, sin, slots, k_cache, v_cache):
    cos, sin = precision.wide(cos[positions])[:, None], precision.wide(sin[positions])[:, None]

    def normed(x, weight):
        x = precision.wide(x)
        x = x / xp.sqrt(precision.total(xp, x * x) / HEAD_DIM + EPS) * precision.wide(weight)
        a, b, rest = x[..., :ROTARY // 2], x[..., ROTARY // 2:ROTARY], x[..., ROTARY:]
        return precision.narrow(xp.concatenate((a * cos - b * sin, b * cos + a * sin, rest), axis=-1), "bf16")

    def written(cache, rows):
        new = cache.copy().reshape(-1, N_KV_HEADS, HEAD_DIM)
        new[slots[kept]] = rows[kept]
        return new.reshape(cache.shape)

    kept = slots >= 0
    q = normed(qkv[:, :N_HEADS], q_weight)
    k = normed(qkv[:, N_HEADS:N_HEADS + N_KV_HEADS], k_weight)
    return q, written(k_cache, k), written(v_cache, qkv[:, N_HEADS + N_KV_HEADS:])


def work(size="full"):
    s = SIZES[size]
    cache = 2 * s["n_pages"] * PAGE * N_KV_HEADS * HEAD_DIM
    written = 2 * s["n_tokens"] * N_KV_HEADS * HEAD_DIM
    n_bytes = 2 * (s["n_tokens"] * (2 * N_HEADS + 2 * N_KV_HEADS) * HEAD_DIM + 2 * HEAD_DIM)
    n_bytes += 2 * (2 * cache - written) + s["n_tokens"] * (16 + 4 * ROTARY)  # what is written over need not be read
    return {"n_bytes": n_bytes, "n_operations": 6 * s["n_tokens"] * (N_HEADS + N_KV_HEADS) * HEAD_DIM, "unit": "f32"}
