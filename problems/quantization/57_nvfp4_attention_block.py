"""Attention block with nvfp4 projections: QKV projection, rotary embedding, causal attention, output projection.

inputs   x        bf16 [n_batch, n_tokens, hidden]             hidden = 128 * n_heads, n_heads = 4 * n_kv_heads
         qkv_w    u8   [6 * n_kv_heads * 128, hidden]          e2m1 codes: query heads, then key heads, then value heads
         o_w      u8   [hidden, hidden]                        e2m1 codes
         qkv_scale, o_scale  u8 [rows of w, hidden / 16]       e4m3 codes, one for 16 neighbouring inputs
         qkv_unit, o_unit    f32 [1]                           weight = code * scale * unit
         x_unit, a_unit      f32 [1]                           units in which x and the attention's output are quantised
         cos, sin            f32 [n_tokens, 64]                rotary factors
outputs  out      bf16 [n_batch, n_tokens, hidden]

q, k, v = x' . qkv_w^T, rounded to bf16; rotary: halves (a, b) of a head become (a cos - b sin, b cos + a sin), rounded
to bf16; attention: softmax(q . k / sqrt(128) over the tokens up to the own) . v, query head h with KV head h // 4,
rounded to bf16; out = a' . o_w^T. A prime means through nvfp4: for 16 neighbouring inputs, scale = the e4m3 nearest to
max|x| / 6 / unit, code = the e2m1 nearest to x / (scale * unit), ties to even, beyond 6 it is 6; 0 where the scale is
0. All sums are float32.
"""

from problems import formats, precision

SOURCE = ("Llama 3.1 8B in NVFP4 (hidden 4096, 32 query heads, 8 KV heads, head_dim 128, rope theta 500000); 2 x "
          "2048 tokens")
SIZES = {"full": {"n_batch": 2, "n_tokens": 2048, "n_kv_heads": 8},
         "small": {"n_batch": 2, "n_tokens": 20, "n_kv_heads": 1}}
HEAD_DIM, GROUP = 128, 4
OUTPUTS = ("bf16",)
INVARIANT = "shapes, types, units and the rotary table"


def make_inputs(xp, rng, size="full"):
    s = SIZES[size]
    hidden = GROUP * s["n_kv_heads"] * HEAD_DIM

    def normal(*shape):
        return rng.standard_normal(shape, dtype=xp.float32)

    def weights(amount, direction):
        w = (normal(amount.shape[0], hidden) + amount * direction) * xp.float32(hidden ** -0.5)
        unit = xp.full(1, 12 * hidden ** -0.5 / (6 * 448), xp.float32)
        return (*formats.encode_nvfp4(xp, w, unit), unit)

    # Tokens lean to one direction of random signs, values to what comes of it, and the output's weights to that: sums
    # outgrow their terms. Queries and keys lean less, which keeps the softmax soft.
    n_kv = s["n_kv_heads"] * HEAD_DIM
    lean = xp.where(rng.random(hidden, dtype=xp.float32) < 0.5, -1, 1).astype(xp.float32)
    by = (normal(s["n_batch"], s["n_tokens"], 1) * xp.float32(0.3) + 1) * xp.float32(4 * hidden ** -0.5)
    x = normal(s["n_batch"], s["n_tokens"], hidden) + by * lean
    amount = normal(hidden + 2 * n_kv, 1)
    amount[:-n_kv] *= xp.float32(0.3)
    qkv_w, qkv_scale, qkv_unit = weights(amount, lean)
    values = xp.repeat(amount[-n_kv:].reshape(s["n_kv_heads"], HEAD_DIM), GROUP, axis=0).reshape(hidden)
    o_w, o_scale, o_unit = weights(normal(hidden, 1), values)
    angle = xp.arange(s["n_tokens"])[:, None] / 500000.0 ** (xp.arange(HEAD_DIM // 2) / (HEAD_DIM // 2))
    return (x.astype(precision.TYPES["bf16"]), qkv_w, o_w, qkv_scale, o_scale, qkv_unit, o_unit,
            xp.full(1, 8 / (6 * 448), xp.float32), xp.full(1, 48 / (6 * 448), xp.float32),
            xp.cos(angle).astype(xp.float32), xp.sin(angle).astype(xp.float32))


def _project(xp, x, x_unit, w, w_scale, w_unit):
    x = formats.decode_nvfp4(xp, *formats.encode_nvfp4(xp, precision.wide(x), x_unit), x_unit)
    return precision.narrow(precision.matmul(xp, x, formats.decode_nvfp4(xp, w, w_scale, w_unit).T), "bf16")


def _rope(xp, x, cos, sin):
    a, b = precision.wide(x[..., :HEAD_DIM // 2]), precision.wide(x[..., HEAD_DIM // 2:])
    cos, sin = precision.wide(cos)[:, None], precision.wide(sin)[:, None]
    return precision.narrow(xp.concatenate((a * cos - b * sin, b * cos + a * sin), axis=-1), "bf16")


def reference(xp, x, qkv_w, o_w, qkv_scale, o_scale, qkv_unit, o_unit, x_unit, a_unit, cos, sin):
    n_batch, n, hidden = x.shape
    n_kv_heads = hidden // HEAD_DIM // GROUP
    qkv = _project(xp, x, x_unit, qkv_w, qkv_scale, qkv_unit).reshape(n_batch, n, -1, HEAD_DIM)
    q, k = _rope(xp, qkv[:, :, :-2 * n_kv_heads], cos, sin), _rope(xp, qkv[:, :, -2 * n_kv_heads:-n_kv_heads], cos, sin)
    v = qkv[:, :, -n_kv_heads:]
    seen = xp.arange(n) <= xp.arange(n)[:, None]
    mixed = xp.zeros((n_batch, n, n_kv_heads * GROUP, HEAD_DIM), x.dtype)
    for h in range(n_kv_heads * GROUP):                                            # one head at a time spares memory
        scores = precision.matmul(xp, q[:, :, h], k[:, :, h // GROUP].transpose(0, 2, 1)) * HEAD_DIM ** -0.5
        scores = xp.where(seen, scores, scores.dtype.type(-xp.inf))
        weights = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
        norm = precision.total(xp, weights)
        mixed[:, :, h] = precision.narrow(
            precision.matmul(xp, precision.narrow(weights, "bf16"), v[:, :, h // GROUP]) / norm, "bf16")
    return _project(xp, mixed.reshape(n_batch, n, hidden), a_unit, o_w, o_scale, o_unit)


def work(size="full"):
    s = SIZES[size]
    hidden = GROUP * s["n_kv_heads"] * HEAD_DIM
    n, n_qkv = s["n_batch"] * s["n_tokens"], hidden + 2 * s["n_kv_heads"] * HEAD_DIM
    n_bytes = 4 * n * hidden + (n_qkv + hidden) * hidden * 17 // 16 + 4 * s["n_tokens"] * HEAD_DIM + 16
    n_pairs = n * (s["n_tokens"] + 1) // 2
    n_operations = 2 * n * hidden * (n_qkv + hidden) + 4 * n_pairs * hidden
    return {"n_bytes": n_bytes, "n_operations": n_operations, "unit": "bf16"}
