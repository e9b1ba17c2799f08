"""Attention output projection with block-scaled fp8 weights and activations quantised on the way, Qwen3-VL, e4m3.

inputs   x       bf16 [n_tokens, n_in]                attention output, heads side by side
         w       u8   [n_out, n_in]                   e4m3 codes
         w_scale f32  [n_out / 128, n_in / 128]       weight = code * scale of its 128 x 128 block
outputs  out     bf16 [n_tokens, n_out]               x' . w^T, summed in float32

x' is x through e4m3: of each token and each 128 neighbouring inputs, scale = max|x| / 448 (1 if all are zero) in
float32, code = the e4m3 nearest to x / scale, ties to even; x' = code * scale.
"""

from problems import formats, precision

SOURCE = "Qwen3-VL 8B FP8 (32 heads of 128 into hidden size 4096, weight blocks of 128 x 128); 4096 tokens"
SIZES = {"full": {"n_tokens": 4096, "n_in": 4096, "n_out": 4096}, "small": {"n_tokens": 24, "n_in": 640, "n_out": 256}}
BLOCK = 128
OUTPUTS = ("bf16",)
INVARIANT = "shapes, types and the block size"


def make_inputs(xp, rng, size="full"):
    s = SIZES[size]

    def normal(*shape):
        return rng.standard_normal(shape, dtype=xp.float32)

    # Tokens and weights lean to one direction of random signs, each by its own amount: sums outgrow their terms.
    lean = xp.where(rng.random(s["n_in"], dtype=xp.float32) < 0.5, -1, 1).astype(xp.float32)
    x = normal(s["n_tokens"], s["n_in"]) + normal(s["n_tokens"], 1) * lean
    w = (normal(s["n_out"], s["n_in"]) + normal(s["n_out"], 1) * lean) * xp.float32(s["n_in"] ** -0.5)
    blocks = w.reshape(s["n_out"] // BLOCK, BLOCK, s["n_in"] // BLOCK, BLOCK)
    w_scale = xp.max(xp.abs(blocks), axis=(1, 3)) / xp.float32(formats.LARGEST["e4m3"])
    codes = formats.encode(xp, "e4m3", blocks / w_scale[:, None, :, None]).reshape(w.shape)
    return x.astype(precision.TYPES["bf16"]), codes, w_scale


def reference(xp, x, w, w_scale):
    codes, scales = formats.encode_groups(xp, "e4m3", precision.wide(x), BLOCK)
    weight = formats.decode_blocks(xp, "e4m3", w, w_scale, (BLOCK, BLOCK))
    return precision.narrow(precision.matmul(xp, formats.decode_groups(xp, "e4m3", codes, scales), weight.T), "bf16")


def work(size="full"):
    s = SIZES[size]
    n_bytes = 2 * s["n_tokens"] * (s["n_in"] + s["n_out"]) + s["n_in"] * s["n_out"] * (1 + 4 / BLOCK ** 2)
    return {"n_bytes": int(n_bytes), "n_operations": 2 * s["n_tokens"] * s["n_in"] * s["n_out"], "unit": "fp8"}
