"""Backward pass of a SwiGLU MLP, Hermes (Llama size), bf16: gradients of the input and of all three weights.

inputs   x                bf16 [n_tokens, n_in]
         w_gate, w_up     bf16 [n_wide, n_in]       [out, in]
         w_down           bf16 [n_in, n_wide]
         grad_out         bf16 [n_tokens, n_in]     gradient of the loss by `out`
outputs  grad_x, grad_w_gate, grad_w_up, grad_w_down    bf16, each in the shape of its input

The forward pass, which is not given and must be recomputed:
    g = x . w_gate^T,   u = x . w_up^T,   h = silu(g) * u,   silu(g) = g / (1 + exp(-g)),   out = h . w_down^T
Sums and elementwise mathematics are float32; h and the gradients by h, g and u are rounded to bf16 before they are multiplied.
Weight gradients sum over all tokens.
"""

from problems import precision

SOURCE = "Hermes 3 Llama 3.1 8B: hidden_size 4096, intermediate_size 14336; 2048 tokens"
SIZES = {"full": {"n_tokens": 2048, "n_in": 4096, "n_wide": 14336}, "small": {"n_tokens": 128, "n_in": 320, "n_wide": 448}}
OUTPUTS = ("bf16", "bf16", "bf16", "bf16")
INVARIANT = "shapes and types"


def make_inputs(xp, rng, size="full"):
    s, bf16 = SIZES[size], precision.TYPES["bf16"]
    n_in, n_wide = s["n_in"], s["n_wide"]

    def normal(*shape, mean=0.0):
        return rng.standard_normal(shape, dtype=xp.float32) + xp.float32(mean)

    # Gradients and the last weights lean to one direction of random signs, the rest to one sign: sums over inputs and over
    # tokens outgrow their terms.
    lean = xp.where(rng.random(n_in, dtype=xp.float32) < 0.5, -1, 1).astype(xp.float32)
    w_down = normal(n_in, n_wide) * xp.float32(0.5) + normal(n_wide) * lean[:, None]
    grad_out = normal(s["n_tokens"], n_in) * xp.float32(0.5) + normal(s["n_tokens"], 1, mean=0.5) * lean
    values = (normal(s["n_tokens"], n_in, mean=1), normal(n_wide, n_in, mean=0.05) * xp.float32(n_in ** -0.5),
              normal(n_wide, n_in, mean=0.1) * xp.float32(n_in ** -0.5),
              w_down * xp.float32(n_wide ** -0.5), grad_out)
    return tuple(value.astype(bf16) for value in values)


def reference(xp, x, w_gate, w_up, w_down, grad_out):
    g, u = precision.matmul(xp, x, w_gate.T), precision.matmul(xp, x, w_up.T)
    sigmoid = 1 / (1 + xp.exp(-g))
    h = precision.narrow(g * sigmoid * u, "bf16")
    grad_h = precision.matmul(xp, grad_out, w_down)
    grad_u = precision.narrow(grad_h * g * sigmoid, "bf16")
    grad_g = precision.narrow(grad_h * u * sigmoid * (1 + g * (1 - sigmoid)), "bf16")
    grad_x = precision.matmul(xp, grad_g, w_gate) + precision.matmul(xp, grad_u, w_up)
    results = (grad_x, precision.matmul(xp, grad_g.T, x), precision.matmul(xp, grad_u.T, x),
               precision.matmul(xp, grad_out.T, h))
    return tuple(precision.narrow(result, "bf16") for result in results)


def work(size="full"):
    s = SIZES[size]
    n_values = 3 * s["n_tokens"] * s["n_in"] + 6 * s["n_in"] * s["n_wide"]
    # Eight products: gate and up again, the gradient by h, two into grad_x, three weight gradients.
    return {"n_bytes": 2 * n_values, "n_operations": 16 * s["n_tokens"] * s["n_in"] * s["n_wide"], "unit": "bf16"}
