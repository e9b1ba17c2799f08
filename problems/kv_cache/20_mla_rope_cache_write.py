"""Rotary embedding of multi-head latent attention + write of latent and rotary key to the compressed cache, bf16.

inputs   q_pe      bf16 [n_tokens, 128, 64]     rotary part of the queries
         k_pe      bf16 [n_tokens, 64]          rotary key, shared by all heads
         kv_c      bf16 [n_tokens, 512]         latent
         positions i64  [n_tokens]              0 to 32767
         inv_freq  f32  [32]                    angle of pair i at position p: p * inv_freq[i], in radians
         slots     i64  [n_tokens]              page * 64 + place of each token, all different; -1: not to be cached
         cache     bf16 [n_pages, 64, 576]      512 latent values, then 64 of the rotary key
outputs  q_pe      bf16 [n_tokens, 128, 64]     turned
         cache     bf16 [n_pages, 64, 576]      as the input, but for the slots written; the input stays as it is

Neighbouring values are a pair: (x[2i], x[2i + 1]) becomes (x[2i] cos - x[2i + 1] sin, x[2i + 1] cos + x[2i] sin).
Angles, sines and products are float32.
"""

from problems import precision

SOURCE = "DeepSeek-V3 (128 heads, kv_lora_rank 512, qk_rope_head_dim 64, rope theta 10000); 16384 prefill tokens"
SIZES = {"full": {"n_tokens": 16384, "n_pages": 512}, "small": {"n_tokens": 40, "n_pages": 2}}
N_HEADS, LATENT, ROPE, PAGE, MAX_POSITION = 128, 512, 64, 64, 32768
OUTPUTS = ("bf16", "bf16")
INVARIANT = "shapes, types and inv_freq; positions and slots are drawn, token 1 is not to be cached"


def make_inputs(xp, rng, size="full"):
    s = SIZES[size]

    def normal(*shape, mean):
        return (rng.standard_normal(shape, dtype=xp.float32) + xp.float32(mean)).astype(precision.TYPES["bf16"])

    q_pe, k_pe = normal(s["n_tokens"], N_HEADS, ROPE, mean=1), normal(s["n_tokens"], ROPE, mean=1)
    kv_c = normal(s["n_tokens"], LATENT, mean=-0.5)
    positions = rng.integers(0, MAX_POSITION, s["n_tokens"]).astype(xp.int64)
    inv_freq = (10000.0 ** (-xp.arange(ROPE // 2) / (ROPE // 2))).astype(xp.float32)
    slots = xp.argsort(rng.random(s["n_pages"] * PAGE, dtype=xp.float32))[:s["n_tokens"]].astype(xp.int64)
    slots[1] = -1
    return q_pe, k_pe, kv_c, positions, inv_freq, slots, normal(s["n_pages"], PAGE, LATENT + ROPE, mean=0.5)


def reference(xp, q_pe, k_pe, kv_c, positions, inv_freq, slots, cache):
    angle = precision.wide(positions)[:, None] * precision.wide(inv_freq)
    cos, sin = xp.cos(angle), xp.sin(angle)

    def turned(x, cos, sin):
        a, b = precision.wide(x[..., 0::2]), precision.wide(x[..., 1::2])
        pairs = xp.stack((a * cos - b * sin, b * cos + a * sin), axis=-1)
        return precision.narrow(pairs.reshape(x.shape), "bf16")

    kept = slots >= 0
    row = xp.concatenate((kv_c, turned(k_pe, cos, sin)), axis=-1)
    new = cache.copy().reshape(-1, LATENT + ROPE)
    new[slots[kept]] = row[kept]
    return turned(q_pe, cos[:, None], sin[:, None]), new.reshape(cache.shape)


def work(size="full"):
    s = SIZES[size]
    row = 2 * (LATENT + ROPE)
    n_bytes = s["n_tokens"] * (2 * 2 * N_HEADS * ROPE + row + 16) + 2 * ROPE
    n_bytes += row * (2 * s["n_pages"] * PAGE - s["n_tokens"])  # what is written over need not be read
    return {"n_bytes": n_bytes, "n_operations": 3 * s["n_tokens"] * (N_HEADS + 1) * ROPE, "unit": "f32"}
