"""Backward pass of residual add + RMSNorm, Qwen3 4B, bf16.

inputs   h            bf16 [n_tokens, n_in]     the sum x + residual, as the forward pass stored it
         weight       bf16 [n_in]               the norm's gain
         grad_y       bf16 [n_tokens, n_in]     gradient of the loss by y
         grad_stream  bf16 [n_tokens, n_in]     gradient of the loss by h from the layers after, through the residual stream
outputs  grad_h       bf16 [n_tokens, n_in]     gradient by x and, being the same, by residual
         grad_weight  f32  [n_in]               summed over all tokens

The forward pass: y = h * r * weight with r = 1 / sqrt(mean(h^2) + 1e-6) over each row. Hence
    s = grad_y * weight
    grad_h = grad_stream + r * (s - h * r^2 * mean(s * h))
    grad_weight = sum over tokens of grad_y * h * r
Everything is float32 until the outputs are rounded. A row of zeros has r = 1000 and is no special case.
"""

from problems import precision

SOURCE = "Qwen3 4B: hidden_size 2560, rms_norm_eps 1e-6; 16384 tokens"
SIZES = {"full": {"n_tokens": 16384, "n_in": 2560}, "small": {"n_tokens": 64, "n_in": 2560}}
EPS = 1e-6
OUTPUTS = ("bf16", "f32")
INVARIANT = "shapes, types and eps"


def make_inputs(xp, rng, size="full"):
    s, bf16 = SIZES[size], precision.TYPES["bf16"]

    def normal(*shape, mean=0.0, std=1.0):
        return rng.standard_normal(shape, dtype=xp.float32) * xp.float32(std) + xp.float32(mean)

    shape = (s["n_tokens"], s["n_in"])
    values = (normal(*shape) + normal(s["n_tokens"], 1), normal(s["n_in"], mean=1, std=0.2),
              normal(*shape, mean=0.5), normal(*shape))
    return tuple(value.astype(bf16) for value in values)


def reference(xp, h, weight, grad_y, grad_stream):
    h, grad_y = precision.wide(h), precision.wide(grad_y)
    n_in = h.shape[-1]
    r = 1 / xp.sqrt(precision.total(xp, h * h) / n_in + EPS)
    s = grad_y * precision.wide(weight)
    grad_h = precision.wide(grad_stream) + r * (s - h * r * r * (precision.total(xp, s * h) / n_in))
    grad_weight = precision.total(xp, grad_y * h * r, axis=0, keepdims=False)
    return precision.narrow(grad_h, "bf16"), precision.narrow(grad_weight, "f32")


def work(size="full"):
    s = SIZES[size]
    n_values = s["n_tokens"] * s["n_in"]
    return {"n_bytes": 2 * 4 * n_values + 6 * s["n_in"], "n_operations": 13 * n_values, "unit": "f32"}
