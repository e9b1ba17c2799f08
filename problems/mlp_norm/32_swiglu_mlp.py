"""SwiGLU MLP at the size of a Parakeet speech encoder layer, float32.

inputs   x                f32 [n_frames, n_in]
         w_gate, w_up     f32 [n_wide, n_in]      [out, in]
         w_down           f32 [n_in, n_wide]
outputs  out              f32 [n_frames, n_in]

    g = x . w_gate^T,   u = x . w_up^T
    out = (g / (1 + exp(-g)) * u) . w_down^T
"""

from problems import precision

SOURCE = "Parakeet TDT 0.6B v3 encoder: d_model 1024, feed-forward expansion 4; 8 utterances of 40 s at 12.5 frames a second"
SIZES = {"full": {"n_frames": 4000, "n_in": 1024, "n_wide": 4096}, "small": {"n_frames": 16, "n_in": 256, "n_wide": 1024}}
OUTPUTS = ("f32",)
INVARIANT = "shapes and types"


def make_inputs(xp, rng, size="full"):
    s = SIZES[size]
    n_in, n_wide = s["n_in"], s["n_wide"]

    def normal(*shape, mean=0.0):
        return rng.standard_normal(shape, dtype=xp.float32) + xp.float32(mean)

    return (normal(s["n_frames"], n_in, mean=0.25), normal(n_wide, n_in, mean=0.1) * xp.float32(n_in ** -0.5),
            normal(n_wide, n_in, mean=0.1) * xp.float32(n_in ** -0.5),
            normal(n_in, n_wide, mean=0.1) * xp.float32(n_wide ** -0.5))


def reference(xp, x, w_gate, w_up, w_down):
    g = precision.matmul(xp, x, w_gate.T)
    h = g / (1 + xp.exp(-g)) * precision.matmul(xp, x, w_up.T)
    return precision.narrow(precision.matmul(xp, h, w_down.T), "f32")


def work(size="full"):
    s = SIZES[size]
    n_values = 2 * s["n_frames"] * s["n_in"] + 3 * s["n_in"] * s["n_wide"]
    return {"n_bytes": 4 * n_values, "n_operations": 6 * s["n_frames"] * s["n_in"] * s["n_wide"], "unit": "f32"}
