"""Backward pass of embedding + RMSNorm, Jamba, bf16: gradients of the whole table and of the norm's gain.

inputs   tokens       i32  [n_tokens]            in 0 .. n_vocab - 1, with repeats
         table        bf16 [n_vocab, n_in]
         weight       bf16 [n_in]                the norm's gain
         grad_y       bf16 [n_tokens, n_in]      gradient of the loss by y
outputs  grad_table   bf16 [n_vocab, n_in]       zero for tokens that do not occur
         grad_weight  f32  [n_in]                summed over all tokens

The forward pass: e = table[tokens], y = e * r * weight with r = 1 / sqrt(mean(e^2) + 1e-6) over each row. Hence for each place
    s = grad_y * weight,   grad_e = r * (s - e * r^2 * mean(s * e)),
and grad_table[t] is the sum of grad_e over the places where token t stands, summed in float32 and rounded once.
"""

import numpy as np

from problems import precision

SOURCE = "Jamba v0.1: hidden_size 4096, vocab_size 65536, rms_norm_eps 1e-6; 16384 tokens"
SIZES = {"full": {"n_tokens": 16384, "n_in": 4096, "n_vocab": 65536},
         "small": {"n_tokens": 512, "n_in": 512, "n_vocab": 64}}
EPS = 1e-6
MAIN_INPUT = 3
OUTPUTS = ("bf16", "f32")
INVARIANT = "shapes, types and eps; how often tokens repeat is drawn: few tokens fill most places, many occur nowhere"


def make_inputs(xp, rng, size="full"):
    s, bf16 = SIZES[size], precision.TYPES["bf16"]

    def normal(*shape, mean=0.0, std=1.0):
        return rng.standard_normal(shape, dtype=xp.float32) * xp.float32(std) + xp.float32(mean)

    # Zipf's law with exponent 1, cut at n_vocab, ranks shuffled over the table.
    rank = xp.exp(rng.random(s["n_tokens"], dtype=xp.float32) * xp.float32(np.log(s["n_vocab"]))).astype(xp.int64) - 1
    order = xp.argsort(rng.random(s["n_vocab"], dtype=xp.float32))
    tokens = order[xp.clip(rank, 0, s["n_vocab"] - 1)].astype(xp.int32)
    table = normal(s["n_vocab"], s["n_in"]) + normal(s["n_vocab"], 1, std=0.5)
    grad_y = normal(s["n_tokens"], s["n_in"], mean=0.25)
    return tokens, table.astype(bf16), normal(s["n_in"], mean=1, std=0.2).astype(bf16), grad_y.astype(bf16)


def reference(xp, tokens, table, weight, grad_y):
    e, grad_y = precision.wide(table[tokens]), precision.wide(grad_y)
    n_in = e.shape[-1]
    r = 1 / xp.sqrt(precision.total(xp, e * e) / n_in + EPS)
    s = grad_y * precision.wide(weight)
    grad_e = r * (s - e * r * r * (precision.total(xp, s * e) / n_in))
    order = xp.argsort(tokens, kind="stable")
    token, total = tokens[order], grad_e[order]
    # Sums over stretches of equal tokens: after each step row i holds the sum of its stretch's next 2 * step rows.
    step = 1
    while step < len(token) and bool((token[step:] == token[:-step]).any()):
        same = (token[step:] == token[:-step])[:, None]
        total = xp.concatenate((total[:-step] + xp.where(same, total[step:], xp.zeros_like(total[step:])), total[-step:]))
        step *= 2
    first = xp.concatenate((xp.ones(1, bool), token[1:] != token[:-1]))
    grad_table = xp.zeros(table.shape, total.dtype)
    grad_table[token[first]] = total[first]
    grad_weight = precision.total(xp, grad_y * e * r, axis=0, keepdims=False)
    return precision.narrow(grad_table, "bf16"), precision.narrow(grad_weight, "f32")


def work(size="full"):
    s = SIZES[size]
    # The table's gradient is written whole; of the table only rows that occur are read, about one place in three.
    n_bytes = 2 * s["n_in"] * (s["n_vocab"] + s["n_tokens"] + s["n_tokens"] // 3) + 6 * s["n_in"] + 4 * s["n_tokens"]
    return {"n_bytes": n_bytes, "n_operations": 13 * s["n_tokens"] * s["n_in"], "unit": "f32"}
