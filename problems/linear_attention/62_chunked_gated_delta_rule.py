"""Gated delta rule over whole sequences (chunked prefill), Qwen3-Next, bf16, with the float32 state in and out.

inputs   q, k       bf16 [n_seqs, n_tokens, n_qk_heads, 128]    value head j reads query/key head j // 2
         v          bf16 [n_seqs, n_tokens, n_v_heads, 128]
         log_decay  f32  [n_seqs, n_tokens, n_v_heads]          at most 0
         beta       f32  [n_seqs, n_tokens, n_v_heads]          write strength in (0, 1)
         state      f32  [n_seqs, n_v_heads, 128, 128]          S before the first token, indexed [key dim, value dim]
outputs  out        bf16 [n_seqs, n_tokens, n_v_heads, 128]
         new_state  f32  [n_seqs, n_v_heads, 128, 128]          S after the last token (a new array)

Token by token, for each value head, with q^ = q / sqrt(sum q^2 + 1e-6) over the 128 entries and k^ likewise:
    S <- exp(log_decay) S
    S <- S + k^ (beta (v - k^T S))^T
    out = q^T S / sqrt(128)

The reference takes chunks of 64 tokens at once, which is the same sum: with G the cumulated log_decay within the chunk,
the values that a chunk writes are u = T (beta v) - T (beta exp(G) k^) S, where T = (1 + tril(beta k^ k^^T exp(G_i - G_j), -1))^-1.
The last chunk may be ragged. Sums, decays and the state are float32; operands of matrix products but those of T are rounded
to bf16.
"""

from problems import precision

SOURCE = ("Qwen3-Next 80B-A3B: linear_num_key_heads 16, linear_num_value_heads 32, linear_key/value_head_dim 128; "
          "2 sequences of 8192 tokens")
SIZES = {"full": {"n_seqs": 2, "n_tokens": 8192, "n_qk_heads": 16, "n_v_heads": 32},
         "small": {"n_seqs": 2, "n_tokens": 150, "n_qk_heads": 2, "n_v_heads": 4}}
DIM, CHUNK = 128, 64
OUTPUTS = ("bf16", "f32")
INVARIANT = "shapes, types and the scale 1/sqrt(128)"


def make_inputs(xp, rng, size="full"):
    s, bf16, f32 = SIZES[size], precision.TYPES["bf16"], xp.float32
    tokens = (s["n_seqs"], s["n_tokens"])
    # Queries and keys share an offset: what a token reads is a sum over many tokens' values.
    q, k = ((rng.standard_normal((*tokens, s["n_qk_heads"], DIM), dtype=f32) + f32(0.5)).astype(bf16) for _ in range(2))
    v = (rng.standard_normal((*tokens, s["n_v_heads"], DIM), dtype=f32) + f32(1)).astype(bf16)
    log_decay = f32(-0.03) * rng.random((*tokens, s["n_v_heads"]), dtype=f32)
    beta = f32(0.1) + f32(0.8) * rng.random((*tokens, s["n_v_heads"]), dtype=f32)
    state = rng.standard_normal((s["n_seqs"], s["n_v_heads"], DIM, DIM), dtype=f32)
    return q, k, v, log_decay, beta, state


def reference(xp, q, k, v, log_decay, beta, state):
    n_tokens, n_shared = q.shape[1], v.shape[2] // q.shape[2]
    q, k = (xp.repeat(_chunks(xp, _unit(xp, x)), n_shared, axis=1) for x in (q, k))
    v, beta, log_decay = (_chunks(xp, precision.wide(x)) for x in (v, beta[..., None], log_decay[..., None]))
    lower = precision.wide(xp.tri(CHUNK, dtype=xp.float32))
    total = xp.cumsum(log_decay, axis=-2)                                      # G, [n_seqs, n_heads, n_chunks, 64, 1]
    decay = xp.exp(xp.minimum(total - total.swapaxes(-1, -2), 0)) * lower
    k_turned = k.swapaxes(-1, -2)
    solved = _unit_lower_inverse(xp, beta * _product(xp, k, k_turned) * decay)
    writes = _product(xp, solved, beta * v)
    reads = _product(xp, solved, beta * xp.exp(total) * k)
    scores = _product(xp, q, k_turned) * decay
    q, k = q * xp.exp(total), k * xp.exp(total[..., -1:, :] - total)
    last = xp.exp(total[..., -1:, :])
    state, out = precision.wide(state), xp.empty_like(v)
    for c in range(v.shape[2]):
        u = writes[:, :, c] - _product(xp, reads[:, :, c], state)
        out[:, :, c] = _product(xp, q[:, :, c], state) + _product(xp, scores[:, :, c], u)
        state = last[:, :, c] * state + _product(xp, k[:, :, c].swapaxes(-1, -2), u)
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
    n_tokens = s["n_seqs"] * s["n_tokens"]
    n_moved = n_tokens * (4 * (s["n_qk_heads"] + s["n_v_heads"]) * DIM + 8 * s["n_v_heads"])
    # A token and head: three products with the state, and four with a chunk's 64 tokens, of which half are in the past.
    n_operations = n_tokens * s["n_v_heads"] * (6 * DIM * DIM + 5 * CHUNK * DIM)
    return {"n_bytes": n_moved + 8 * s["n_seqs"] * s["n_v_heads"] * DIM * DIM, "n_operations": n_operations, "unit": "bf16"}
