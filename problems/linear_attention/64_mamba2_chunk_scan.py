"""Mamba-2 chunk scan with segment sums, Granite, bf16: chunks of 256 tokens, their states joined by segment sums as well.

inputs   x          bf16 [n_seqs, n_tokens, n_heads, 64]
         log_decay  f32  [n_seqs, n_tokens, n_heads]         step times rate, below 0
         step       f32  [n_seqs, n_tokens, n_heads]         above 0
         b, c       bf16 [n_seqs, n_tokens, 128]             one group: all heads read the same
         state      f32  [n_seqs, n_heads, 64, 128]          h before the first token, indexed [head dim, state dim]
outputs  y          bf16 [n_seqs, n_tokens, n_heads, 64]
         states     f32  [n_seqs, n_chunks + 1, n_heads, 64, 128]    h before each chunk of 256, then after the last

Token by token, for each head: h <- exp(log_decay) h + step x b^T, y = h c.

The reference never walks along the tokens, which gives the same sums. The segment sum of a list a is the matrix
S[i, j] = a[j + 1] + ... + a[i] for j <= i, minus infinity above, so that exp(S) is a lower triangle with ones on its diagonal.
Within a chunk, y_i = sum over j of exp(S)[i, j] (c_i . b_j) step_j x_j, and the chunk adds w = sum over j of exp(S)[last, j]
step_j x_j b_j^T. Over chunks, with S of (0, the chunks' whole log_decay ...) and the list (state, w_0, w_1 ...), the states are
exp(S) times that list, and y_i gains exp(a[0] + ... + a[i]) h c_i. n_tokens is a multiple of 256. Sums, decays and states are
float32; operands of matrix products are rounded to bf16, but not the sum over chunks.
"""

from problems import precision

SOURCE = ("Granite 4.0 H Small: mamba_n_heads 128, mamba_d_head 64, mamba_d_state 128, mamba_n_groups 1, "
          "mamba_chunk_size 256; 2 sequences of 4096 tokens")
SIZES = {"full": {"n_seqs": 2, "n_tokens": 4096, "n_heads": 128}, "small": {"n_seqs": 1, "n_tokens": 768, "n_heads": 2}}
HEAD_DIM, STATE_DIM, CHUNK = 64, 128, 256
OUTPUTS = ("bf16", "f32")
INVARIANT = "shapes and types; the heads' rates are drawn with the rest"


def make_inputs(xp, rng, size="full"):
    s, bf16, f32 = SIZES[size], precision.TYPES["bf16"], xp.float32
    tokens, n_heads = (s["n_seqs"], s["n_tokens"]), s["n_heads"]

    def normal(*shape, mean=0.0):
        return rng.standard_normal(shape, dtype=f32) + f32(mean)

    # What is written and what is read lean to one direction of random signs: sums over tokens outgrow their terms.
    lean = xp.where(rng.random(STATE_DIM, dtype=f32) < 0.5, -1, 1).astype(f32)
    b, c = ((normal(*tokens, STATE_DIM) + lean).astype(bf16) for _ in range(2))
    x = normal(*tokens, n_heads, HEAD_DIM, mean=1).astype(bf16)
    step = f32(0.01) + f32(0.09) * rng.random((*tokens, n_heads), dtype=f32)
    log_decay = step * (f32(-0.1) - f32(0.9) * rng.random(n_heads, dtype=f32))
    return x, log_decay, step, b, c, normal(s["n_seqs"], n_heads, HEAD_DIM, STATE_DIM)


def reference(xp, x, log_decay, step, b, c, state):
    n_seqs, n_tokens, n_heads = log_decay.shape
    shape = (n_seqs, n_tokens // CHUNK, CHUNK)
    # Heads go before tokens: [n_seqs, n_chunks, n_heads or 1, 256, d].
    x, log_decay, step = (precision.wide(v).reshape(*shape, n_heads, -1).swapaxes(2, 3) for v in (x, log_decay, step))
    b, c = (v.reshape(*shape, 1, STATE_DIM).swapaxes(2, 3) for v in (b, c))
    x, total = step * x, xp.cumsum(log_decay, axis=-2)
    y = _product(xp, _decays(xp, total) * precision.matmul(xp, c, b.swapaxes(-1, -2)), x)
    added = _product(xp, (x * xp.exp(total[..., -1:, :] - total)).swapaxes(-1, -2), xp.repeat(b, n_heads, axis=2))
    states = _joined(xp, precision.wide(state), total[..., -1, 0], added)
    y = y + xp.exp(total) * _product(xp, xp.repeat(c, n_heads, axis=2), states[:, :-1].swapaxes(-1, -2))
    y = xp.ascontiguousarray(y.swapaxes(2, 3)).reshape(n_seqs, n_tokens, n_heads, HEAD_DIM)
    return precision.narrow(y, "bf16"), precision.narrow(states, "f32")


def _joined(xp, state, whole, added):
    """States before each chunk and after the last from the first one, the chunks' whole log_decay and what they add."""
    parts = xp.concatenate((state[:, None], added), axis=1)
    whole = xp.concatenate((xp.zeros_like(whole[:, :1]), whole), axis=1).swapaxes(1, 2)[..., None]
    flat = xp.ascontiguousarray(parts.swapaxes(1, 2)).reshape(*whole.shape[:3], -1)
    joined = precision.matmul(xp, _decays(xp, xp.cumsum(whole, axis=-2)), flat)
    return xp.ascontiguousarray(joined.swapaxes(1, 2)).reshape(parts.shape)


def _decays(xp, total):
    """exp of the segment sums of a list whose cumulated sums are `total` [..., n, 1]: [..., n, n]."""
    lower = precision.wide(xp.tri(total.shape[-2], dtype=xp.float32))
    return xp.exp(xp.minimum(total - total.swapaxes(-1, -2), 0)) * lower


def _product(xp, a, b):
    return precision.matmul(xp, precision.narrow(a, "bf16"), precision.narrow(b, "bf16"))


def work(size="full"):
    s = SIZES[size]
    n_tokens, n_heads, n_chunks = s["n_seqs"] * s["n_tokens"], s["n_heads"], s["n_tokens"] // CHUNK
    n_bytes = n_tokens * (n_heads * (4 * HEAD_DIM + 8) + 4 * STATE_DIM)
    n_bytes += 4 * s["n_seqs"] * (n_chunks + 2) * n_heads * HEAD_DIM * STATE_DIM
    # A token and head: two products with a state and one with a chunk's 256 tokens, half of them past; a token: c . b.
    n_operations = n_tokens * (n_heads * (4 * HEAD_DIM * STATE_DIM + CHUNK * HEAD_DIM) + CHUNK * STATE_DIM)
    return {"n_bytes": n_bytes, "n_operations": n_operations, "unit": "bf16"}
