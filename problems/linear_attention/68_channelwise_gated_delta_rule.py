"""Channel-wise gated delta rule (KDA) over whole sequences, bf16: every key channel of the float32 state decays at its own rate.

inputs   q, k       bf16 [n_seqs, n_tokens, n_heads, 128]
         v          bf16 [n_seqs, n_tokens, n_heads, 128]
         log_decay  f32  [n_seqs, n_tokens, n_heads, 128]   of each key channel, in [-0.5, 0]
         beta       f32  [n_seqs, n_tokens, n_heads]        write strength in (0, 1)
         state      f32  [n_seqs, n_heads, 128, 128]        S before the first token, indexed [key dim, value dim]
outputs  out        bf16 [n_seqs, n_tokens, n_heads, 128]
         new_state  f32  [n_seqs, n_heads, 128, 128]        S after the last token (a new array)

Token by token, for each head, with q^ = q / sqrt(sum q^2 + 1e-6) over the 128 entries and k^ likewise:
    S <- diag(exp(log_decay)) S
    S <- S + k^ (beta (v - k^^T S))^T
    out = q^^T S / sqrt(128)

The reference takes chunks of 64 tokens at once, which is the same sum: with G the log_decay cumulated within the chunk, pairs
of tokens meet in (k^ exp(G))_i . (k^ exp(-G))_j. As no step decays by more than exp(-0.5), exp(-G) stays below exp(32).
The last chunk may be ragged. Sums, decays and the state are float32; operands of matrix products but those of the triangular
inverse are rounded to bf16.
"""

from problems import precision

SOURCE = "Kimi Linear 48B-A3B: linear_attn_config num_heads 32, head_dim 128; 2 sequences of 4096 tokens"
SIZES = {"full": {"n_seqs": 2, "n_tokens": 4096, "n_heads": 32}, "small": {"n_seqs": 2, "n_tokens": 150, "n_heads": 3}}
DIM, CHUNK = 128, 64
OUTPUTS = ("bf16", "f32")
INVARIANT = "shapes, types, the scale 1/sqrt(128) and the bound -0.5 of log_decay; rates of the channels are drawn"


def make_inputs(xp, rng, size="full"):
    s, bf16, f32 = SIZES[size], precision.TYPES["bf16"], xp.float32
    shape = (s["n_seqs"], s["n_tokens"], s["n_heads"], DIM)
    # Queries and keys share an offset, and most channels decay slowly: what a token reads is a sum over many tokens' values.
    q, k = ((rng.standard_normal(shape, dtype=f32) + f32(0.5)).astype(bf16) for _ in range(2))
    v = (rng.standard_normal(shape, dtype=f32) + f32(1)).astype(bf16)
    rate = f32(0.5) * rng.random((s["n_heads"], DIM), dtype=f32) ** 4
    log_decay = -rate * rng.random(shape, dtype=f32)
    beta = f32(0.1) + f32(0.8) * rng.random(shape[:3], dtype=f32)
    state = rng.standard_normal((s["n_seqs"], s["n_heads"], DIM, DIM), dtype=f32)
    return q, k, v, log_decay, beta, state


def reference(xp, q, k, v, log_decay, beta, state):
    n_tokens = q.shape[1]
    q, k = (_chunks(xp, _unit(xp, x)) for x in (q, k))
    v, beta, log_decay = (_chunks(xp, precision.wide(x)) for x in (v, beta[..., None], log_decay))
    lower = precision.wide(xp.tri(CHUNK, dtype=xp.float32))
    total = xp.cumsum(log_decay, axis=-2)                                    # G, [n_seqs, n_heads, n_chunks, 64, 128]
    k_grown = (k * xp.exp(-total)).swapaxes(-1, -2)
    q, k_decayed = q * xp.exp(total), k * xp.exp(total)
    solved = _unit_lower_inverse(xp, beta * _product(xp, k_decayed, k_grown) * lower)
    writes = _product(xp, solved, beta * v)
    reads = _product(xp, solved, beta * k_decayed)
    scores = _product(xp, q, k_grown) * lower
    k_left = k * xp.exp(total[..., -1:, :] - total)
    last = xp.exp(total[..., -1, :])[..., None]
    state, out = precision.wide(state), xp.empty_like(v)
    for c in range(v.shape[2]):
        u = writes[:, :, c] - _product(xp, reads[:, :, c], state)
        out[:, :, c] = _product(xp, q[:, :, c], state) + _product(xp, scores[:, :, c], u)
        state = last[:, :, c] * state + _product(xp, k_left[:, :, c].swapaxes(-1, -2), u)
    out = xp.moveaxis(out * DIM ** -0.5, 1, 3)
    out = out.reshape(out.shape[0], -1, *out.shape[3:])[:, :n_tokens]
    return precision.narrow(out, "bf16"), precision.narrow(state, "f32")


def _unit(xp, x):
    x = precision.wide(x)
    return x / xp.sqrt(precision.total(xp, x * x) + 1e-6)


def _chunks(xp, x):
    """[n_seqs, n_tokens, n_heads, d] -> [n_seqs, n_heads, n_chunks, 64, d], the last chunk filled up with zeros."""
    n_seqs, n_tokens, n_heads, d = x.shape
    n_chunks = -(-n_tokens // CHUNK)
    filled = xp.zeros((n_seqs, n_chunks * CHUNK, n_heads, d), x.dtype)
    filled[:, :n_tokens] = x
    return xp.moveaxis(filled.reshape(n_seqs, n_chunks, CHUNK, n_heads, d), 3, 1)


def _product(xp, a, b):
    return precision.matmul(xp, precision.narrow(a, "bf16"), precision.narrow(b, "bf16"))


def _unit_lower_inverse(xp, a):
    """(1 + a's part below the diagonal)^-1 by forward substitution, row by row."""
    inverse = xp.zeros_like(a) + xp.eye(CHUNK, dtype=a.dtype)
    for i in range(1, CHUNK):
        inverse[..., i:i + 1, :] -= precision.matmul(xp, a[..., i:i + 1, :i], inverse[..., :i, :])
    return inverse


def work(size="full"):
    s = SIZES[size]
    n_tokens = s["n_seqs"] * s["n_tokens"] * s["n_heads"]
    # A token and head: three products with the state, and five with a chunk's 64 tokens, of which half are in the past.
    return {"n_bytes": n_tokens * (12 * DIM + 4) + 8 * s["n_seqs"] * s["n_heads"] * DIM * DIM,
            "n_operations": n_tokens * (6 * DIM * DIM + 5 * CHUNK * DIM), "unit": "bf16"}
