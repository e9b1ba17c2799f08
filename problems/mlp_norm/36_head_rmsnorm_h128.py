"""RMSNorm of every head of 128 on its own, Qwen3 30B queries, bf16.

inputs   x       bf16 [n_tokens, n_heads, 128]
         weight  bf16 [128]                        one gain for all heads
outputs  y       bf16 [n_tokens, n_heads, 128]     x / sqrt(mean(x^2) + 1e-6) * weight over the last axis

The mean of squares and the scaling are float32. A head of zeros gives zeros.
"""

from problems import precision

SOURCE = "Qwen3 30B-A3B: 32 query heads, head_dim 128, rms_norm_eps 1e-6; a prefill of 16384 tokens"
SIZES = {"full": {"n_tokens": 16384, "n_heads": 32}, "small": {"n_tokens": 32, "n_heads": 32}}
HEAD_DIM, EPS = 128, 1e-6
OUTPUTS = ("bf16",)
INVARIANT = "shapes, types and eps"


def make_inputs(xp, rng, size="full"):
    s, bf16 = SIZES[size], precision.TYPES["bf16"]
    x = rng.standard_normal((s["n_tokens"], s["n_heads"], HEAD_DIM), dtype=xp.float32)
    x = x * xp.float32(0.75)
    x[..., 0] += 17.5      # a loud channel, as trained heads have: next to its square a short accumulator drops the rest
    weight = rng.standard_normal(HEAD_DIM, dtype=xp.float32) * xp.float32(0.25) + 1
    return x.astype(bf16), weight.astype(bf16)


def reference(xp, x, weight):
    x = precision.wide(x)
    y = x / xp.sqrt(precision.total(xp, x * x) / HEAD_DIM + EPS) * precision.wide(weight)
    return precision.narrow(y, "bf16")


def work(size="full"):
    s = SIZES[size]
    n_values = s["n_tokens"] * s["n_heads"] * HEAD_DIM
    return {"n_bytes": 2 * (2 * n_values + HEAD_DIM), "n_operations": 5 * n_values, "unit": "f32"}
