"""Patch merger of a vision encoder: RMSNorm a patch, four neighbours side by side, two layers with GELU between, bf16.

inputs   x       bf16 [n_patches, n_in]                    patches in an order in which each four to be merged are neighbours
         weight  bf16 [n_in]                               the norm's gain
         w1      bf16 [4 n_in, 4 n_in],  b1 bf16 [4 n_in]   first layer, [out, in], and its bias
         w2      bf16 [n_out, 4 n_in],   b2 bf16 [n_out]
outputs  out     bf16 [n_patches / 4, n_out]

    n = x / sqrt(mean(x^2) + 1e-6) * weight                over the n_in values of one patch
    m = four neighbouring rows of n, concatenated
    h = gelu(m . w1^T + b1),   gelu(a) = a/2 * (1 + erf(a / sqrt 2))
    out = h . w2^T + b2
Sums and elementwise mathematics are float32; n and h are rounded to bf16 before they are multiplied.
"""

from problems import precision, special

SOURCE = ("Qwen2.5-Omni 7B vision tower: hidden_size 1280, spatial_merge_size 2, out_hidden_size 3584; 16384 patches, "
          "such as 4 pictures of 896 x 896 (patch 14)")
SIZES = {"full": {"n_patches": 16384, "n_in": 1280, "n_out": 3584}, "small": {"n_patches": 64, "n_in": 160, "n_out": 128}}
EPS, N_MERGED = 1e-6, 4
OUTPUTS = ("bf16",)
INVARIANT = "shapes, types, eps and the four patches a merged row takes"


def make_inputs(xp, rng, size="full"):
    s, bf16 = SIZES[size], precision.TYPES["bf16"]
    n_in, n_wide = s["n_in"], N_MERGED * s["n_in"]

    def normal(*shape, mean=0.0, std=1.0):
        return rng.standard_normal(shape, dtype=xp.float32) * xp.float32(std) + xp.float32(mean)

    # Patches and first-layer rows lean to one direction of random signs, second-layer rows to one sign each, all by amounts
    # of their own: sums outgrow their terms.
    lean = xp.where(rng.random(n_in, dtype=xp.float32) < 0.5, -1, 1).astype(xp.float32)
    x = normal(s["n_patches"], n_in) + normal(s["n_patches"], 1, std=0.5) * lean
    w1 = (normal(n_wide, n_wide) + normal(n_wide, 1, mean=0.2, std=0.1) * xp.tile(lean, N_MERGED)) * xp.float32(n_wide ** -0.5)
    w2 = (normal(s["n_out"], n_wide, std=0.5) + normal(s["n_out"], 1)) * xp.float32(n_wide ** -0.5)
    values = (x, normal(n_in, mean=1, std=0.2), w1, normal(n_wide, mean=0.5, std=0.2), w2, normal(s["n_out"], std=0.2))
    return tuple(value.astype(bf16) for value in values)


def reference(xp, x, weight, w1, b1, w2, b2):
    x = precision.wide(x)
    normed = x / xp.sqrt(precision.total(xp, x * x) / x.shape[-1] + EPS) * precision.wide(weight)
    merged = precision.narrow(normed, "bf16").reshape(-1, w1.shape[1])
    a = precision.matmul(xp, merged, w1.T) + precision.wide(b1)
    h = precision.narrow(a / 2 * (1 + special.erf(xp, a * 0.5 ** 0.5)), "bf16")
    return precision.narrow(precision.matmul(xp, h, w2.T) + precision.wide(b2), "bf16")


def work(size="full"):
    s = SIZES[size]
    n_rows, n_wide = s["n_patches"] // N_MERGED, N_MERGED * s["n_in"]
    n_values = s["n_patches"] * s["n_in"] + s["n_in"] + (n_wide + s["n_out"]) * (n_wide + 1) + n_rows * s["n_out"]
    return {"n_bytes": 2 * n_values, "n_operations": 2 * n_rows * n_wide * (n_wide + s["n_out"]), "unit": "bf16"}
