"""GroupNorm with 32 groups over feature maps, Stable Diffusion 1.5, float32.

inputs   x            f32 [n_pictures, n_channels, n_places]   channels first, places in rows of the picture
         gamma, beta  f32 [n_channels]
outputs  y            f32 [n_pictures, n_channels, n_places]

A group is n_channels / 32 neighbouring channels with all their places. With its mean and its variance (the mean of squared
distances from the mean), y = (x - mean) / sqrt(variance + 1e-5) * gamma + beta, gamma and beta of the channel.
A group of equal values gives beta.
"""

from problems import precision

SOURCE = "Stable Diffusion 1.5 U-Net, first level: 320 channels, 64 x 64 places, norm_num_groups 32, norm_eps 1e-5; batch 32"
SIZES = {"full": {"n_pictures": 32, "n_channels": 320, "n_places": 4096},
         "small": {"n_pictures": 2, "n_channels": 320, "n_places": 256}}
N_GROUPS, EPS = 32, 1e-5
OUTPUTS = ("f32",)
INVARIANT = "shapes, types, eps and the number of groups"


def make_inputs(xp, rng, size="full"):
    s = SIZES[size]

    def normal(*shape, mean=0.0, std=1.0):
        return rng.standard_normal(shape, dtype=xp.float32) * xp.float32(std) + xp.float32(mean)

    # Each channel has a level and a spread of its own, so that groups differ and none is centred already.
    level, spread = normal(s["n_pictures"], s["n_channels"], 1), 0.5 + rng.random((1, s["n_channels"], 1), dtype=xp.float32)
    x = normal(s["n_pictures"], s["n_channels"], s["n_places"]) * spread + level
    return x, normal(s["n_channels"], mean=1, std=0.3), normal(s["n_channels"], std=0.3)


def reference(xp, x, gamma, beta):
    groups = precision.wide(x).reshape(x.shape[0], N_GROUPS, -1)
    centred = groups - precision.total(xp, groups) / groups.shape[-1]
    variance = precision.total(xp, centred * centred) / groups.shape[-1]
    y = (centred / xp.sqrt(variance + EPS)).reshape(x.shape)
    return precision.narrow(y * precision.wide(gamma)[:, None] + precision.wide(beta)[:, None], "f32")


def work(size="full"):
    s = SIZES[size]
    n_values = s["n_pictures"] * s["n_channels"] * s["n_places"]
    return {"n_bytes": 4 * (2 * n_values + 2 * s["n_channels"]), "n_operations": 8 * n_values, "unit": "f32"}
