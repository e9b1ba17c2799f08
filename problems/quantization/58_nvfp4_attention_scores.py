"""Causal attention scores of nvfp4 queries and keys, with their log-sum-exp, Qwen3 14B.

inputs   q       u8   [n_batch, 40, n_tokens, 128]   e2m1 codes, one a byte
         k       u8   [n_batch, 8, n_tokens, 128]    e2m1 codes
         q_scale u8   [n_batch, 40, n_tokens, 8]     e4m3 codes, one for 16 neighbouring values
         k_scale u8   [n_batch, 8, n_tokens, 8]      e4m3 codes
         q_unit, k_unit  f32 [1]                     value = code * scale * unit
outputs  scores  bf16 [n_batch, 40, n_tokens, n_tokens]   q . k / sqrt(128); -inf at tokens after the query's own
         lse     f32  [n_batch, 40, n_tokens]             natural log of the sum of exp of the scores, before rounding
                                                          to bf16

Query head h uses KV head h // 5. Sums are float32.
"""

from problems import formats, precision

SOURCE = "Qwen3 14B in NVFP4 (40 query heads, 8 KV heads, head_dim 128); one sequence of 2048 tokens"
SIZES = {"full": {"n_batch": 1, "n_tokens": 2048}, "small": {"n_batch": 2, "n_tokens": 48}}
N_HEADS, N_KV_HEADS, HEAD_DIM = 40, 8, 128
OUTPUTS = ("bf16", "f32")
INVARIANT = "shapes, types, scale 1/sqrt(128) and the units"


def make_inputs(xp, rng, size="full"):
    s = SIZES[size]
    unit = xp.full(1, 8 / (6 * 448), xp.float32)
    # Queries and keys lean to one direction of random signs, so that sums outgrow their terms.
    lean = xp.where(rng.random(HEAD_DIM, dtype=xp.float32) < 0.5, -1, 1).astype(xp.float32)

    def values(n_heads):
        shape = (s["n_batch"], n_heads, s["n_tokens"], HEAD_DIM)
        amount = rng.random((*shape[:3], 1), dtype=xp.float32) * xp.float32(2)
        x = rng.standard_normal(shape, dtype=xp.float32) * xp.float32(0.7) + amount * lean
        return formats.encode_nvfp4(xp, x, unit)

    (q, q_scale), (k, k_scale) = values(N_HEADS), values(N_KV_HEADS)
    return q, k, q_scale, k_scale, unit, unit.copy()


def reference(xp, q, k, q_scale, k_scale, q_unit, k_unit):
    n_batch, _, n, _ = q.shape
    group = N_HEADS // N_KV_HEADS
    queries = formats.decode_nvfp4(xp, q, q_scale, q_unit).reshape(n_batch, N_KV_HEADS, group * n, HEAD_DIM)
    keys = formats.decode_nvfp4(xp, k, k_scale, k_unit).transpose(0, 1, 3, 2)
    scores = (precision.matmul(xp, queries, keys) * HEAD_DIM ** -0.5).reshape(n_batch, N_HEADS, n, n)
    scores = xp.where(xp.arange(n) <= xp.arange(n)[:, None], scores, scores.dtype.type(-xp.inf))
    top = xp.max(scores, axis=-1, keepdims=True)
    lse = (xp.log(precision.total(xp, xp.exp(scores - top))) + top)[..., 0]
    return precision.narrow(scores, "bf16"), precision.narrow(lse, "f32")


def work(size="full"):
    s = SIZES[size]
    n, n_square = s["n_batch"] * s["n_tokens"], s["n_batch"] * s["n_tokens"] ** 2
    n_bytes = n * (N_HEADS + N_KV_HEADS) * HEAD_DIM * 17 // 16 + N_HEADS * (2 * n_square + 4 * n) + 8
    return {"n_bytes": n_bytes, "n_operations": n_square * N_HEADS * HEAD_DIM, "unit": "bf16"}
