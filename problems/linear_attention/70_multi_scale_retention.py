"""Multi-scale retention with head norm and output gate, RetNet, bf16, and the float32 state at the end.

inputs   q, k       bf16 [n_seqs, n_tokens, n_heads, 256]      rotary positions applied already
         v          bf16 [n_seqs, n_tokens, n_heads, 512]
         gate       bf16 [n_seqs, n_tokens, n_heads, 512]
outputs  out        bf16 [n_seqs, n_tokens, n_heads, 512]
         state      f32  [n_seqs, n_heads, 256, 512]           S after the last token, indexed [key dim, value dim]

Head h (from 0) forgets by g = 1 - 2^(-5 - h) a token. Token by token, for each head, from S = 0:
    S <- g S + k v^T,   o = q^T S / 16
    out = o / sqrt(mean(o^2) + 1e-6) * gate / (1 + exp(-gate))     the mean over the head's 512 entries

The reference takes chunks of 64 tokens at once, which is the same sum: the i-th token of a chunk (from 0) reads
g^(i + 1) q^T S + sum over j <= i of g^(i - j) (q . k_j) v_j, and the chunk leaves g^64 S + sum over j of g^(63 - j) k_j v_j^T.
Sums, norm and state are float32; operands of matrix products are rounded to bf16. n_tokens is a multiple of 64.
"""

from problems import precision

SOURCE = "RetNet 1.3B: hidden size 2048, 8 heads of 256 (queries and keys) and 512 (values), norm eps 1e-6; 2 sequences of 4096 tokens"
SIZES = {"full": {"n_seqs": 2, "n_tokens": 4096, "n_heads": 8}, "small": {"n_seqs": 1, "n_tokens": 128, "n_heads": 2}}
KEY_DIM, VALUE_DIM, CHUNK, EPS = 256, 512, 64, 1e-6
OUTPUTS = ("bf16", "f32")
INVARIANT = "shapes, types, eps and how fast each head forgets"


def make_inputs(xp, rng, size="full"):
    s, bf16 = SIZES[size], precision.TYPES["bf16"]
    shape = (s["n_seqs"], s["n_tokens"], s["n_heads"])

    def normal(*shape, mean=0.0):
        return rng.standard_normal(shape, dtype=xp.float32) + xp.float32(mean)

    # Keys lean to one direction of random signs, each by its own amount, and values have a mean: the state grows long.
    lean = xp.where(rng.random(KEY_DIM, dtype=xp.float32) < 0.5, -1, 1).astype(xp.float32)
    q, k = (normal(*shape, KEY_DIM) + normal(*shape, 1, mean=1) * lean for _ in range(2))
    return tuple(x.astype(bf16) for x in (q, k, normal(*shape, VALUE_DIM, mean=0.5), normal(*shape, VALUE_DIM, mean=1)))


def reference(xp, q, k, v, gate):
    q, k, v = (_chunks(xp, precision.wide(x)) for x in (q, k, v))
    i = xp.arange(CHUNK)
    # Powers of each head's factor, [n_heads, 1, ...], in float64 first: the exponents reach 64.
    factor = 1 - 2.0 ** (-5 - xp.arange(q.shape[1], dtype=xp.float64))[:, None, None]
    powers = {name: (factor ** exponent).astype(precision.wide_type()) for name, exponent in
              (("read", i[:, None] + 1), ("write", CHUNK - 1 - i[:, None]), ("pass", i[:, None] - i), ("keep", CHUNK))}
    within = xp.where(i[:, None] >= i, powers["pass"], powers["pass"].dtype.type(0))
    scores = _product(xp, q, k.swapaxes(-1, -2)) * within[:, None]
    q, k = q * powers["read"][:, None], (k * powers["write"][:, None]).swapaxes(-1, -2)
    state, o = xp.zeros((*q.shape[:2], KEY_DIM, VALUE_DIM), v.dtype), xp.empty_like(v)
    for c in range(v.shape[2]):
        o[:, :, c] = _product(xp, q[:, :, c], state) + _product(xp, scores[:, :, c], v[:, :, c])
        state = powers["keep"] * state + _product(xp, k[:, :, c], v[:, :, c])
    o = xp.moveaxis(o * KEY_DIM ** -0.5, 1, 3).reshape(gate.shape)
    gate = precision.wide(gate)
    out = o / xp.sqrt(precision.total(xp, o * o) / VALUE_DIM + EPS) * gate / (1 + xp.exp(-gate))
    return precision.narrow(out, "bf16"), precision.narrow(state, "f32")


def _chunks(xp, x):
    """[n_seqs, n_tokens, n_heads, d] -> [n_seqs, n_heads, n_chunks, 64, d]."""
    n_seqs, _, n_heads, d = x.shape
    return xp.moveaxis(x.reshape(n_seqs, -1, CHUNK, n_heads, d), 3, 1)


def _product(xp, a, b):
    return precision.matmul(xp, precision.narrow(a, "bf16"), precision.narrow(b, "bf16"))


def work(size="full"):
    s = SIZES[size]
    n_rows = s["n_seqs"] * s["n_tokens"] * s["n_heads"]
    n_bytes = n_rows * 2 * (2 * KEY_DIM + 3 * VALUE_DIM) + 4 * s["n_seqs"] * s["n_heads"] * KEY_DIM * VALUE_DIM
    # A token and head: two products with the state, and two with a chunk's 64 tokens, of which half are in the past.
    n_operations = n_rows * (4 * KEY_DIM * VALUE_DIM + CHUNK * (KEY_DIM + VALUE_DIM))
    return {"n_bytes": n_bytes, "n_operations": n_operations, "unit": "bf16"}
