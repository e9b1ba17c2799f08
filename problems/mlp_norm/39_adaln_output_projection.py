"""Adaptive LayerNorm and output projection that end a diffusion transformer, FLUX Kontext, float32.

inputs   x      f32 [n_pictures, n_tokens, n_in]
         cond   f32 [n_pictures, n_in]                     embedding of time and guidance
         w_mod  f32 [2 n_in, n_in],  b_mod f32 [2 n_in]    modulation layer, [out, in]: first n_in outputs scale, then shift
         w_out  f32 [n_out, n_in],   b_out f32 [n_out]
outputs  out    f32 [n_pictures, n_tokens, n_out]

    scale, shift = halves of silu(cond) . w_mod^T + b_mod,   silu(c) = c / (1 + exp(-c))
    n = (x - mean(x)) / sqrt(variance(x) + 1e-6)           over the n_in values of a token; the variance divides by n_in
    out = (n * (1 + scale) + shift) . w_out^T + b_out
"""

from problems import precision

SOURCE = "FLUX.1 Kontext: inner dimension 3072, 64 output channels, norm eps 1e-6; 4 pictures of 1024 x 1024 (4096 tokens each)"
SIZES = {"full": {"n_pictures": 4, "n_tokens": 4096, "n_in": 3072, "n_out": 64},
         "small": {"n_pictures": 2, "n_tokens": 24, "n_in": 512, "n_out": 64}}
EPS = 1e-6
OUTPUTS = ("f32",)
INVARIANT = "shapes, types and eps"


def make_inputs(xp, rng, size="full"):
    s = SIZES[size]
    n_in = s["n_in"]

    def normal(*shape, mean=0.0, std=1.0):
        return rng.standard_normal(shape, dtype=xp.float32) * xp.float32(std) + xp.float32(mean)

    level = normal(s["n_pictures"], s["n_tokens"], 1, std=0.5)
    return (normal(s["n_pictures"], s["n_tokens"], n_in) + level, normal(s["n_pictures"], n_in, mean=0.5),
            normal(2 * n_in, n_in, mean=0.02, std=0.5) * xp.float32(n_in ** -0.5), normal(2 * n_in, std=0.2),
            normal(s["n_out"], n_in, mean=0.1) * xp.float32(n_in ** -0.5), normal(s["n_out"], std=0.2))


def reference(xp, x, cond, w_mod, b_mod, w_out, b_out):
    x, cond = precision.wide(x), precision.wide(cond)
    n_in = x.shape[-1]
    modulation = precision.matmul(xp, cond / (1 + xp.exp(-cond)), w_mod.T) + precision.wide(b_mod)
    scale, shift = modulation[:, None, :n_in], modulation[:, None, n_in:]
    centred = x - precision.total(xp, x) / n_in
    n = centred / xp.sqrt(precision.total(xp, centred * centred) / n_in + EPS)
    out = precision.matmul(xp, n * (1 + scale) + shift, w_out.T) + precision.wide(b_out)
    return precision.narrow(out, "f32")


def work(size="full"):
    s = SIZES[size]
    n_rows, n_in = s["n_pictures"] * s["n_tokens"], s["n_in"]
    n_weights = 2 * n_in * (n_in + 1) + s["n_out"] * (n_in + 1)
    n_values = n_rows * (n_in + s["n_out"]) + s["n_pictures"] * n_in + n_weights
    n_operations = n_rows * n_in * (2 * s["n_out"] + 9) + 4 * s["n_pictures"] * n_in * n_in
    return {"n_bytes": 4 * n_values, "n_operations": n_operations, "unit": "f32"}
