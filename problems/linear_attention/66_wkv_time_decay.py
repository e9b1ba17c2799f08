"""WKV of RWKV-4 with its running maximum: an average of past values with weights that fade over time, fp32, state in and out.

inputs   k, v       f32 [n_seqs, n_tokens, n_channels]
         decay      f32 [n_channels]                         w, at most 0, added to every exponent at each step
         bonus      f32 [n_channels]                         u, added to the current token's exponent
         state      f32 [n_seqs, 3, n_channels]              a, b and p before the first token
outputs  out        f32 [n_seqs, n_tokens, n_channels]
         new_state  f32 [n_seqs, 3, n_channels]              a, b and p after the last token (a new array)

Token by token, for each channel; the sums a and b are kept divided by exp(p), so that no exponential overflows:
    m = max(p, u + k);       out = (exp(p - m) a + exp(u + k - m) v) / (exp(p - m) b + exp(u + k - m))
    m = max(p + w, k);       a <- exp(p + w - m) a + exp(k - m) v
                             b <- exp(p + w - m) b + exp(k - m);   p <- m
Keys reach 120, whose exponential float32 cannot hold. A state of a = b = 0, p = -1e38 is that of an empty past; sequence 0
starts there. Everything is float32.
"""

from problems import precision

SOURCE = "RWKV-4 7B: 4096 channels, context length 1024; 8 sequences"
SIZES = {"full": {"n_seqs": 8, "n_tokens": 1024, "n_channels": 4096},
         "small": {"n_seqs": 3, "n_tokens": 96, "n_channels": 256}}
OUTPUTS = ("f32", "f32")
INVARIANT = "shapes and types; sequence 0 starts from an empty past"


def make_inputs(xp, rng, size="full"):
    s, f32 = SIZES[size], xp.float32
    n_seqs, n_channels = s["n_seqs"], s["n_channels"]
    # Every channel's keys have a level of their own, up to 110; a channel forgets half within 1 to 700 tokens.
    level = f32(110) * rng.random(n_channels, dtype=f32)
    k = xp.minimum(rng.standard_normal((n_seqs, s["n_tokens"], n_channels), dtype=f32) * f32(2) + level, f32(120))
    v = rng.standard_normal((n_seqs, s["n_tokens"], n_channels), dtype=f32) + f32(0.5)
    decay = -xp.exp(f32(-7) + f32(7) * rng.random(n_channels, dtype=f32))
    bonus = rng.standard_normal(n_channels, dtype=f32) + f32(0.5)
    a = rng.standard_normal((n_seqs, n_channels), dtype=f32)
    b = f32(1) + rng.random((n_seqs, n_channels), dtype=f32)
    p = rng.standard_normal((n_seqs, n_channels), dtype=f32) + level
    a[0], b[0], p[0] = 0, 0, -1e38
    return k, v, decay, bonus, xp.stack((a, b, p), axis=1)


def reference(xp, k, v, decay, bonus, state):
    k, v, decay, bonus, state = (precision.wide(x) for x in (k, v, decay, bonus, state))
    a, b, p = (state[:, i] for i in range(3))
    out = xp.empty_like(v)
    for t in range(k.shape[1]):
        key, value = k[:, t], v[:, t]
        most = xp.maximum(p, bonus + key)
        past, now = xp.exp(p - most), xp.exp(bonus + key - most)
        out[:, t] = (past * a + now * value) / (past * b + now)
        most = xp.maximum(p + decay, key)
        past, now = xp.exp(p + decay - most), xp.exp(key - most)
        a, b, p = past * a + now * value, past * b + now, most
    return precision.narrow(out, "f32"), precision.narrow(xp.stack((a, b, p), axis=1), "f32")


def work(size="full"):
    s = SIZES[size]
    n_values = s["n_seqs"] * s["n_tokens"] * s["n_channels"]
    # Two maxima, four exponentials, a division and thirteen sums and products a token and channel.
    return {"n_bytes": 12 * n_values + 24 * s["n_seqs"] * s["n_channels"] + 8 * s["n_channels"],
            "n_operations": 20 * n_values, "unit": "f32"}
