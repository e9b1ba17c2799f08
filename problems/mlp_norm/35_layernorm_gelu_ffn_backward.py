"""Backward pass of LayerNorm(x + FFN(x)) with the tanh form of GELU, Kokoro's text encoder, float32.

inputs   x         f32 [n_tokens, n_in]
         w1        f32 [n_wide, n_in],  b1 f32 [n_wide]     first layer, [out, in], and its bias
         w2        f32 [n_in, n_wide],  b2 f32 [n_in]
         gamma     f32 [n_in]                               the norm's gain; its shift is not needed here
         grad_y    f32 [n_tokens, n_in]                     gradient of the loss by y
outputs  grad_x, grad_w1, grad_b1, grad_w2, grad_b2, grad_gamma, grad_beta    f32; grad_beta [n_in], the rest as their inputs

The forward pass, which is not given and must be recomputed:
    a = x . w1^T + b1,   h = a/2 * (1 + tanh(sqrt(2 / pi) * (a + 0.044715 a^3))),   r = x + h . w2^T + b2
    y = (r - mean(r)) / sqrt(variance(r) + 1e-12) * gamma + beta      over each row; the variance divides by n_in
Weight and bias gradients sum over all tokens.
"""

from problems import precision

SOURCE = "Kokoro 82M, PL-BERT: hidden_size 768, intermediate_size 2048 (ALBERT layer: gelu_new, layer_norm_eps 1e-12); 16 x 512 tokens"
SIZES = {"full": {"n_tokens": 8192, "n_in": 768, "n_wide": 2048}, "small": {"n_tokens": 96, "n_in": 192, "n_wide": 256}}
EPS, BEND = 1e-12, 0.044715
OUTPUTS = ("f32", "f32", "f32", "f32", "f32", "f32", "f32")
INVARIANT = "shapes, types and eps"


def make_inputs(xp, rng, size="full"):
    s = SIZES[size]
    n_in, n_wide = s["n_in"], s["n_wide"]

    def normal(*shape, mean=0.0, std=1.0):
        return rng.standard_normal(shape, dtype=xp.float32) * xp.float32(std) + xp.float32(mean)

    return (normal(s["n_tokens"], n_in, mean=0.25), normal(n_wide, n_in, mean=0.05) * xp.float32(n_in ** -0.5),
            normal(n_wide, std=0.2), normal(n_in, n_wide) * xp.float32(n_wide ** -0.5), normal(n_in, std=0.2),
            normal(n_in, mean=1, std=0.3), normal(s["n_tokens"], n_in, mean=0.2))


def reference(xp, x, w1, b1, w2, b2, gamma, grad_y):
    x, gamma, grad_y = (precision.wide(value) for value in (x, gamma, grad_y))
    n_in = x.shape[-1]
    a = precision.matmul(xp, x, w1.T) + precision.wide(b1)
    tanh = xp.tanh((2 / xp.pi) ** 0.5 * (a + BEND * a * a * a))
    h = a / 2 * (1 + tanh)
    r = x + precision.matmul(xp, h, w2.T) + precision.wide(b2)
    centred = r - precision.total(xp, r) / n_in
    scale = 1 / xp.sqrt(precision.total(xp, centred * centred) / n_in + EPS)
    unit = centred * scale

    grad_unit = grad_y * gamma
    grad_r = scale * (grad_unit - precision.total(xp, grad_unit) / n_in - unit * precision.total(xp, grad_unit * unit) / n_in)
    slope = (1 + tanh) / 2 + a / 2 * (1 - tanh * tanh) * (2 / xp.pi) ** 0.5 * (1 + 3 * BEND * a * a)
    grad_a = precision.matmul(xp, grad_r, w2) * slope
    results = (grad_r + precision.matmul(xp, grad_a, w1), precision.matmul(xp, grad_a.T, x), _rows(xp, grad_a),
               precision.matmul(xp, grad_r.T, h), _rows(xp, grad_r), _rows(xp, grad_y * unit), _rows(xp, grad_y))
    return tuple(precision.narrow(result, "f32") for result in results)


def _rows(xp, x):
    return precision.total(xp, x, axis=0, keepdims=False)


def work(size="full"):
    s = SIZES[size]
    n_values = 3 * s["n_tokens"] * s["n_in"] + 4 * s["n_in"] * s["n_wide"] + 2 * s["n_wide"] + 5 * s["n_in"]
    # Six products: both layers again, two gradients by activations, two by weights.
    return {"n_bytes": 4 * n_values, "n_operations": 12 * s["n_tokens"] * s["n_in"] * s["n_wide"], "unit": "f32"}
