"""Compression to the MLA latent: block-scaled fp8 projection, RMSNorm, back to fp8, DeepSeek V3.1.

inputs   x            u8   [n_tokens, n_in]           e4m3 codes
         x_scale      f32  [n_tokens, n_in / 128]     value = code * scale of its token and 128 neighbouring inputs
         w            u8   [576, n_in]                e4m3 codes: 512 latent outputs, then 64 rotary
         w_scale      f32  [5, n_in / 128]            weight = code * scale of its 128 x 128 block; the last block has
                                                      64 rows
         norm_weight  bf16 [512]
         latent_scale f32  [1]                        the cache's scale
outputs  latent       e4m3 codes (u8) [n_tokens, 512]    the e4m3 nearest to c / latent_scale, ties to even, saturating
                                                         at 448
         k_pe         bf16 [n_tokens, 64]                rotary key, not yet turned

y = x . w^T, summed in float32; c = y / sqrt(mean(y^2) + 1e-6) * norm_weight over the 512 latent outputs, not rounded in
between.
"""

from problems import formats, precision

SOURCE = "DeepSeek-V3.1 (hidden 7168, kv_lora_rank 512, qk_rope_head_dim 64, weight blocks of 128 x 128); 8192 tokens"
SIZES = {"full": {"n_tokens": 8192, "n_in": 7168}, "small": {"n_tokens": 24, "n_in": 640}}
LATENT, ROPE, BLOCK, EPS = 512, 64, 128, 1e-6
OUTPUTS = ("e4m3", "bf16")
INVARIANT = "shapes, types, eps, the block size and the cache's scale"


def make_inputs(xp, rng, size="full"):
    s = SIZES[size]

    def normal(*shape):
        return rng.standard_normal(shape, dtype=xp.float32)

    # Tokens and weights lean to one direction of random signs, each by its own amount: sums outgrow their terms.
    lean = xp.where(rng.random(s["n_in"], dtype=xp.float32) < 0.5, -1, 1).astype(xp.float32)
    x = normal(s["n_tokens"], s["n_in"]) + normal(s["n_tokens"], 1) * lean
    x, x_scale = formats.encode_groups(xp, "e4m3", x, BLOCK)
    w = (normal(LATENT + ROPE, s["n_in"]) + normal(LATENT + ROPE, 1) * lean) * xp.float32(s["n_in"] ** -0.5)
    row_block = xp.arange(LATENT + ROPE) // BLOCK
    largest = xp.max(xp.abs(w).reshape(LATENT + ROPE, -1, BLOCK), axis=2)
    w_scale = xp.stack([xp.max(largest[b * BLOCK:(b + 1) * BLOCK], axis=0) for b in range(5)]) / xp.float32(448)
    codes = formats.encode(xp, "e4m3", w / xp.repeat(w_scale[row_block], BLOCK, axis=1))
    norm_weight = (1 + normal(LATENT) * xp.float32(0.2)).astype(precision.TYPES["bf16"])
    return x, x_scale, codes, w_scale, norm_weight, xp.full(1, 0.02, xp.float32)


def reference(xp, x, x_scale, w, w_scale, norm_weight, latent_scale):
    weight = formats.decode_blocks(xp, "e4m3", w, w_scale, (BLOCK, BLOCK))
    y = precision.matmul(xp, formats.decode_groups(xp, "e4m3", x, x_scale), weight.T)
    c, k_pe = y[:, :LATENT], y[:, LATENT:]
    c = c / xp.sqrt(precision.total(xp, c * c) / LATENT + EPS) * precision.wide(norm_weight)
    latent = formats.encode(xp, "e4m3", c / precision.wide(latent_scale))
    return latent, xp.ascontiguousarray(precision.narrow(k_pe, "bf16"))


def work(size="full"):
    s = SIZES[size]
    n_bytes = s["n_tokens"] * (s["n_in"] * (1 + 4 / BLOCK) + LATENT + 2 * ROPE)
    n_bytes += (LATENT + ROPE) * s["n_in"] + 5 * s["n_in"] // BLOCK * 4 + 2 * LATENT + 4
    return {"n_bytes": int(n_bytes), "n_operations": 2 * s["n_tokens"] * s["n_in"] * (LATENT + ROPE), "unit": "fp8"}
