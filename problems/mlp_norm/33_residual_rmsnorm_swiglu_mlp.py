"""Residual add, RMSNorm and SwiGLU MLP of one decoder layer, Hermes (Llama size), bf16.

inputs   x, residual      bf16 [n_tokens, n_in]     output of the attention; the residual stream
         weight           bf16 [n_in]               the norm's gain
         w_gate, w_up     bf16 [n_wide, n_in]       [out, in]
         w_down           bf16 [n_in, n_wide]
outputs  out              bf16 [n_tokens, n_in]     what the MLP adds to the stream (not yet added)
         new              bf16 [n_tokens, n_in]     x + residual

    r = x + residual,   n = r / sqrt(mean(r^2) + 1e-5) * weight
    g = n . w_gate^T,   u = n . w_up^T,   h = g / (1 + exp(-g)) * u,   out = h . w_down^T
Sums and elementwise mathematics are float32; the norm reads r before it is rounded; n and h are rounded to bf16 before they
are multiplied.
"""

from problems import precision

SOURCE = "Hermes 3 Llama 3.1 8B: hidden_size 4096, intermediate_size 14336, rms_norm_eps 1e-5; 2048 tokens"
SIZES = {"full": {"n_tokens": 2048, "n_in": 4096, "n_wide": 14336}, "small": {"n_tokens": 16, "n_in": 512, "n_wide": 1024}}
EPS = 1e-5
OUTPUTS = ("bf16", "bf16")
INVARIANT = "shapes, types and eps"


def make_inputs(xp, rng, size="full"):
    s, bf16 = SIZES[size], precision.TYPES["bf16"]
    n_in, n_wide = s["n_in"], s["n_wide"]

    def normal(*shape, mean=0.0, std=1.0):
        return rng.standard_normal(shape, dtype=xp.float32) * xp.float32(std) + xp.float32(mean)

    # Every token has a level of its own, and weights lean one way: sums outgrow their terms.
    level = rng.random((s["n_tokens"], 1), dtype=xp.float32) * xp.float32(0.5)
    values = (normal(s["n_tokens"], n_in) + level, normal(s["n_tokens"], n_in) + level, normal(n_in, mean=1, std=0.2),
              normal(n_wide, n_in, mean=0.1) * xp.float32(n_in ** -0.5), normal(n_wide, n_in, mean=0.1) * xp.float32(n_in ** -0.5),
              normal(n_in, n_wide, mean=0.1) * xp.float32(n_wide ** -0.5))
    return tuple(value.astype(bf16) for value in values)


def reference(xp, x, residual, weight, w_gate, w_up, w_down):
    r = precision.wide(x) + precision.wide(residual)
    n = r / xp.sqrt(precision.total(xp, r * r) / r.shape[-1] + EPS) * precision.wide(weight)
    n = precision.narrow(n, "bf16")
    g = precision.matmul(xp, n, w_gate.T)
    h = precision.narrow(g / (1 + xp.exp(-g)) * precision.matmul(xp, n, w_up.T), "bf16")
    return precision.narrow(precision.matmul(xp, h, w_down.T), "bf16"), precision.narrow(r, "bf16")


def work(size="full"):
    s = SIZES[size]
    n_values = 4 * s["n_tokens"] * s["n_in"] + 3 * s["n_in"] * s["n_wide"] + s["n_in"]
    return {"n_bytes": 2 * n_values, "n_operations": 6 * s["n_tokens"] * s["n_in"] * s["n_wide"], "unit": "bf16"}
