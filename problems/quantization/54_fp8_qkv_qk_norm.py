"""QKV projection with block-scaled fp8 weights, then RMSNorm of each query and key head, Qwen3-VL, e4m3.

inputs   x        bf16 [n_tokens, n_in]
         w        u8   [6 * n_kv_heads * 128, n_in]      e4m3 codes: query heads, then key heads, then value heads
         w_scale  f32  [6 * n_kv_heads, n_in / 128]      weight = code * scale of its 128 x 128 block
         q_weight bf16 [128]                             norm weights, one set for all heads; k_weight likewise
outputs  q        bf16 [n_tokens, 4 * n_kv_heads, 128]
         k, v     bf16 [n_tokens, n_kv_heads, 128]

x' is x through e4m3: of each token and each 128 neighbouring inputs, scale = max|x| / 448 (1 if all are zero) in
float32, code = the e4m3 nearest to x / scale, ties to even; x' = code * scale. Projections are summed in float32 and
not rounded before the norm: y / sqrt(mean(y^2) + 1e-6) * weight over the 128 of a head. Values get no norm.
"""

from problems import formats, precision

SOURCE = "Qwen3-VL 8B FP8 (hidden 4096, 32 query heads, 8 KV heads, head_dim 128, QK-norm eps 1e-6); 4096 tokens"
SIZES = {"full": {"n_tokens": 4096, "n_in": 4096, "n_kv_heads": 8},
         "small": {"n_tokens": 24, "n_in": 640, "n_kv_heads": 1}}
BLOCK, HEAD_DIM, GROUP, EPS = 128, 128, 4, 1e-6           # GROUP: query heads a key head
OUTPUTS = ("bf16", "bf16", "bf16")
INVARIANT = "shapes, types, eps and the block size"


def make_inputs(xp, rng, size="full"):
    s, bf16 = SIZES[size], precision.TYPES["bf16"]

    def normal(*shape):
        return rng.standard_normal(shape, dtype=xp.float32)

    # Tokens and weights lean to one direction of random signs, each by its own amount: sums outgrow their terms.
    lean = xp.where(rng.random(s["n_in"], dtype=xp.float32) < 0.5, -1, 1).astype(xp.float32)
    x = normal(s["n_tokens"], s["n_in"]) + normal(s["n_tokens"], 1) * lean
    n_out = (GROUP + 2) * s["n_kv_heads"] * HEAD_DIM
    w = (normal(n_out, s["n_in"]) + normal(n_out, 1) * lean) * xp.float32(s["n_in"] ** -0.5)
    blocks = w.reshape(n_out // BLOCK, BLOCK, s["n_in"] // BLOCK, BLOCK)
    w_scale = xp.max(xp.abs(blocks), axis=(1, 3)) / xp.float32(formats.LARGEST["e4m3"])
    codes = formats.encode(xp, "e4m3", blocks / w_scale[:, None, :, None]).reshape(w.shape)
    q_weight, k_weight = ((1 + normal(HEAD_DIM) * xp.float32(0.2)).astype(bf16) for _ in range(2))
    return x.astype(bf16), codes, w_scale, q_weight, k_weight


def reference(xp, x, w, w_scale, q_weight, k_weight):
    codes, scales = formats.encode_groups(xp, "e4m3", precision.wide(x), BLOCK)
    weight = formats.decode_blocks(xp, "e4m3", w, w_scale, (BLOCK, BLOCK))
    y = precision.matmul(xp, formats.decode_groups(xp, "e4m3", codes, scales), weight.T)
    y = y.reshape(x.shape[0], -1, HEAD_DIM)
    n_kv_heads = y.shape[1] // (GROUP + 2)

    def normed(y, weight):
        return y / xp.sqrt(precision.total(xp, y * y) / HEAD_DIM + EPS) * precision.wide(weight)

    q, k = normed(y[:, :-2 * n_kv_heads], q_weight), normed(y[:, -2 * n_kv_heads:-n_kv_heads], k_weight)
    return tuple(xp.ascontiguousarray(precision.narrow(part, "bf16")) for part in (q, k, y[:, -n_kv_heads:]))


def work(size="full"):
    s = SIZES[size]
    n_out = (GROUP + 2) * s["n_kv_heads"] * HEAD_DIM
    n_bytes = 2 * s["n_tokens"] * (s["n_in"] + n_out) + s["n_in"] * n_out * (1 + 4 / BLOCK ** 2) + 4 * HEAD_DIM
    return {"n_bytes": int(n_bytes), "n_operations": 2 * s["n_tokens"] * s["n_in"] * n_out, "unit": "fp8"}
