"""Bidirectional attention within each image of a packed batch (variable lengths), Qwen image edit's vision tower, bf16.

inputs   q, k, v    bf16 [n_tokens, 16, 80]   patches of all images, one image after the other
         cu_seqlens i32  [n_images + 1]       image b owns the patches cu_seqlens[b] : cu_seqlens[b + 1]
outputs  out        bf16 [n_tokens, 16, 80]   softmax(q . k / sqrt(80)) . v over all patches of the own image, per head

Scores, exponentials and sums are float32. An image may be empty (two equal bounds). The head dimension, 80, is no
power of two.
"""

from problems import precision

SOURCE = ("Qwen-Image-Edit, whose Qwen2.5-VL vision tower has hidden size 1280 and 16 heads (full-attention layers); "
          "7 images of 2341 patches on average")
SIZES = {"full": {"n_images": 8, "n_tokens": 16384}, "small": {"n_images": 3, "n_tokens": 360}}
N_HEADS, HEAD_DIM = 16, 80
OUTPUTS = ("bf16",)
INVARIANT = "shapes, types, scale 1/sqrt(80) and the total of patches; the images' sizes are drawn, image 1 is empty"


def make_inputs(xp, rng, size="full"):
    s, bf16 = SIZES[size], precision.TYPES["bf16"]
    shape = (s["n_tokens"], N_HEADS, HEAD_DIM)
    # Queries and keys share an offset, which softmax forgets and a short sum does not.
    q = (rng.standard_normal(shape, dtype=xp.float32) + 2).astype(bf16)
    k = (rng.standard_normal(shape, dtype=xp.float32) * 0.5 + 2).astype(bf16)
    v = (rng.standard_normal(shape, dtype=xp.float32) + 0.1).astype(bf16)
    share = rng.random(s["n_images"], dtype=xp.float32) + 0.5
    share[1] = 0
    ends = xp.floor(xp.cumsum(share) / xp.sum(share) * s["n_tokens"]).astype(xp.int32)
    ends[-1] = s["n_tokens"]
    return q, k, v, xp.concatenate((xp.zeros(1, xp.int32), ends))


def reference(xp, q, k, v, cu_seqlens):
    out = xp.zeros(q.shape, precision.wide_type())
    bounds = cu_seqlens.tolist()
    for start, stop in zip(bounds[:-1], bounds[1:], strict=True):
        if start == stop:
            continue
        queries, values = (x[start:stop].transpose(1, 0, 2) for x in (q, v))
        scores = precision.matmul(xp, queries, k[start:stop].transpose(1, 2, 0)) * HEAD_DIM ** -0.5
        weights = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
        norm = precision.total(xp, weights)
        mixed = precision.matmul(xp, precision.narrow(weights, "bf16"), values) / norm
        out[start:stop] = mixed.transpose(1, 0, 2)
    return precision.narrow(out, "bf16")


def work(size="full"):
    s = SIZES[size]
    n_pairs = s["n_tokens"] ** 2 // (s["n_images"] - 1)            # for images of one size
    return {"n_bytes": 2 * 4 * s["n_tokens"] * N_HEADS * HEAD_DIM + 4 * (s["n_images"] + 1),
            "n_operations": 4 * n_pairs * N_HEADS * HEAD_DIM, "unit": "bf16"}
