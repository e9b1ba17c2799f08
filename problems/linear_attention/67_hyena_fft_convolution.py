"""Hyena block between its projections, fp32: short causal convolution, gate, causal convolution as long as the sequence, gate.

inputs   u           f32 [n_seqs, 3 n_channels, n_tokens]     projected input: both gates' rows, then the values'
         short       f32 [3 n_channels, 3]                    taps of the short convolution
         short_bias  f32 [3 n_channels]
         long        f32 [n_channels, n_tokens]               taps of the long convolution
         long_bias   f32 [n_channels]
outputs  out         f32 [n_seqs, n_channels, n_tokens]

    z[t] = short_bias + short[0] u[t - 2] + short[1] u[t - 1] + short[2] u[t]       for each row; 0 before the first token
    x0, x1, v = the three thirds of z's rows
    g = v x1
    out[t] = x0[t] (long_bias g[t] + sum over s = 0 ... t of long[s] g[t - s])
The reference transforms both sides, filled up with zeros to 2 n_tokens so that nothing wraps around. All is float32.
"""

from problems import precision

SOURCE = "HyenaDNA small-32k: d_model 256, order 2, short filter 3, 32768 tokens; 4 sequences"
SIZES = {"full": {"n_seqs": 4, "n_channels": 256, "n_tokens": 32768}, "small": {"n_seqs": 2, "n_channels": 8, "n_tokens": 600}}
N_SHORT = 3
OUTPUTS = ("f32",)
INVARIANT = "shapes and types; both filters are drawn with the rest"


def make_inputs(xp, rng, size="full"):
    s, f32 = SIZES[size], xp.float32
    n_channels, n_tokens = s["n_channels"], s["n_tokens"]

    def normal(*shape, mean=0.0):
        return rng.standard_normal(shape, dtype=f32) + f32(mean)

    u = normal(s["n_seqs"], 3 * n_channels, n_tokens, mean=0.3)
    # Long filters fade at a rate of their own, as the model's window makes them: to 1% over a tenth to the whole length.
    time = xp.arange(n_tokens, dtype=f32) / f32(n_tokens)
    fade = xp.exp(-time * (f32(4.6) + f32(41.4) * rng.random((n_channels, 1), dtype=f32)))
    long = normal(n_channels, n_tokens, mean=0.2) * fade * f32(n_tokens ** -0.5)
    return u, normal(3 * n_channels, N_SHORT, mean=0.2), normal(3 * n_channels), long, normal(n_channels)


def reference(xp, u, short, short_bias, long, long_bias):
    u, short, short_bias, long, long_bias = (precision.wide(x) for x in (u, short, short_bias, long, long_bias))
    n_tokens = u.shape[-1]
    z = u * short[:, -1:] + short_bias[:, None]
    for back in range(1, N_SHORT):
        z[..., back:] += u[..., :-back] * short[:, N_SHORT - 1 - back, None]
    x0, x1, v = (z[:, i * len(long):(i + 1) * len(long)] for i in range(3))
    gated = v * x1
    spectrum = xp.fft.rfft(_transformable(gated), n=2 * n_tokens) * xp.fft.rfft(_transformable(long), n=2 * n_tokens)
    mixed = precision.wide(xp.fft.irfft(spectrum, n=2 * n_tokens)[..., :n_tokens])
    return precision.narrow(x0 * (mixed + long_bias[:, None] * gated), "f32")


def _transformable(x):
    # No array module transforms bfloat16, in which the half-precision mutant keeps what goes in and comes out.
    return precision.narrow(x, "f32") if x.dtype in precision.HALVES else x


def work(size="full"):
    s = SIZES[size]
    n_rows, n_points = s["n_seqs"] * s["n_channels"], 2 * s["n_tokens"]
    n_bytes = 4 * (4 * n_rows + s["n_channels"]) * s["n_tokens"] + 4 * (13 * s["n_channels"])
    # A real transform of n points takes 2.5 n log2 n operations: two a row and one a filter; then short taps and gates.
    n_transforms = (2 * n_rows + s["n_channels"]) * n_points * (n_points - 1).bit_length() * 5 // 2
    return {"n_bytes": n_bytes, "n_operations": n_transforms + n_rows * (24 * s["n_tokens"] + 6 * n_points), "unit": "f32"}
