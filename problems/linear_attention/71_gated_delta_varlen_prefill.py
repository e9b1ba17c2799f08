"""Gated delta rule over packed sequences of different lengths (prefill), Qwen3-Next, bf16, with the float32 state in and out.

inputs   q, k       bf16 [n_tokens, n_qk_heads, 128]           all sequences end to end; value head j reads head j // 2
         v          bf16 [n_tokens, n_v_heads, 128]
         log_decay  f32  [n_tokens, n_v_heads]                 at most 0
         beta       f32  [n_tokens, n_v_heads]                 write strength in (0, 1)
         state      f32  [n_seqs, n_v_heads, 128, 128]         S before each sequence, indexed [key dim, value dim]
         indptr     i32  [n_seqs + 1]                          sequence b has tokens indptr[b] to indptr[b + 1] - 1
outputs  out        bf16 [n_tokens, n_v_heads, 128]
         new_state  f32  [n_seqs, n_v_heads, 128, 128]         S after each sequence (a new array)

Token by token, for each value head, with q^ = q / sqrt(sum q^2 + 1e-6) over the 128 entries and k^ likewise:
    S <- exp(log_decay) S
    S <- S + k^ (beta (v - k^T S))^T
    out = q^T S / sqrt(128)
An empty sequence hands its state on as it is.

The reference takes chunks of 64 tokens at once, which is the same sum: with G the cumulated log_decay within the chunk and
T = (1 + tril(beta k^ k^T exp(G_i - G_j), -1))^-1, a chunk writes the values u = T (beta v) - T (beta exp(G) k^) S. Places past
a sequence's end have beta, k and log_decay zero, which changes nothing. Sums, decays and the state are float32; operands of
matrix products but those of T are rounded to bf16.
"""

from problems import precision

SOURCE = ("Qwen3-Next 80B-A3B: linear_num_key_heads 16, linear_num_value_heads 32, linear_key/value_head_dim 128; "
          "8 sequences in 8192 tokens")
SIZES = {"full": {"n_seqs": 8, "n_tokens": 8192, "n_qk_heads": 16, "n_v_heads": 32},
         "small": {"n_seqs": 4, "n_tokens": 300, "n_qk_heads": 2, "n_v_heads": 4}}
DIM, CHUNK = 128, 64
OUTPUTS = ("bf16", "f32")
INVARIANT = "shapes and types; lengths are drawn, sequence 1 is empty, the others have at least one token"


def make_inputs(xp, rng, size="full"):
    s, bf16, f32 = SIZES[size], precision.TYPES["bf16"], xp.float32
    n_tokens, n_qk, n_v = s["n_tokens"], s["n_qk_heads"], s["n_v_heads"]
    q, k = ((rng.standard_normal((n_tokens, n_qk, DIM), dtype=f32) + f32(0.5)).astype(bf16) for _ in range(2))
    v = (rng.standard_normal((n_tokens, n_v, DIM), dtype=f32) + f32(0.5)).astype(bf16)
    log_decay = f32(-0.2) * rng.random((n_tokens, n_v), dtype=f32) ** 2
    beta = f32(0.1) + f32(0.8) * rng.random((n_tokens, n_v), dtype=f32)
    state = rng.standard_normal((s["n_seqs"], n_v, DIM, DIM), dtype=f32)
    # Cuts at different places, the first of them twice: an empty sequence between.
    cuts = xp.sort(xp.argsort(rng.random(n_tokens - 1, dtype=f32))[:s["n_seqs"] - 2]) + 1
    ends = xp.zeros(1, cuts.dtype)
    indptr = xp.concatenate((ends, cuts[:1], cuts, ends + n_tokens)).astype(xp.int32)
    return q, k, v, log_decay, beta, state, indptr


