"""Delta rule without decay over whole sequences (chunked prefill), DeltaNet, bf16, from an empty state.

inputs   q, k       bf16 [n_seqs, n_tokens, n_heads, 128]     before their activation and norm
         v          bf16 [n_seqs, n_tokens, n_heads, 128]
         beta       f32  [n_seqs, n_tokens, n_heads]          write strength in (0, 1)
outputs  out        bf16 [n_seqs, n_tokens, n_heads, 128]
         state      f32  [n_seqs, n_heads, 128, 128]          S after the last token, indexed [key dim, value dim]

    silu(x) = x / (1 + exp(-x)),   q^ = silu(q) / sqrt(sum silu(q)^2 + 1e-6) over the 128 entries, k^ likewise
Token by token, for each head, from S = 0:
    S <- S + k^ (beta (v - k^T S))^T
    out = q^T S / sqrt(128)

The reference takes chunks of 64 tokens at once, which is the same sum: with T = (1 + tril(beta k^ k^T, -1))^-1 a chunk writes
the values u = T (beta v) - T (beta k^) S, reads q^ S + tril(q^ k^T) u and leaves S + k^T u. Sums and the state are float32;
operands of matrix products but those of T are rounded to bf16. n_tokens is a multiple of 64.
"""

from problems import precision

SOURCE = "DeltaNet 1.3B: hidden_size 2048, 16 heads of 128, SiLU and L2 norm on queries and keys; 4 sequences of 4096 tokens"
SIZES = {"full": {"n_seqs": 4, "n_tokens": 4096, "n_heads": 16}, "small": {"n_seqs": 1, "n_tokens": 192, "n_heads": 3}}
DIM, CHUNK = 128, 64
OUTPUTS = ("bf16", "f32")
INVARIANT = "shapes, types and the scale 1/sqrt(128)"


def make_inputs(xp, rng, size="full"):
    s, bf16 = SIZES[size], precision.TYPES["bf16"]
    shape = (s["n_seqs"], s["n_tokens"], s["n_heads"])

    def normal(*shape, mean=0.0):
        return rng.standard_normal(shape, dtype=xp.float32) + xp.float32(mean)

    # Keys share an offset, so that a token overwrites what others wrote; values have a mean that the state takes up.
    q, k, v = (normal(*shape, DIM, mean=mean).astype(bf16) for mean in (0.5, 0.5, 1))
    return q, k, v, xp.float32(0.05) + xp.float32(0.9) * rng.random(shape, dtype=xp.float32)


def reference(xp, q, k, v, beta):
    q, k = (_chunks(xp, _active(xp, x)) for x in (q, k))
    v, beta = (_chunks(xp, precision.wide(x)) for x in (v, beta[..., None]))
    i = xp.arange(CHUNK)
    past, seen = i[:, None] > i, i[:, None] >= i
    k_turned = k.swapaxes(-1, -2)
    none = beta.dtype.type(0)
    solved = _inverse(xp, xp.where(past, beta * _product(xp, k, k_turned), none))
    writes, reads = _product(xp, solved, beta * v), _product(xp, solved, beta * k)
    scores = xp.where(seen, _product(xp, q, k_turned), none)
    state, out = xp.zeros((*v.shape[:2], DIM, DIM), v.dtype), xp.empty_like(v)
    for c in range(v.shape[2]):
        u = writes[:, :, c] - _product(xp, reads[:, :, c], state)
        out[:, :, c] = _product(xp, q[:, :, c], state) + _product(xp, scores[:, :, c], u)
        state = state + _product(xp, k_turned[:, :, c], u)
    out = xp.moveaxis(out * DIM ** -0.5, 1, 3).reshape(q.shape[0], -1, q.shape[1], DIM)
    return precision.narrow(out, "bf16"), precision.narrow(state, "f32")


def _active(xp, x):
    x = precision.wide(x)
    x = x / (1 + xp.exp(-x))
    return x / xp.sqrt(precision.total(xp, x * x) + 1e-6)


def _chunks(xp, x):
    """[n_seqs, n_tokens, n_heads, d] -> [n_seqs, n_heads, n_chunks, 64, d]."""
    n_seqs, _, n_heads, d = x.shape
    return xp.moveaxis(x.reshape(n_seqs, -1, CHUNK, n_heads, d), 3, 1)


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
    n_rows = s["n_seqs"] * s["n_tokens"] * s["n_heads"]
    n_bytes = n_rows * (8 * DIM + 4) + 4 * s["n_seqs"] * s["n_heads"] * DIM * DIM
    # A token and head: three products with the state, and five with a chunk's 64 tokens, of which half are in the past.
    return {"n_bytes": n_bytes, "n_operations": n_rows * (6 * DIM * DIM + 5 * CHUNK * DIM), "unit": "bf16"}
