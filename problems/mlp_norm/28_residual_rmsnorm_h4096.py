"""Fused residual add + RMSNorm over rows of 4096 (bf16): the sum is the new residual, its scaled row the output.

inputs   x          bf16 [n_tokens, 4096]    output of the layer before
         residual   bf16 [n_tokens, 4096]    the residual stream
         weight     bf16 [4096]              the norm's gain
outputs  y          bf16 [n_tokens, 4096]    h / sqrt(mean(h²) + 1e-5) · weight
         new        bf16 [n_tokens, 4096]    h = x + residual, rounded once

The mean of squares and the scaling are float32 on h before it is rounded. No row is empty; a row of zeros gives zeros.
"""

from problems import precision

SOURCE = "Llama 3.1 8B: hidden_size 4096, rms_norm_eps 1e-5; a prefill of 16384 tokens"
SIZES = {"full": {"n_tokens": 16384, "hidden": 4096}, "small": {"n_tokens": 48, "hidden": 4096}}
EPS = 1e-5
OUTPUTS = ("bf16", "bf16")
INVARIANT = "shapes, types and eps; the weight is drawn with the rest"


def make_inputs(xp, rng, size="full"):
    s, bf16 = SIZES[size], precision.TYPES["bf16"]
    shape = (s["n_tokens"], s["hidden"])
    # A mean of its own in every row makes the sum of squares long: a short accumulator stops growing.
    level = rng.random((s["n_tokens"], 1), dtype=xp.float32) + 0.5
    x = (rng.standard_normal(shape, dtype=xp.float32) + level).astype(bf16)
    residual = (rng.standard_normal(shape, dtype=xp.float32) * 0.75 + level).astype(bf16)
    weight = (rng.standard_normal(s["hidden"], dtype=xp.float32) * 0.25 + 1).astype(bf16)
    return x, residual, weight


def reference(xp, x, residual, weight):
    h = precision.wide(x) + precision.wide(residual)
    mean_square = precision.total(xp, h * h) / h.shape[-1]
    y = h / xp.sqrt(mean_square + EPS) * precision.wide(weight)
    return precision.narrow(y, "bf16"), precision.narrow(h, "bf16")


def work(size="full"):
    s = SIZES[size]
    n_values = s["n_tokens"] * s["hidden"]
    return {"n_bytes": 2 * (4 * n_values + s["hidden"]), "n_operations": 6 * n_values, "unit": "f32"}
