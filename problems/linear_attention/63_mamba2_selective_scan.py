"""Mamba-2 selective scan over whole sequences, Nemotron-H, bf16: step sizes, skip and the float32 state at the end.

inputs   x          bf16 [n_seqs, n_tokens, n_heads, 64]
         dt         bf16 [n_seqs, n_tokens, n_heads]           raw step size
         dt_bias    f32  [n_heads]
         a_log      f32  [n_heads]
         b, c       bf16 [n_seqs, n_tokens, n_groups, 128]     head j reads group j // (n_heads / n_groups)
         skip       f32  [n_heads]
outputs  y          bf16 [n_seqs, n_tokens, n_heads, 64]
         state      f32  [n_seqs, n_heads, 128, 64]            h after the last token

Token by token from h = 0, for each head:
    step = log(1 + exp(dt + dt_bias))
    h <- exp(-step exp(a_log)) h + step b x^T
    y = c^T h + skip x

The reference takes chunks of 64 tokens at once, which is the same sum: with G the cumulated logarithm of the decay within a
chunk, y_i reads exp(G_i) c_i^T h and the sum over j <= i of exp(G_i - G_j) (c_i . b_j) step_j x_j. The last chunk may be
ragged, as it is at the full size. Sums, decays and the state are float32; operands of matrix products are rounded to bf16.
"""

from problems import precision

SOURCE = ("Nemotron-H 8B: mamba_num_heads 128, mamba_head_dim 64, n_groups 8, ssm_state_size 128; "
          "1 sequence of 8000 tokens")
SIZES = {"full": {"n_seqs": 1, "n_tokens": 8000, "n_heads": 128, "n_groups": 8},
         "small": {"n_seqs": 2, "n_tokens": 150, "n_heads": 4, "n_groups": 2}}
HEAD_DIM, STATE_DIM, CHUNK = 64, 128, 64
OUTPUTS = ("bf16", "f32")
INVARIANT = "shapes and types; rates, biases and skips of the heads are drawn with the rest"


def make_inputs(xp, rng, size="full"):
    s, bf16, f32 = SIZES[size], precision.TYPES["bf16"], xp.float32
    tokens, n_heads = (s["n_seqs"], s["n_tokens"]), s["n_heads"]

    def normal(*shape, mean=0.0):
        return rng.standard_normal(shape, dtype=f32) + f32(mean)

    # What is written and what is read lean to one direction of random signs: sums over tokens outgrow their terms.
    lean = xp.where(rng.random(STATE_DIM, dtype=f32) < 0.5, -1, 1).astype(f32) * f32(1.2)
    b, c = ((normal(*tokens, s["n_groups"], STATE_DIM) + lean).astype(bf16) for _ in range(2))
    x = normal(*tokens, n_heads, HEAD_DIM, mean=1).astype(bf16)
    # Steps of about 0.01 to 0.1 and rates of 0.2 to 1: a head remembers tens to hundreds of tokens.
    dt = (normal(*tokens, n_heads) * f32(0.5)).astype(bf16)
    dt_bias = f32(-4) + f32(2) * rng.random(n_heads, dtype=f32)
    a_log = f32(-1.6) * rng.random(n_heads, dtype=f32)
    return x, dt, dt_bias, a_log, b, c, normal(n_heads, mean=1)


def reference(xp, x, dt, dt_bias, a_log, b, c, skip):
    n_tokens, n_shared = x.shape[1], x.shape[2] // b.shape[2]
    step = xp.log1p(xp.exp(precision.wide(dt) + precision.wide(dt_bias)))[..., None]
    log_decay = -step * xp.exp(precision.wide(a_log))[:, None]
    skipped = precision.wide(x) * precision.wide(skip)[:, None]
    x, log_decay = _chunks(xp, step * precision.wide(x)), _chunks(xp, log_decay)
    b, c = (_chunks(xp, precision.wide(v)) for v in (b, c))
    total = xp.cumsum(log_decay, axis=-2)                                      # G, [n_seqs, n_heads, n_chunks, 64, 1]
    lower = precision.wide(xp.tri(CHUNK, dtype=xp.float32))
    decay = xp.exp(xp.minimum(total - total.swapaxes(-1, -2), 0)) * lower
    scores = xp.repeat(_product(xp, c, b.swapaxes(-1, -2)), n_shared, axis=1) * decay
    b, c = (xp.repeat(v, n_shared, axis=1) for v in (b, c))
    y = _product(xp, scores, x)
    added = _product(xp, (b * xp.exp(total[..., -1:, :] - total)).swapaxes(-1, -2), x)
    c, last = c * xp.exp(total), xp.exp(total[..., -1:, :])
    state = xp.zeros_like(added[:, :, 0])
    for chunk in range(y.shape[2]):
        y[:, :, chunk] += _product(xp, c[:, :, chunk], state)
        state = last[:, :, chunk] * state + added[:, :, chunk]
    y = xp.moveaxis(y, 1, 3)
    y = y.reshape(y.shape[0], -1, *y.shape[3:])[:, :n_tokens] + skipped
    return precision.narrow(y, "bf16"), precision.narrow(state, "f32")


def _chunks(xp, x):
    """[n_seqs, n_tokens, n_heads, d] -> [n_seqs, n_heads, n_chunks, 64, d], the last chunk filled up with zeros."""
    n_seqs, n_tokens, n_heads, d = x.shape
    n_chunks = -(-n_tokens // CHUNK)
    filled = xp.zeros((n_seqs, n_chunks * CHUNK, n_heads, d), x.dtype)
    filled[:, :n_tokens] = x
    return xp.moveaxis(filled.reshape(n_seqs, n_chunks, CHUNK, n_heads, d), 3, 1)


def _product(xp, a, b):
    return precision.matmul(xp, precision.narrow(a, "bf16"), precision.narrow(b, "bf16"))


def work(size="full"):
    s = SIZES[size]
    n_tokens, n_heads = s["n_seqs"] * s["n_tokens"], s["n_heads"]
    n_bytes = n_tokens * (n_heads * (4 * HEAD_DIM + 2) + 4 * s["n_groups"] * STATE_DIM)
    n_bytes += 4 * s["n_seqs"] * n_heads * HEAD_DIM * STATE_DIM + 12 * n_heads
    # A token and head: two products with the state and one with a chunk's 64 tokens; a token and group: c . b.
    n_operations = n_tokens * (n_heads * (4 * HEAD_DIM * STATE_DIM + CHUNK * HEAD_DIM) + s["n_groups"] * CHUNK * STATE_DIM)
    return {"n_bytes": n_bytes, "n_operations": n_operations, "unit": "bf16"}
