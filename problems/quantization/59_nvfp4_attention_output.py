"""Attention output projection in nvfp4 with the residual added, Nemotron.

inputs   x        bf16 [n_tokens, n_in]            attention output, heads side by side
         residual bf16 [n_tokens, n_out]
         w        u8   [n_out, n_in]               e2m1 codes, one a byte
         w_scale  u8   [n_out, n_in / 16]          e4m3 codes, one for 16 neighbouring inputs
         w_unit   f32  [1]                         weight = code * scale * unit
         x_unit   f32  [1]                         unit in which x is quantised
outputs  out      bf16 [n_tokens, n_out]           residual + x' . w^T, summed in float32 and rounded once

x' is x through nvfp4: for 16 neighbouring inputs, scale = the e4m3 nearest to max|x| / 6 / x_unit, code = the e2m1
nearest to x / (scale * x_unit), ties to even, beyond 6 it is 6; 0 where the scale is 0.
"""

from problems import formats, precision

SOURCE = "Nemotron Nano 9B v2 in NVFP4 (40 heads of 128 into hidden size 4480); 4096 tokens"
SIZES = {"full": {"n_tokens": 4096, "n_in": 5120, "n_out": 4480}, "small": {"n_tokens": 24, "n_in": 640, "n_out": 160}}
OUTPUTS = ("bf16",)
INVARIANT = "shapes, types and units"


def make_inputs(xp, rng, size="full"):
    s, bf16 = SIZES[size], precision.TYPES["bf16"]

    def normal(*shape):
        return rng.standard_normal(shape, dtype=xp.float32)

    # Tokens and weights lean to one direction of random signs, each by its own amount: sums outgrow their terms.
    lean = xp.where(rng.random(s["n_in"], dtype=xp.float32) < 0.5, -1, 1).astype(xp.float32)
    x = normal(s["n_tokens"], s["n_in"]) + normal(s["n_tokens"], 1) * lean
    w = (normal(s["n_out"], s["n_in"]) + normal(s["n_out"], 1) * lean) * xp.float32(s["n_in"] ** -0.5)
    w_unit = xp.full(1, 12 * s["n_in"] ** -0.5 / (6 * 448), xp.float32)
    w, w_scale = formats.encode_nvfp4(xp, w, w_unit)
    residual = normal(s["n_tokens"], s["n_out"]) * xp.float32(4)
    return x.astype(bf16), residual.astype(bf16), w, w_scale, w_unit, xp.full(1, 12 / (6 * 448), xp.float32)


def reference(xp, x, residual, w, w_scale, w_unit, x_unit):
    x = formats.decode_nvfp4(xp, *formats.encode_nvfp4(xp, precision.wide(x), x_unit), x_unit)
    y = precision.matmul(xp, x, formats.decode_nvfp4(xp, w, w_scale, w_unit).T)
    return precision.narrow(precision.wide(residual) + y, "bf16")


def work(size="full"):
    s = SIZES[size]
    n_bytes = 2 * s["n_tokens"] * (s["n_in"] + 2 * s["n_out"]) + s["n_in"] * s["n_out"] * 17 // 16 + 8
    return {"n_bytes": n_bytes, "n_operations": 2 * s["n_tokens"] * s["n_in"] * s["n_out"], "unit": "bf16"}
