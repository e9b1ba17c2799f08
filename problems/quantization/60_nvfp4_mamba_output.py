"""Mamba-2 output: gate, RMSNorm by groups, and output projection in nvfp4, Nemotron.

inputs   y           bf16 [n_tokens, n_in]         output of the scan
         z           bf16 [n_tokens, n_in]         gate
         norm_weight bf16 [n_in]
         w           u8   [n_out, n_in]            e2m1 codes, one a byte
         w_scale     u8   [n_out, n_in / 16]       e4m3 codes, one for 16 neighbouring inputs
         w_unit      f32  [1]                      weight = code * scale * unit
         x_unit      f32  [1]                      unit in which the normed value is quantised
outputs  out         bf16 [n_tokens, n_out]        x' . w^T, summed in float32

g = y * z / (1 + exp(-z)); x = g / sqrt(mean(g^2) + 1e-5) * norm_weight, the mean over each of 8 equal groups of
neighbouring values; all float32. x' is x through nvfp4: for 16 neighbouring inputs, scale = the e4m3 nearest to max|x|
/ 6 / x_unit, code = the e2m1 nearest to x / (scale * x_unit), ties to even, beyond 6 it is 6; 0 where the scale is 0.
"""

from problems import formats, precision

SOURCE = "Nemotron Nano 9B v2 in NVFP4 (Mamba-2: 128 heads of 80, 8 groups, eps 1e-5, hidden size 4480); 2048 tokens"
SIZES = {"full": {"n_tokens": 2048, "n_in": 10240, "n_out": 4480},
         "small": {"n_tokens": 16, "n_in": 1280, "n_out": 160}}
N_GROUPS, EPS = 8, 1e-5
OUTPUTS = ("bf16",)
INVARIANT = "shapes, types, eps, groups and units"


def make_inputs(xp, rng, size="full"):
    s, bf16 = SIZES[size], precision.TYPES["bf16"]

    def normal(*shape):
        return rng.standard_normal(shape, dtype=xp.float32)

    # Tokens and weights lean to one direction of random signs, each by its own amount: sums outgrow their terms.
    lean = xp.where(rng.random(s["n_in"], dtype=xp.float32) < 0.5, -1, 1).astype(xp.float32)
    y = normal(s["n_tokens"], s["n_in"]) + normal(s["n_tokens"], 1) * lean
    z = normal(s["n_tokens"], s["n_in"]) * xp.float32(0.5) + 1
    w = (normal(s["n_out"], s["n_in"]) + normal(s["n_out"], 1) * lean) * xp.float32(s["n_in"] ** -0.5)
    w_unit = xp.full(1, 12 * s["n_in"] ** -0.5 / (6 * 448), xp.float32)
    w, w_scale = formats.encode_nvfp4(xp, w, w_unit)
    norm_weight = 1 + normal(s["n_in"]) * xp.float32(0.2)
    return (y.astype(bf16), z.astype(bf16), norm_weight.astype(bf16), w, w_scale, w_unit,
            xp.full(1, 12 / (6 * 448), xp.float32))


def reference(xp, y, z, norm_weight, w, w_scale, w_unit, x_unit):
    z = precision.wide(z)
    gated = (precision.wide(y) * z / (1 + xp.exp(-z))).reshape(y.shape[0], N_GROUPS, -1)
    x = gated / xp.sqrt(precision.total(xp, gated * gated) / gated.shape[2] + EPS)
    x = x.reshape(y.shape) * precision.wide(norm_weight)
    x = formats.decode_nvfp4(xp, *formats.encode_nvfp4(xp, x, x_unit), x_unit)
    return precision.narrow(precision.matmul(xp, x, formats.decode_nvfp4(xp, w, w_scale, w_unit).T), "bf16")


def work(size="full"):
    s = SIZES[size]
    n_bytes = 2 * s["n_tokens"] * (2 * s["n_in"] + s["n_out"]) + 2 * s["n_in"] + s["n_in"] * s["n_out"] * 17 // 16 + 8
    return {"n_bytes": n_bytes, "n_operations": 2 * s["n_tokens"] * s["n_in"] * s["n_out"], "unit": "bf16"}
