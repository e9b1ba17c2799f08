"""Append of keys and values to an fp8 cache, quantised on the way with one scale a token and head (e4m3).

inputs   k, v     bf16 [n_tokens, 8, 128]
         slots    i64  [n_tokens]                 page * 64 + place of each token, all different; -1: not to be cached
         k_cache  u8   [n_pages, 64, 8, 128]      e4m3 codes; v_cache likewise
         k_scale  f32  [n_pages, 64, 8]           value = code * scale; v_scale likewise
outputs  k_cache, k_scale, v_cache, v_scale       as the inputs, but for the slots written; the inputs stay as they are

scale = max|x| / 448 over the 128 of a token's head, in float32; 1 where all are zero. code = the e4m3 nearest to
x / scale, ties to even.
"""

from problems import formats, precision

SOURCE = ("Llama 3.1 8B (8 KV heads, head_dim 128), cache type fp8_e4m3 with dynamic scales; 32768 tokens into "
          "65536 slots")
SIZES = {"full": {"n_tokens": 32768, "n_pages": 1024}, "small": {"n_tokens": 100, "n_pages": 3}}
N_KV_HEADS, HEAD_DIM, PAGE = 8, 128, 64
OUTPUTS = ("e4m3", "f32", "e4m3", "f32")
INVARIANT = "shapes and types; slots are drawn, token 1 is not to be cached, head 0 of token 2 is all zero"


def make_inputs(xp, rng, size="full"):
    s = SIZES[size]

    def rows():  # heads of unlike size, so that one scale for all would not do
        x = rng.standard_normal((s["n_tokens"], N_KV_HEADS, HEAD_DIM), dtype=xp.float32)
        x *= xp.exp(rng.standard_normal((s["n_tokens"], N_KV_HEADS, 1), dtype=xp.float32))
        x[2, 0] = 0
        return x.astype(precision.TYPES["bf16"])

    slots = xp.argsort(rng.random(s["n_pages"] * PAGE, dtype=xp.float32))[:s["n_tokens"]].astype(xp.int64)
    slots[1] = -1
    shape = (s["n_pages"], PAGE, N_KV_HEADS)
    caches = [(formats.draw(xp, rng, "e4m3", (*shape, HEAD_DIM), std=100.0),
               rng.random(shape, dtype=xp.float32) * xp.float32(0.01) + xp.float32(0.001)) for _ in range(2)]
    (k_cache, k_scale), (v_cache, v_scale) = caches
    return rows(), rows(), slots, k_cache, v_cache, k_scale, v_scale


def reference(xp, k, v, slots, k_cache, v_cache, k_scale, v_scale):
    kept = slots >= 0
    places = slots[kept]

    def appended(x, cache, scales):
        x = precision.wide(x[kept])
        largest = xp.max(xp.abs(x), axis=-1)
        scale = xp.where(largest > 0, largest / 448, largest.dtype.type(1))
        codes, steps = cache.copy().reshape(-1, N_KV_HEADS, HEAD_DIM), precision.narrow(scales, "f32").copy()
        codes[places] = formats.encode(xp, "e4m3", x / scale[..., None])
        steps.reshape(-1, N_KV_HEADS)[places] = precision.narrow(scale, "f32")
        return codes.reshape(cache.shape), steps

    return (*appended(k, k_cache, k_scale), *appended(v, v_cache, v_scale))


def work(size="full"):
    s = SIZES[size]
    row = N_KV_HEADS * (HEAD_DIM + 4)
    n_bytes = s["n_tokens"] * (2 * 2 * N_KV_HEADS * HEAD_DIM + 8) + 2 * row * (2 * s["n_pages"] * PAGE - s["n_tokens"])
    return {"n_bytes": n_bytes, "n_operations": 2 * 3 * s["n_tokens"] * N_KV_HEADS * HEAD_DIM, "unit": "f32"}
