"""Backward pass of an MLP with the tanh form of GELU, Step1X, float32.

inputs   x         f32 [n_tokens, n_in]
         w1        f32 [n_wide, n_in],  b1 f32 [n_wide]     first layer, [out, in], and its bias
         w2        f32 [n_in, n_wide]                       second layer; its bias is not needed here
         grad_out  f32 [n_tokens, n_in]                     gradient of the loss by `out`
outputs  grad_x, grad_w1, grad_b1, grad_w2, grad_b2          f32; grad_b2 [n_in], the rest as their inputs

The forward pass, which is not given and must be recomputed:
    a = x . w1^T + b1,   h = a/2 * (1 + tanh(sqrt(2 / pi) * (a + 0.044715 a^3))),   out = h . w2^T + b2
Weight and bias gradients sum over all tokens.
"""

from problems import precision

SOURCE = "Step1X-Edit: hidden_size 3072, MLP ratio 4, GELU (tanh); 1024 tokens"
SIZES = {"full": {"n_tokens": 1024, "n_in": 3072, "n_wide": 12288}, "small": {"n_tokens": 96, "n_in": 192, "n_wide": 384}}
BEND = 0.044715
OUTPUTS = ("f32", "f32", "f32", "f32", "f32")
INVARIANT = "shapes and types"


def make_inputs(xp, rng, size="full"):
    s = SIZES[size]
    n_in, n_wide = s["n_in"], s["n_wide"]

    def normal(*shape, mean=0.0, std=1.0):
        return rng.standard_normal(shape, dtype=xp.float32) * xp.float32(std) + xp.float32(mean)

    return (normal(s["n_tokens"], n_in, mean=0.25), normal(n_wide, n_in, mean=0.02) * xp.float32(n_in ** -0.5),
            normal(n_wide, std=0.2), normal(n_in, n_wide, mean=0.05) * xp.float32(n_wide ** -0.5),
            normal(s["n_tokens"], n_in, mean=0.2))


def reference(xp, x, w1, b1, w2, grad_out):
    a = precision.matmul(xp, x, w1.T) + precision.wide(b1)
    tanh = xp.tanh((2 / xp.pi) ** 0.5 * (a + BEND * a * a * a))
    slope = (1 + tanh) / 2 + a / 2 * (1 - tanh * tanh) * (2 / xp.pi) ** 0.5 * (1 + 3 * BEND * a * a)
    grad_a = precision.matmul(xp, grad_out, w2) * slope
    results = (precision.matmul(xp, grad_a, w1), precision.matmul(xp, grad_a.T, x),
               precision.total(xp, grad_a, axis=0, keepdims=False),
               precision.matmul(xp, precision.wide(grad_out).T, a / 2 * (1 + tanh)),
               precision.total(xp, grad_out, axis=0, keepdims=False))
    return tuple(precision.narrow(result, "f32") for result in results)


def work(size="full"):
    s = SIZES[size]
    n_values = 3 * s["n_tokens"] * s["n_in"] + 4 * s["n_in"] * s["n_wide"] + 2 * s["n_wide"] + s["n_in"]
    # Five products: the first layer again, two gradients by activations, two by weights.
    return {"n_bytes": 4 * n_values, "n_operations": 10 * s["n_tokens"] * s["n_in"] * s["n_wide"], "unit": "f32"}