def reference(xp, q, k, v, log_decay, beta, state, indptr):
    n_tokens, n_shared = len(q), v.shape[1] // q.shape[1]
    lengths = indptr[1:] - indptr[:-1]
    n_places = -(-int(lengths.max()) // CHUNK) * CHUNK
    place = xp.arange(n_places)
    inside = place < lengths[:, None]
    token = xp.where(inside, indptr[:-1, None] + place, 0)

    def chunks(x):
        """[n_tokens, n_heads, d] -> [n_seqs, n_heads, n_chunks, 64, d], zeros past a sequence's end."""
        x = xp.where(inside[..., None, None], x[token], x.dtype.type(0))
        return xp.moveaxis(x.reshape(len(lengths), -1, CHUNK, *x.shape[2:]), 3, 1)

    q, k = (xp.repeat(chunks(_unit(xp, x)), n_shared, axis=1) for x in (q, k))
    v, beta, log_decay = (chunks(precision.wide(x)) for x in (v, beta[..., None], log_decay[..., None]))
    i = xp.arange(CHUNK)
    past, seen = i[:, None] > i, i[:, None] >= i
    total = xp.cumsum(log_decay, axis=-2)                                      # G, [n_seqs, n_heads, n_chunks, 64, 1]
    none = total.dtype.type(0)
    decay = xp.exp(xp.where(seen, total - total.swapaxes(-1, -2), none))
    k_turned = k.swapaxes(-1, -2)
    solved = _inverse(xp, xp.where(past, beta * _product(xp, k, k_turned) * decay, none))
    writes, reads = _product(xp, solved, beta * v), _product(xp, solved, beta * xp.exp(total) * k)
    scores = xp.where(seen, _product(xp, q, k_turned) * decay, none)
    q, k, last = q * xp.exp(total), k * xp.exp(total[..., -1:, :] - total), xp.exp(total[..., -1:, :])
    state, out = precision.wide(state), xp.empty_like(v)
    for c in range(v.shape[2]):
        u = writes[:, :, c] - _product(xp, reads[:, :, c], state)
        out[:, :, c] = _product(xp, q[:, :, c], state) + _product(xp, scores[:, :, c], u)
        state = last[:, :, c] * state + _product(xp, k[:, :, c].swapaxes(-1, -2), u)
    out = xp.moveaxis(out * DIM ** -0.5, 1, 3).reshape(len(lengths), n_places, -1, DIM)
    # Tokens stand in the order of sequences and places, so the places inside are all tokens in order.
    out = out[inside].reshape(n_tokens, -1, DIM)
    return precision.narrow(out, "bf16"), precision.narrow(state, "f32")


def _unit(xp, x):
    x = precision.wide(x)
    return x / xp.sqrt(precision.total(xp, x * x) + 1e-6)


def _product(xp, a, b):
    return precision.matmul(xp, precision.narrow(a, "bf16"), precision.narrow(b, "bf16"))


def _inverse(xp, a):
    """(1 + a)^-1 of what is zero on and above the diagonal, by forward substitution."""
    inverse = xp.zeros_like(a) + xp.eye(CHUNK, dtype=a.dtype)
    for i in range(1, CHUNK):
        inverse[..., i:i + 1, :] -= precision.matmul(xp, a[..., i:i + 1, :i], inverse[..., :i, :])
    return inverse


def work(size="full"):
    s = SIZES[size]
    n_bytes = s["n_tokens"] * (4 * (s["n_qk_heads"] + s["n_v_heads"]) * DIM + 8 * s["n_v_heads"])
    n_bytes += 8 * s["n_seqs"] * s["n_v_heads"] * DIM * DIM + 4 * (s["n_seqs"] + 1)
    # A token and head: three products with the state, and five with a chunk's 64 tokens, of which half are in the past.
    n_operations = s["n_tokens"] * s["n_v_heads"] * (6 * DIM * DIM + 5 * CHUNK * DIM)
    return {"n_bytes": n_bytes, "n_operations": n_operations, "unit": "bf16"}
