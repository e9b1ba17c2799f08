"""Causal sliding-window attention with relative positions and a soft cap, Gemma 3n audio encoder, float32.

inputs   q, k, v    f32 [n_batch, n_frames, 8, 192]
         dim_scale  f32 [192]                        queries are multiplied by softplus(dim_scale) / (sqrt(192) ln 2)
         timing     f32 [13, 1536]                   sinusoids of the distances 0 .. 12
         pos_proj   f32 [1536, 1536]                 position keys: timing . pos_proj, seen as [13, 8, 192]
         n_valid    i32 [n_batch]                    frames of each sequence that are no padding
outputs  out        f32 [n_batch, n_frames, 8, 192]

Frame t sees the frames t - 12 .. t that exist and are valid, itself included. With the scaled query x and the distance
r = t - j: score = 50 tanh((x . k_j + x . position_key_r) / 50); out = softmax(scores) . v. Padding frames get 0; a
sequence may be all padding (n_valid 0). softplus(z) = ln(1 + exp(z)).
"""

import math

from problems import precision

SOURCE = ("Gemma 3n audio encoder (hidden 1536, 8 heads, chunk 12, context left 13, right 0, logit cap 50); "
          "32 clips of 60 s at 25 frames a second, padded")
SIZES = {"full": {"n_batch": 32, "n_frames": 1536}, "small": {"n_batch": 3, "n_frames": 50}}
N_HEADS, HEAD_DIM, WINDOW, CAP = 8, 192, 13, 50.0
HIDDEN = N_HEADS * HEAD_DIM
OUTPUTS = ("f32",)
INVARIANT = "shapes, types, window, cap and the sinusoids; the valid lengths are drawn, sequence 1 is all padding"


def make_inputs(xp, rng, size="full"):
    s = SIZES[size]
    shape = (s["n_batch"], s["n_frames"], N_HEADS, HEAD_DIM)
    q = rng.standard_normal(shape, dtype=xp.float32) + xp.float32(1)
    k = rng.standard_normal(shape, dtype=xp.float32) + xp.float32(1)
    v = rng.standard_normal(shape, dtype=xp.float32) + xp.float32(0.25)
    dim_scale = rng.standard_normal(HEAD_DIM, dtype=xp.float32) * xp.float32(0.5)
    rate = xp.exp(xp.arange(HIDDEN // 2, dtype=xp.float64) * (-math.log(10000.0) / (HIDDEN // 2 - 1)))
    angle = xp.arange(WINDOW, dtype=xp.float64)[:, None] * rate
    timing = xp.concatenate((xp.sin(angle), xp.cos(angle)), axis=1).astype(xp.float32)
    pos_proj = rng.standard_normal((HIDDEN, HIDDEN), dtype=xp.float32) * xp.float32(HIDDEN ** -0.5)
    n_valid = rng.integers(s["n_frames"] // 2, s["n_frames"] + 1, s["n_batch"]).astype(xp.int32)
    n_valid[1] = 0
    return q, k, v, dim_scale, timing, pos_proj, n_valid


def reference(xp, q, k, v, dim_scale, timing, pos_proj, n_valid):
    q, k, v = map(precision.wide, (q, k, v))
    n_frames = q.shape[1]
    x = q * (xp.log1p(xp.exp(precision.wide(dim_scale))) * (HEAD_DIM ** -0.5 / math.log(2.0)))
    position_keys = precision.matmul(xp, timing, pos_proj).reshape(WINDOW, N_HEADS, HEAD_DIM)
    valid = xp.arange(n_frames) < n_valid[:, None]                                 # [batch, frame]
    scores = xp.full((WINDOW, *q.shape[:3]), -xp.inf, precision.wide_type())
    for r in range(WINDOW):                                                        # the key r frames ago
        score = precision.total(xp, x[:, r:] * (k[:, :n_frames - r] + position_keys[r]), keepdims=False)
        seen = valid[:, :n_frames - r, None]
        scores[r, :, r:] = xp.where(seen, xp.tanh(score / CAP) * CAP, score.dtype.type(-xp.inf))
    weights = xp.exp(scores - xp.max(xp.where(valid[:, :, None], scores, scores.dtype.type(0)), axis=0))
    weights = weights / xp.maximum(precision.total(xp, weights, axis=0), scores.dtype.type(1e-30))
    out = xp.zeros_like(v)
    for r in range(WINDOW):
        out[:, r:] = out[:, r:] + weights[r, :, r:, :, None] * v[:, :n_frames - r]
    return precision.narrow(xp.where(valid[:, :, None, None], out, out.dtype.type(0)), "f32")


def work(size="full"):
    s = SIZES[size]
    n = s["n_batch"] * s["n_frames"]
    n_valid = (s["n_batch"] - 1) * s["n_frames"] * 3 // 4                          # on average
    n_bytes = 4 * (3 * n_valid + n) * HIDDEN + 4 * (HEAD_DIM + WINDOW * HIDDEN + HIDDEN ** 2 + s["n_batch"])
    return {"n_bytes": n_bytes, "n_operations": 6 * n_valid * WINDOW * HIDDEN + 2 * WINDOW * HIDDEN ** 2, "unit": "f32"}
