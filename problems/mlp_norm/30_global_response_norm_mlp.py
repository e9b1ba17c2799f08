"""Pointwise MLP of a ConvNeXt V2 block: layer, GELU, global response norm over each picture, layer, float32.

inputs   x      f32 [n_pictures, n_places, n_in]        channels last; a picture's places in any order
         w1     f32 [n_wide, n_in],  b1 f32 [n_wide]     first layer, [out, in], and its bias
         gamma, beta  f32 [n_wide]                       of the global response norm
         w2     f32 [n_in, n_wide],  b2 f32 [n_in]
outputs  out    f32 [n_pictures, n_places, n_in]

    h = gelu(x . w1^T + b1),   gelu(a) = a/2 * (1 + erf(a / sqrt 2))
    g[p, c] = sqrt(sum over places of h[p, :, c]^2)       one length a picture and channel
    r[p, c] = g[p, c] / (mean over channels of g[p, :] + 1e-6)
    out = (gamma * h * r + beta + h) . w2^T + b2
"""

from problems import precision, special

SOURCE = "ConvNeXt V2 Base, third stage: 512 channels, 14 x 14 places, MLP ratio 4, GRN eps 1e-6; 64 pictures of 224 x 224"
SIZES = {"full": {"n_pictures": 64, "n_places": 196, "n_in": 512, "n_wide": 2048},
         "small": {"n_pictures": 2, "n_places": 196, "n_in": 64, "n_wide": 256}}
EPS = 1e-6
OUTPUTS = ("f32",)
INVARIANT = "shapes, types and eps"


def make_inputs(xp, rng, size="full"):
    s = SIZES[size]
    n_in, n_wide = s["n_in"], s["n_wide"]

    def normal(*shape, mean=0.0, std=1.0):
        return rng.standard_normal(shape, dtype=xp.float32) * xp.float32(std) + xp.float32(mean)

    # Channels of different strength, so that the response norm has something to tell apart.
    strength = 0.2 + 2 * rng.random((n_wide, 1), dtype=xp.float32)
    x = normal(s["n_pictures"], s["n_places"], n_in, mean=0.25)
    return (x, normal(n_wide, n_in, mean=0.05) * strength * xp.float32(n_in ** -0.5), normal(n_wide, std=0.2),
            normal(n_wide, mean=0.5, std=0.5), normal(n_wide, std=0.2),
            normal(n_in, n_wide, mean=0.1) * xp.float32(n_wide ** -0.5), normal(n_in, std=0.2))


def reference(xp, x, w1, b1, gamma, beta, w2, b2):
    a = precision.matmul(xp, x, w1.T) + precision.wide(b1)
    h = a / 2 * (1 + special.erf(xp, a * 0.5 ** 0.5))
    length = xp.sqrt(precision.total(xp, h * h, axis=1))
    response = length / (precision.total(xp, length) / length.shape[-1] + EPS)
    mixed = precision.wide(gamma) * h * response + precision.wide(beta) + h
    return precision.narrow(precision.matmul(xp, mixed, w2.T) + precision.wide(b2), "f32")


def work(size="full"):
    s = SIZES[size]
    n_rows = s["n_pictures"] * s["n_places"]
    n_values = 2 * n_rows * s["n_in"] + 2 * s["n_in"] * s["n_wide"] + 3 * s["n_wide"] + s["n_in"]
    return {"n_bytes": 4 * n_values, "n_operations": 4 * n_rows * s["n_in"] * s["n_wide"], "unit": "f32"}
