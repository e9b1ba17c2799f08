"""Projection of image features into the text model's embeddings, in place of the image tokens, Qwen3-VL, nvfp4.

inputs   features  bf16 [n_image, n_in]           image features, in the order of the image tokens
         embeds    bf16 [n_tokens, n_out]         text embeddings
         is_image  bool [n_tokens]                marks the image tokens: n_image of them
         w         u8   [n_out, n_in]             e2m1 codes, one a byte
         w_scale   u8   [n_out, n_in / 16]        e4m3 codes, one for 16 neighbouring inputs
         w_unit    f32  [1]                       weight = code * scale * unit
         x_unit    f32  [1]                       unit in which the features are quantised
         bias      bf16 [n_out]
outputs  out       bf16 [n_tokens, n_out]         at the i-th image token: feature' i . w^T + bias; elsewhere embeds

feature' is the feature through nvfp4: for 16 neighbouring inputs, scale = the e4m3 nearest to max|x| / 6 / x_unit, code
= the e2m1 nearest to x / (scale * x_unit), ties to even, beyond 6 it is 6; 0 where the scale is 0. Sums are float32.
"""

from problems import formats, precision

SOURCE = ("Qwen3-VL 8B in NVFP4 (vision width 1152 * 4 merged patches = 4608 into hidden size 4096); 4096 image "
          "tokens among 6144")
SIZES = {"full": {"n_image": 4096, "n_tokens": 6144, "n_in": 4608, "n_out": 4096},
         "small": {"n_image": 20, "n_tokens": 32, "n_in": 640, "n_out": 128}}
OUTPUTS = ("bf16",)
INVARIANT = "shapes, types, units and the number of image tokens; their places are drawn"


def make_inputs(xp, rng, size="full"):
    s, bf16 = SIZES[size], precision.TYPES["bf16"]

    def normal(*shape):
        return rng.standard_normal(shape, dtype=xp.float32)

    # Features and weights lean to one direction of random signs, each by its own amount: sums outgrow their terms.
    lean = xp.where(rng.random(s["n_in"], dtype=xp.float32) < 0.5, -1, 1).astype(xp.float32)
    features = normal(s["n_image"], s["n_in"]) + normal(s["n_image"], 1) * lean
    w = (normal(s["n_out"], s["n_in"]) + normal(s["n_out"], 1) * lean) * xp.float32(s["n_in"] ** -0.5)
    w_unit = xp.full(1, 12 * s["n_in"] ** -0.5 / (6 * 448), xp.float32)
    w, w_scale = formats.encode_nvfp4(xp, w, w_unit)
    is_image = xp.zeros(s["n_tokens"], bool)
    is_image[xp.argsort(rng.random(s["n_tokens"], dtype=xp.float32))[:s["n_image"]]] = True
    return (features.astype(bf16), (normal(s["n_tokens"], s["n_out"]) + 1).astype(bf16), is_image, w, w_scale, w_unit,
            xp.full(1, 12 / (6 * 448), xp.float32), normal(s["n_out"]).astype(bf16))


def reference(xp, features, embeds, is_image, w, w_scale, w_unit, x_unit, bias):
    x = formats.decode_nvfp4(xp, *formats.encode_nvfp4(xp, precision.wide(features), x_unit), x_unit)
    y = precision.matmul(xp, x, formats.decode_nvfp4(xp, w, w_scale, w_unit).T) + precision.wide(bias)
    out = precision.narrow(embeds, "bf16").copy()
    out[xp.flatnonzero(is_image)] = precision.narrow(y, "bf16")
    return out


def work(size="full"):
    s = SIZES[size]
    n_bytes = s["n_in"] * (2 * s["n_image"] + s["n_out"]) + s["n_in"] * s["n_out"] // 16
    n_bytes += 2 * s["n_out"] * (2 * s["n_tokens"] - s["n_image"] + 1) + s["n_tokens"] + 8
    return {"n_bytes": n_bytes, "n_operations": 2 * s["n_image"] * s["n_in"] * s["n_out"], "unit": "bf16"}
