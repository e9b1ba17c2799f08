"""Input of a multi-token prediction layer: the next token's embedding and the hidden state, each through its RMSNorm, Ling, bf16.

inputs   tokens        i32  [n_seqs, n_tokens]           token at each place, in 0 .. n_vocab - 1
         next_token    i32  [n_seqs]                     token that follows the last place of each sequence
         table         bf16 [n_vocab, n_in]              embedding
         hidden        bf16 [n_seqs, n_tokens, n_in]     last hidden state of the main model
         embed_weight, hidden_weight   bf16 [n_in]       gains of the two norms
outputs  out           bf16 [n_seqs, n_tokens, 2 n_in]   normed embedding, then normed hidden state

    e[b, t] = table[tokens[b, t + 1]], at the last place table[next_token[b]]
    out[b, t] = norm(e[b, t]) * embed_weight beside norm(hidden[b, t]) * hidden_weight,   norm(x) = x / sqrt(mean(x^2) + 1e-6)
The mean of squares and the scaling are float32. A row of zeros gives zeros.
"""

from problems import precision

SOURCE = "Ling-flash-2.0: hidden_size 4096, vocab_size 157184, rms_norm_eps 1e-6, one next-token-prediction layer; 8 x 2048 tokens"
SIZES = {"full": {"n_seqs": 8, "n_tokens": 2048, "n_in": 4096, "n_vocab": 157184},
         "small": {"n_seqs": 2, "n_tokens": 16, "n_in": 4096, "n_vocab": 128}}
EPS = 1e-6
MAIN_INPUT = 3
OUTPUTS = ("bf16",)
INVARIANT = "shapes, types and eps"


def make_inputs(xp, rng, size="full"):
    s, bf16 = SIZES[size], precision.TYPES["bf16"]

    def normal(*shape, mean=0.0, std=1.0):
        return rng.standard_normal(shape, dtype=xp.float32) * xp.float32(std) + xp.float32(mean)

    # Rows have means of their own, and rows of the table different lengths: sums of squares outgrow their terms.
    table = ((normal(s["n_vocab"], s["n_in"]) + normal(s["n_vocab"], 1)) *
             (0.02 + 0.02 * rng.random((s["n_vocab"], 1), dtype=xp.float32))).astype(bf16)
    hidden = (normal(s["n_seqs"], s["n_tokens"], s["n_in"]) + normal(s["n_seqs"], s["n_tokens"], 1)).astype(bf16)
    tokens, following = (rng.integers(0, s["n_vocab"], shape).astype(xp.int32)
                         for shape in ((s["n_seqs"], s["n_tokens"]), (s["n_seqs"],)))
    weights = (normal(s["n_in"], mean=1, std=0.2).astype(bf16) for _ in range(2))
    return tokens, following, table, hidden, *weights


def reference(xp, tokens, next_token, table, hidden, embed_weight, hidden_weight):
    shifted = xp.concatenate((tokens[:, 1:], next_token[:, None]), axis=1)
    parts = []
    for x, weight in ((table[shifted], embed_weight), (hidden, hidden_weight)):
        x = precision.wide(x)
        x = x / xp.sqrt(precision.total(xp, x * x) / x.shape[-1] + EPS)
        parts.append(precision.narrow(x * precision.wide(weight), "bf16"))
    return xp.concatenate(parts, axis=-1)


def work(size="full"):
    s = SIZES[size]
    n_rows = s["n_seqs"] * s["n_tokens"]
    # Every row that is looked up is read; repeats, which are few among so many tokens, are not taken off.
    n_bytes = 2 * 4 * n_rows * s["n_in"] + 4 * (n_rows + s["n_seqs"]) + 4 * s["n_in"]
    return {"n_bytes": n_bytes, "n_operations": 10 * n_rows * s["n_in"], "unit": "f32"}
