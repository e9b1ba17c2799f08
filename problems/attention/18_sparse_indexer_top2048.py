"""Indexer of sparse attention: scores cached tokens by 64 light heads (d128, fp8), picks the top 2048, page size 64.

inputs   q           u8  [n_seqs, 64, 128]       e4m3 codes of the index queries, one token a sequence
         k_cache     u8  [n_pages, 64, 128]      e4m3 codes of the index keys, shared by all heads
         k_scale     f32 [n_pages, 64]           one scale a cached token
         weights     f32 [n_seqs, 64]            one weight a head
         seq_lens    i32 [n_seqs]                tokens of each sequence
         block_table i32 [n_seqs, max_pages]     page of each 64 tokens of a sequence; -1 past its end
outputs  slots       i32 [n_seqs, 2048]          page * 64 + place of the chosen tokens, best first; -1 where there are
                                                 no more

score(token) = k_scale * sum over heads of weight * max(0, q . k), summed in float32. Tokens of equal score: the earlier
in the sequence comes first. A sequence of at most 2048 tokens is chosen whole (still ordered by score); an empty one
has -1 throughout. The inputs are such that every float32 sum is exact in any order, so the choice is exact too.
"""

from problems import formats, precision

SOURCE = ("DeepSeek-V3.2 (index_n_heads 64, index_head_dim 128, index_topk 2048); 64 decoding sequences of 1 to "
          "32768 tokens")
SIZES = {"full": {"n_seqs": 64, "max_pages": 512}, "small": {"n_seqs": 4, "max_pages": 40}}
N_HEADS, HEAD_DIM, PAGE, TOP = 64, 128, 64, 2048
OUTPUTS = ("i32",)
INVARIANT = ("shapes and types; q, k are multiples of 1/2, weights of 1/8, k_scale a power of two; lengths are drawn, "
             "sequence 1 is empty, sequence 2 is shorter than 2048")


def make_inputs(xp, rng, size="full"):
    s = SIZES[size]
    n_pages = s["n_seqs"] * s["max_pages"]

    def halves(*shape):                                     # normal values rounded to multiples of 1/2: exact in e4m3
        x = xp.clip(rng.standard_normal(shape, dtype=xp.float32), -3, 3)
        return formats.encode(xp, "e4m3", xp.round(x * 2) / 2)

    q, k = halves(s["n_seqs"], N_HEADS, HEAD_DIM), halves(n_pages, PAGE, HEAD_DIM)
    k_scale = xp.exp2(rng.integers(-1, 2, (n_pages, PAGE)).astype(xp.float32)).astype(xp.float32)
    weights = rng.integers(-2, 9, (s["n_seqs"], N_HEADS)).astype(xp.float32) / xp.float32(8)
    longest = s["max_pages"] * PAGE
    seq_lens = rng.integers(longest // 4, longest + 1, s["n_seqs"]).astype(xp.int32)
    seq_lens[0] = seq_lens[0] // 4 + longest // 4 * 3       # one long at any size
    seq_lens[1] = 0
    seq_lens[2] = seq_lens[2] % 2000 + 1
    table = xp.argsort(rng.random(n_pages, dtype=xp.float32)).reshape(s["n_seqs"], s["max_pages"])
    used = xp.arange(s["max_pages"]) * PAGE < seq_lens[:, None]
    return q, k, k_scale, weights, seq_lens, xp.where(used, table, -1).astype(xp.int32)


def reference(xp, q, k_cache, k_scale, weights, seq_lens, block_table):
    out = xp.full((q.shape[0], TOP), -1, xp.int32)
    for b, n in enumerate(seq_lens.tolist()):
        if n == 0:
            continue
        pages = block_table[b, :(n + PAGE - 1) // PAGE]
        keys = formats.decode(xp, "e4m3", k_cache[pages].reshape(-1, HEAD_DIM)[:n])
        dots = precision.matmul(xp, formats.decode(xp, "e4m3", q[b]), keys.T)                        # [head, token]
        each = xp.maximum(dots, dots.dtype.type(0)) * precision.wide(weights[b])[:, None]
        scores = precision.total(xp, each, axis=0, keepdims=False) * precision.wide(k_scale[pages].reshape(-1)[:n])
        best = xp.argsort(-scores, kind="stable")[:TOP]
        out[b, :best.size] = pages[best // PAGE] * PAGE + (best % PAGE).astype(xp.int32)
    return out


def work(size="full"):
    s = SIZES[size]
    n_tokens = (s["n_seqs"] - 2) * s["max_pages"] * PAGE * 5 // 8                  # on average
    n_bytes = n_tokens * (HEAD_DIM + 4) + n_tokens // PAGE * 4 + s["n_seqs"] * (N_HEADS * (HEAD_DIM + 4) + 4 + 4 * TOP)
    return {"n_bytes": n_bytes, "n_operations": 2 * n_tokens * N_HEADS * (HEAD_DIM + 1), "unit": "fp8"}
