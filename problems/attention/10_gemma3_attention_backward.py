"""Backward pass of QK-norm + rotary embedding + soft-capped causal attention, Gemma style, float32.

inputs   q        f32 [n_batch, n_tokens, 8, 256]   queries before their norm
         k, v     f32 [n_batch, n_tokens, 4, 256]   keys before their norm; values
         q_weight f32 [256]                         norm weights; the norm multiplies by 1 + weight; k_weight likewise
         cos, sin f32 [n_tokens, 128]               rotary factors of each position
         grad_out f32 [n_batch, n_tokens, 8, 256]   gradient of the loss by `out`
outputs  grad_q, grad_k, grad_v, grad_q_weight, grad_k_weight    f32, each in the shape of its input

The forward pass, which is not given and must be recomputed:
    norm(x, w) = x / sqrt(mean(x^2) + 1e-6) * (1 + w)                        over the last axis
    rope(x)    = (a cos - b sin, b cos + a sin)                              a, b the first and second half of the last
                                                                             axis
    s = rope(norm(q)) . rope(norm(k)) / 16,   c = 50 tanh(s / 50)            query head h uses KV head h // 2
    out = softmax(c over the tokens up to the query's own) . v
Weight gradients sum over batch, tokens and heads.
"""

from problems import precision

SOURCE = "Gemma 3 4B (8 query heads, 4 KV heads, head_dim 256, QK-norm, rms eps 1e-6), soft cap 50 as in Gemma 2"
SIZES = {"full": {"n_batch": 2, "n_tokens": 2048}, "small": {"n_batch": 2, "n_tokens": 40}}
N_HEADS, N_KV_HEADS, HEAD_DIM, EPS, CAP, THETA = 8, 4, 256, 1e-6, 50.0, 10000.0
OUTPUTS = ("f32", "f32", "f32", "f32", "f32")
INVARIANT = "shapes, types, eps, cap, scale and the rotary table"


def make_inputs(xp, rng, size="full"):
    s = SIZES[size]

    def normal(*shape, mean=0.0, std=1.0):
        return rng.standard_normal(shape, dtype=xp.float32) * xp.float32(std) + xp.float32(mean)

    # Queries and keys share a direction, so that scores reach into the bend of the soft cap.
    q = normal(s["n_batch"], s["n_tokens"], N_HEADS, HEAD_DIM, mean=1.0)
    k = normal(s["n_batch"], s["n_tokens"], N_KV_HEADS, HEAD_DIM, mean=1.0)
    v = normal(s["n_batch"], s["n_tokens"], N_KV_HEADS, HEAD_DIM, mean=0.25)
    power = xp.arange(HEAD_DIM // 2, dtype=xp.float64) / (HEAD_DIM // 2)
    angle = xp.arange(s["n_tokens"], dtype=xp.float64)[:, None] / THETA ** power
    return (q, k, v, normal(HEAD_DIM, mean=0.2, std=0.2), normal(HEAD_DIM, mean=0.2, std=0.2),
            xp.cos(angle).astype(xp.float32), xp.sin(angle).astype(xp.float32),
            normal(s["n_batch"], s["n_tokens"], N_HEADS, HEAD_DIM, mean=0.1))


def _rope(xp, x, cos, sin):
    a, b = x[..., :HEAD_DIM // 2], x[..., HEAD_DIM // 2:]
    cos, sin = cos[:, None, :], sin[:, None, :]
    return xp.concatenate((a * cos - b * sin, b * cos + a * sin), axis=-1)


def _inverse_rms(xp, x):
    return 1 / xp.sqrt(precision.total(xp, x * x) / HEAD_DIM + EPS)


def _norm_backward(xp, x, weight, grad):
    """Gradients by the input and the weight of norm(x) = x r (1 + weight), r the inverse root mean square."""
    r = _inverse_rms(xp, x)
    scaled = grad * (1 + weight)
    grad_x = r * (scaled - x * r * r * precision.total(xp, scaled * x) / HEAD_DIM)
    return grad_x, precision.total(xp, (grad * x * r).reshape(-1, HEAD_DIM), axis=0, keepdims=False)


def reference(xp, q, k, v, q_weight, k_weight, cos, sin, grad_out):
    q, k, v, q_weight, k_weight, cos, sin, grad_out = map(
        precision.wide, (q, k, v, q_weight, k_weight, cos, sin, grad_out))
    n_batch, n = q.shape[:2]
    group = N_HEADS // N_KV_HEADS

    def heads(x, n_group):  # [batch, token, head, d] -> [batch, kv head, group * token, d]
        x = x.reshape(n_batch, n, N_KV_HEADS, n_group, HEAD_DIM).transpose(0, 2, 3, 1, 4)
        return x.reshape(n_batch, N_KV_HEADS, n_group * n, HEAD_DIM)

    def tokens(x, n_group):                                          # and back
        x = x.reshape(n_batch, N_KV_HEADS, n_group, n, HEAD_DIM).transpose(0, 3, 1, 2, 4)
        return x.reshape(n_batch, n, N_KV_HEADS * n_group, HEAD_DIM)

    def transposed(x):
        return x.transpose(0, 1, 3, 2)

    qr = heads(_rope(xp, q * _inverse_rms(xp, q) * (1 + q_weight), cos, sin), group)
    kr = heads(_rope(xp, k * _inverse_rms(xp, k) * (1 + k_weight), cos, sin), 1)
    vh, dout = heads(v, 1), heads(grad_out, group)
    bent = xp.tanh(precision.matmul(xp, qr, transposed(kr)) * HEAD_DIM ** -0.5 / CAP)
    seen = xp.arange(n) <= xp.tile(xp.arange(n), group)[:, None]
    capped = xp.where(seen, bent * CAP, bent.dtype.type(-xp.inf))
    p = xp.exp(capped - xp.max(capped, axis=-1, keepdims=True))
    p = p / precision.total(xp, p)

    grad_v = precision.matmul(xp, transposed(p), dout)
    grad_p = precision.matmul(xp, dout, transposed(vh))
    grad_capped = p * (grad_p - precision.total(xp, p * grad_p))
    grad_s = grad_capped * (1 - bent * bent) * HEAD_DIM ** -0.5
    grad_qr = tokens(precision.matmul(xp, grad_s, kr), group)
    grad_kr = tokens(precision.matmul(xp, transposed(grad_s), qr), 1)
    grad_q, grad_q_weight = _norm_backward(xp, q, q_weight, _rope(xp, grad_qr, cos, -sin))
    grad_k, grad_k_weight = _norm_backward(xp, k, k_weight, _rope(xp, grad_kr, cos, -sin))
    results = (grad_q, grad_k, tokens(grad_v, 1), grad_q_weight, grad_k_weight)
    return tuple(precision.narrow(x, "f32") for x in results)


def work(size="full"):
    s = SIZES[size]
    n_tokens = s["n_batch"] * s["n_tokens"]
    n_pairs = n_tokens * (s["n_tokens"] + 1) // 2
    n_values = n_tokens * HEAD_DIM * (3 * N_HEADS + 4 * N_KV_HEADS) + s["n_tokens"] * HEAD_DIM + 4 * HEAD_DIM
    # Five products: scores again, and the gradients by p, v, queries and keys.
    return {"n_bytes": 4 * n_values, "n_operations": 5 * 2 * n_pairs * N_HEADS * HEAD_DIM, "unit": "f32"}
