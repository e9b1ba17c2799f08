"""Joint attention of an image and a text stream (QK-norm, rotary embedding), FLUX diffusion transformer, float32.

inputs   image_qkv f32 [n_batch, n_image, 3, 24, 128]   queries, keys and values of the image tokens
         text_qkv  f32 [n_batch, n_text, 3, 24, 128]    and of the text tokens
         image_q_weight, image_k_weight, text_q_weight, text_k_weight    f32 [128]    one norm weight a stream and kind
         cos, sin  f32 [n_text + n_image, 64]           rotary factors; the text tokens come first
outputs  image_out f32 [n_batch, n_image, 3072]         heads side by side
         text_out  f32 [n_batch, n_text, 3072]

Queries and keys: x / sqrt(mean(x^2) + 1e-6) * weight of their stream, over the 128 of a head; then each neighbouring
pair (x[2i], x[2i + 1]) turns by angle i of its token. Every token, text or image, attends to all tokens of both
streams: softmax(q . k / sqrt(128)) . v.
"""

from problems import precision

SOURCE = "FLUX.1 dev (24 heads of 128, 1024 x 1024 pixels: 4096 image tokens, 512 text tokens)"
SIZES = {"full": {"n_batch": 1, "n_image": 4096, "n_text": 512}, "small": {"n_batch": 2, "n_image": 24, "n_text": 8}}
N_HEADS, HEAD_DIM, EPS = 24, 128, 1e-6
HIDDEN = N_HEADS * HEAD_DIM
OUTPUTS = ("f32", "f32")
INVARIANT = "shapes, types, eps, scale 1/sqrt(128) and the rotary table"


def make_inputs(xp, rng, size="full"):
    s = SIZES[size]

    def normal(*shape, mean, std=1.0):
        return rng.standard_normal(shape, dtype=xp.float32) * xp.float32(std) + xp.float32(mean)

    image = normal(s["n_batch"], s["n_image"], 3, N_HEADS, HEAD_DIM, mean=0.5)
    text = normal(s["n_batch"], s["n_text"], 3, N_HEADS, HEAD_DIM, mean=-0.5)
    weights = [normal(HEAD_DIM, mean=1.0, std=0.2) for _ in range(4)]
    # Text tokens stand at position 0; image tokens have a row and a column, which share the frequencies.
    n, half = s["n_image"], HEAD_DIM // 4
    width = max(1, int(n ** 0.5))
    rate = 10000.0 ** (-xp.arange(half, dtype=xp.float64) / half)
    place = xp.arange(n)
    angle = xp.concatenate(((place // width)[:, None] * rate, (place % width)[:, None] * rate), axis=1)
    angle = xp.concatenate((xp.zeros((s["n_text"], HEAD_DIM // 2)), angle), axis=0)
    return image, text, *weights, xp.cos(angle).astype(xp.float32), xp.sin(angle).astype(xp.float32)


def reference(xp, image_qkv, text_qkv, image_q_weight, image_k_weight, text_q_weight, text_k_weight, cos, sin):
    image, text, cos, sin = map(precision.wide, (image_qkv, text_qkv, cos, sin))
    n_text = text.shape[1]
    q = xp.concatenate((_norm(xp, text[:, :, 0], text_q_weight), _norm(xp, image[:, :, 0], image_q_weight)), axis=1)
    k = xp.concatenate((_norm(xp, text[:, :, 1], text_k_weight), _norm(xp, image[:, :, 1], image_k_weight)), axis=1)
    v = xp.concatenate((text[:, :, 2], image[:, :, 2]), axis=1)
    q, k = _turn(xp, q, cos, sin), _turn(xp, k, cos, sin)
    out = xp.zeros_like(v)
    for h in range(N_HEADS):                                                       # one head at a time spares memory
        scores = precision.matmul(xp, q[:, :, h], k[:, :, h].transpose(0, 2, 1)) * HEAD_DIM ** -0.5
        weights = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
        out[:, :, h] = precision.matmul(xp, weights, v[:, :, h]) / precision.total(xp, weights)
    out = precision.narrow(out.reshape(*out.shape[:2], HIDDEN), "f32")
    return xp.ascontiguousarray(out[:, n_text:]), xp.ascontiguousarray(out[:, :n_text])


def _norm(xp, x, weight):
    return x / xp.sqrt(precision.total(xp, x * x) / HEAD_DIM + EPS) * precision.wide(weight)


def _turn(xp, x, cos, sin):
    a, b = x[..., 0::2], x[..., 1::2]
    cos, sin = cos[:, None, :], sin[:, None, :]
    return xp.stack((a * cos - b * sin, a * sin + b * cos), axis=-1).reshape(x.shape)


def work(size="full"):
    s = SIZES[size]
    n = s["n_image"] + s["n_text"]
    return {"n_bytes": 4 * (4 * s["n_batch"] * n * HIDDEN + 4 * HEAD_DIM + n * HEAD_DIM),
            "n_operations": 4 * s["n_batch"] * n * n * HIDDEN, "unit": "f32"}
