"""Gate and up projections of an MLP with block-scaled fp8 weights, activations already in fp8, Qwen3-VL, e4m3.

inputs   x            u8  [n_tokens, n_in]               e4m3 codes
         x_scale      f32 [n_tokens, n_in / 128]         value = code * scale of its token and 128 neighbouring inputs
         gate_w, up_w u8  [n_out, n_in]                  e4m3 codes
         gate_scale, up_scale f32 [n_out / 128, n_in / 128]    weight = code * scale of its 128 x 128 block
outputs  gate, up     bf16 [n_tokens, n_out]             x . gate_w^T and x . up_w^T, summed in float32
"""

from problems import formats, precision

SOURCE = "Qwen3-VL 8B FP8 (hidden 4096, intermediate 12288, weight blocks of 128 x 128); 2048 tokens"
SIZES = {"full": {"n_tokens": 2048, "n_in": 4096, "n_out": 12288}, "small": {"n_tokens": 24, "n_in": 640, "n_out": 128}}
BLOCK = 128
OUTPUTS = ("bf16", "bf16")
INVARIANT = "shapes, types and the block size"


def make_inputs(xp, rng, size="full"):
    s = SIZES[size]

    def normal(*shape):
        return rng.standard_normal(shape, dtype=xp.float32)

    # Tokens and weights lean to one direction of random signs, each by its own amount: sums outgrow their terms.
    lean = xp.where(rng.random(s["n_in"], dtype=xp.float32) < 0.5, -1, 1).astype(xp.float32)

    def weights():
        w = (normal(s["n_out"], s["n_in"]) + normal(s["n_out"], 1) * lean) * xp.float32(s["n_in"] ** -0.5)
        blocks = w.reshape(s["n_out"] // BLOCK, BLOCK, s["n_in"] // BLOCK, BLOCK)
        scale = xp.max(xp.abs(blocks), axis=(1, 3)) / xp.float32(formats.LARGEST["e4m3"])
        return formats.encode(xp, "e4m3", blocks / scale[:, None, :, None]).reshape(w.shape), scale

    x = normal(s["n_tokens"], s["n_in"]) + normal(s["n_tokens"], 1) * lean
    x, x_scale = formats.encode_groups(xp, "e4m3", x, BLOCK)
    (gate_w, gate_scale), (up_w, up_scale) = weights(), weights()
    return x, x_scale, gate_w, up_w, gate_scale, up_scale


def reference(xp, x, x_scale, gate_w, up_w, gate_scale, up_scale):
    values = formats.decode_groups(xp, "e4m3", x, x_scale)

    def projected(w, scale):
        weight = formats.decode_blocks(xp, "e4m3", w, scale, (BLOCK, BLOCK))
        return precision.narrow(precision.matmul(xp, values, weight.T), "bf16")

    return projected(gate_w, gate_scale), projected(up_w, up_scale)


def work(size="full"):
    s = SIZES[size]
    n_bytes = s["n_tokens"] * s["n_in"] * (1 + 4 / BLOCK) + 4 * s["n_tokens"] * s["n_out"]
    n_bytes += 2 * s["n_in"] * s["n_out"] * (1 + 4 / BLOCK ** 2)
    return {"n_bytes": int(n_bytes), "n_operations": 4 * s["n_tokens"] * s["n_in"] * s["n_out"], "unit": "fp8"}
