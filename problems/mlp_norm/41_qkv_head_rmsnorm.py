"""RMSNorm of every query, key and value head out of one fused projection, Gemma 3n audio encoder, float32.

inputs   qkv       f32 [n_frames, 3 * 8 * 192]     of each frame first the 8 query heads, then the keys, then the values
         q_weight  f32 [192]                       gain of the queries; k_weight likewise; values have none
outputs  q, k, v   f32 [n_frames, 8, 192]          x / sqrt(mean(x^2) + 1e-6) * weight over the last axis

A head of zeros gives zeros.
"""

from problems import precision

SOURCE = "Gemma 3n audio encoder: hidden_size 1536, 8 heads of 192, rms_norm_eps 1e-6; 16384 frames"
SIZES = {"full": {"n_frames": 16384}, "small": {"n_frames": 32}}
N_HEADS, HEAD_DIM, EPS = 8, 192, 1e-6
OUTPUTS = ("f32", "f32", "f32")
INVARIANT = "shapes, types and eps"


def make_inputs(xp, rng, size="full"):
    n = SIZES[size]["n_frames"]

    def normal(*shape, mean=0.0, std=1.0):
        return rng.standard_normal(shape, dtype=xp.float32) * xp.float32(std) + xp.float32(mean)

    level = normal(n, 3 * N_HEADS, 1, std=0.5)
    qkv = (normal(n, 3 * N_HEADS, HEAD_DIM) + level).reshape(n, -1)
    return qkv, normal(HEAD_DIM, mean=1, std=0.2), normal(HEAD_DIM, mean=1, std=0.2)


def reference(xp, qkv, q_weight, k_weight):
    x = precision.wide(qkv).reshape(-1, 3, N_HEADS, HEAD_DIM)
    y = x / xp.sqrt(precision.total(xp, x * x) / HEAD_DIM + EPS)
    q, k = y[:, 0] * precision.wide(q_weight), y[:, 1] * precision.wide(k_weight)
    return precision.narrow(q, "f32"), precision.narrow(k, "f32"), precision.narrow(y[:, 2].copy(), "f32")


def work(size="full"):
    n_values = SIZES[size]["n_frames"] * 3 * N_HEADS * HEAD_DIM
    return {"n_bytes": 4 * (2 * n_values + 2 * HEAD_DIM), "n_operations": 5 * n_values, "unit": "f32"}
