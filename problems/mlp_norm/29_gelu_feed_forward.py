"""Feed-forward block with the tanh form of GELU, FLUX, float32.

inputs   x    f32 [n_tokens, n_in]
         w1   f32 [n_wide, n_in],  b1 f32 [n_wide]     first layer, [out, in], and its bias
         w2   f32 [n_in, n_wide],  b2 f32 [n_in]
outputs  out  f32 [n_tokens, n_in]

    a = x . w1^T + b1
    h = a/2 * (1 + tanh(sqrt(2 / pi) * (a + 0.044715 a^3)))
    out = h . w2^T + b2
"""

from problems import precision

SOURCE = "FLUX.1: inner dimension 3072 (24 heads of 128), feed-forward 4 times that, gelu-approximate; 2048 image tokens"
SIZES = {"full": {"n_tokens": 2048, "n_in": 3072, "n_wide": 12288}, "small": {"n_tokens": 16, "n_in": 256, "n_wide": 1024}}
OUTPUTS = ("f32",)
INVARIANT = "shapes and types"


def make_inputs(xp, rng, size="full"):
    s = SIZES[size]
    n_in, n_wide = s["n_in"], s["n_wide"]

    def normal(*shape, mean=0.0, std=1.0):
        return rng.standard_normal(shape, dtype=xp.float32) * xp.float32(std) + xp.float32(mean)

    x = normal(s["n_tokens"], n_in, mean=0.25)
    return (x, normal(n_wide, n_in, mean=0.02) * xp.float32(n_in ** -0.5), normal(n_wide, std=0.2),
            normal(n_in, n_wide, mean=0.1) * xp.float32(n_wide ** -0.5), normal(n_in, std=0.2))


def reference(xp, x, w1, b1, w2, b2):
    a = precision.matmul(xp, x, w1.T) + precision.wide(b1)
    h = a / 2 * (1 + xp.tanh((2 / xp.pi) ** 0.5 * (a + 0.044715 * a * a * a)))
    return precision.narrow(precision.matmul(xp, h, w2.T) + precision.wide(b2), "f32")


def work(size="full"):
    s = SIZES[size]
    n_values = 2 * s["n_tokens"] * s["n_in"] + 2 * s["n_in"] * s["n_wide"] + s["n_in"] + s["n_wide"]
    return {"n_bytes": 4 * n_values, "n_operations": 4 * s["n_tokens"] * s["n_in"] * s["n_wide"], "unit": "f32"}
