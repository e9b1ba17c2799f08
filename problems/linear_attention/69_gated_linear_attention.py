"""Gated linear attention: every key channel forgets at a rate of its own, GLA, bf16, with the float32 state in and out.

inputs   q, k       bf16 [n_seqs, n_tokens, n_heads, 256]
         v          bf16 [n_seqs, n_tokens, n_heads, 512]
         log_decay  f32  [n_seqs, n_tokens, n_heads, 256]      from -1 to 0
         state      f32  [n_seqs, n_heads, 256, 512]           S before the first token, indexed [key dim, value dim]
outputs  out        bf16 [n_seqs, n_tokens, n_heads, 512]
         new_state  f32  [n_seqs, n_heads, 256, 512]           S after the last token (a new array)

Token by token, for each head:
    S <- exp(log_decay) S + k v^T                              row d of S by exp(log_decay[d])
    out = q^T S / 16

The reference takes chunks of 64 tokens at once, which is the same sum: with G the cumulated log_decay within the chunk,
out = (q exp(G))^T S + tril((q exp(G)) . (k exp(-G))^T) v, and the chunk leaves exp(G_last) S + (k exp(G_last - G))^T v.
Sums, decays and the state are float32; operands of matrix products are rounded to bf16. n_tokens is a multiple of 64.
"""

from problems import precision

SOURCE = ("GLA 1.3B: hidden_size 2048, 4 heads, expand_k 0.5 (256 a head), expand_v 1 (512 a head), gate_logit_normalizer 16; "
          "4 sequences of 4096 tokens")
SIZES = {"full": {"n_seqs": 4, "n_tokens": 4096, "n_heads": 4}, "small": {"n_seqs": 1, "n_tokens": 192, "n_heads": 2}}
KEY_DIM, VALUE_DIM, CHUNK = 256, 512, 64
OUTPUTS = ("bf16", "f32")
INVARIANT = "shapes, types and the scale 1/16"


def make_inputs(xp, rng, size="full"):
    s, f32 = SIZES[size], xp.float32
    shape = (s["n_seqs"], s["n_tokens"], s["n_heads"])

    def normal(*shape, mean=0.0):
        return rng.standard_normal(shape, dtype=f32) + f32(mean)

    # Keys lean to one direction of random signs, each by its own amount, and values have a mean: the state grows long.
    lean = xp.where(rng.random(KEY_DIM, dtype=f32) < 0.5, -1, 1).astype(f32)
    q, k = (normal(*shape, KEY_DIM) + normal(*shape, 1, mean=1) * lean for _ in range(2))
    values = tuple(x.astype(precision.TYPES["bf16"]) for x in (q, k, normal(*shape, VALUE_DIM, mean=0.5)))
    # The logarithm of a logistic gate, divided by 16 as in the model.
    log_decay = xp.maximum(xp.log1p(xp.exp(-normal(*shape, KEY_DIM, mean=2))) / f32(-16), f32(-1))
    return *values, log_decay, normal(s["n_seqs"], s["n_heads"], KEY_DIM, VALUE_DIM)


def reference(xp, q, k, v, log_decay, state):
    n_seqs, n_tokens, n_heads, _ = q.shape
    q, k, v, log_decay = (_chunks(xp, precision.wide(x)) for x in (q, k, v, log_decay))
    i = xp.arange(CHUNK)
    total = xp.cumsum(log_decay, axis=-2)                                      # G
    last = total[..., -1:, :]
    q = q * xp.exp(total)
    scores = _product(xp, q, (k * xp.exp(-total)).swapaxes(-1, -2))
    scores = xp.where(i[:, None] >= i, scores, scores.dtype.type(0))
    k, last = (k * xp.exp(last - total)).swapaxes(-1, -2), xp.exp(last).swapaxes(-1, -2)
    state, out = precision.wide(state), xp.empty_like(v)
    for c in range(v.shape[2]):
        out[:, :, c] = _product(xp, q[:, :, c], state) + _product(xp, scores[:, :, c], v[:, :, c])
        state = last[:, :, c] * state + _product(xp, k[:, :, c], v[:, :, c])
    out = xp.moveaxis(out * KEY_DIM ** -0.5, 1, 3).reshape(n_seqs, n_tokens, n_heads, VALUE_DIM)
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
    n_bytes = n_rows * (8 * KEY_DIM + 4 * VALUE_DIM) + 8 * s["n_seqs"] * s["n_heads"] * KEY_DIM * VALUE_DIM
    # A token and head: two products with the state, and two with a chunk's 64 tokens, of which half are in the past.
    n_operations = n_rows * (4 * KEY_DIM * VALUE_DIM + CHUNK * (KEY_DIM + VALUE_DIM))
    return {"n_bytes": n_bytes, "n_operations": n_operations, "unit": "bf16"}
