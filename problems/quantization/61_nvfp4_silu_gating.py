"""Gated MLP entry in nvfp4: gate and up projections, SiLU gating, and back to nvfp4, Qwen3 8B.

inputs   x               u8  [n_tokens, n_in]            e2m1 codes, one a byte
         x_scale         u8  [n_tokens, n_in / 16]       e4m3 codes, one for 16 neighbouring inputs
         gate_w, up_w    u8  [n_out, n_in]               e2m1 codes
         gate_scale, up_scale  u8 [n_out, n_in / 16]     e4m3 codes
         x_unit, w_unit  f32 [1]                         value = code * scale * unit; one unit for both weights
         h_unit          f32 [1]                         unit in which h is quantised
outputs  h               e2m1 codes (u8) [n_tokens, n_out]
         h_scale         e4m3 codes (u8) [n_tokens, n_out / 16]

gate = x . gate_w^T and up = x . up_w^T, summed in float32; h = gate / (1 + exp(-gate)) * up, not rounded before it is
quantised: for 16 neighbouring values, scale = the e4m3 nearest to max|h| / 6 / h_unit, code = the e2m1 nearest to h /
(scale * h_unit), ties to even, beyond 6 it is 6; 0 where the scale is 0.
"""

from problems import formats, precision

SOURCE = "Qwen3 8B in NVFP4 (hidden 4096, intermediate 12288); 1024 tokens"
SIZES = {"full": {"n_tokens": 1024, "n_in": 4096, "n_out": 12288}, "small": {"n_tokens": 24, "n_in": 640, "n_out": 256}}
OUTPUTS = ("e2m1", "e4m3")
INVARIANT = "shapes, types and units"


def make_inputs(xp, rng, size="full"):
    s = SIZES[size]

    def normal(*shape):
        return rng.standard_normal(shape, dtype=xp.float32)

    # Tokens and weights lean to one direction of random signs, each by its own amount: sums outgrow their terms.
    lean = xp.where(rng.random(s["n_in"], dtype=xp.float32) < 0.5, -1, 1).astype(xp.float32)
    lean_by = (9 / s["n_in"]) ** 0.25                       # sums lean by 3 at any width
    x_unit, w_unit = (xp.full(1, 8 * width / (6 * 448), xp.float32) for width in (1, s["n_in"] ** -0.5))
    x = normal(s["n_tokens"], s["n_in"]) + normal(s["n_tokens"], 1) * lean * xp.float32(lean_by)
    x, x_scale = formats.encode_nvfp4(xp, x, x_unit)

    def weights():
        w = normal(s["n_out"], s["n_in"]) + normal(s["n_out"], 1) * lean * xp.float32(lean_by)
        return formats.encode_nvfp4(xp, w * xp.float32(s["n_in"] ** -0.5), w_unit)

    (gate_w, gate_scale), (up_w, up_scale) = weights(), weights()
    return x, x_scale, gate_w, up_w, gate_scale, up_scale, x_unit, w_unit, xp.full(1, 400 / (6 * 448), xp.float32)


def reference(xp, x, x_scale, gate_w, up_w, gate_scale, up_scale, x_unit, w_unit, h_unit):
    values = formats.decode_nvfp4(xp, x, x_scale, x_unit)
    gate = precision.matmul(xp, values, formats.decode_nvfp4(xp, gate_w, gate_scale, w_unit).T)
    up = precision.matmul(xp, values, formats.decode_nvfp4(xp, up_w, up_scale, w_unit).T)
    return formats.encode_nvfp4(xp, gate / (1 + xp.exp(-gate)) * up, h_unit)


def work(size="full"):
    s = SIZES[size]
    n_bytes = (s["n_in"] * (s["n_tokens"] + 2 * s["n_out"]) + s["n_tokens"] * s["n_out"]) * 17 // 16 + 12
    return {"n_bytes": n_bytes, "n_operations": 4 * s["n_tokens"] * s["n_in"] * s["n_out"], "unit": "bf16"}
