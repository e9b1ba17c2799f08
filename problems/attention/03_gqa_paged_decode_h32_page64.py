"""Grouped-query attention, one decoding step over a paged KV cache: 32 query heads, 8 KV heads, page size 64, bf16.

inputs   q             bf16 [n_seqs, 32, 128]      one new query token a sequence
         k_cache       bf16 [n_pages, 64, 8, 128]  v_cache likewise
         kv_indptr     i32  [n_seqs + 1]           sequence b owns kv_indices[kv_indptr[b] : kv_indptr[b + 1]]
         kv_indices    i32  [n_used_pages]         page numbers in token order, all different; unused pages exist
         last_page_len i32  [n_seqs]               tokens in the last page, 1 to 64; 0 for an empty sequence
outputs  out           bf16 [n_seqs, 32, 128]      softmax(q . k / sqrt(128)) . v over all tokens of the sequence
         lse           f32  [n_seqs, 32]           natural log of the sum of exp of the scaled scores

Query head h reads KV head h // 4. Scores, exponentials and sums are float32. What a last page holds past its length
is no token. A sequence may be empty (no page): then its `out` is 0 and its `lse` is -inf.
"""

from problems import precision

SOURCE = ("Llama 3.1 8B (32 query heads, 8 KV heads, head_dim 128), a decoding batch of 64 with up to 4096 tokens "
          "each on average")
SIZES = {"full": {"n_seqs": 64, "n_used_pages": 4096, "n_pages": 4608},
         "small": {"n_seqs": 4, "n_used_pages": 30, "n_pages": 40}}
N_HEADS, N_KV_HEADS, HEAD_DIM, PAGE = 32, 8, 128, 64
OUTPUTS = ("bf16", "f32")
INVARIANT = ("shapes, types, scale 1/sqrt(128) and the total of pages; lengths and page numbers are drawn, sequence "
             "1 is empty")


def make_inputs(xp, rng, size="full"):
    s, bf16 = SIZES[size], precision.TYPES["bf16"]
    q = (rng.standard_normal((s["n_seqs"], N_HEADS, HEAD_DIM), dtype=xp.float32) + 1).astype(bf16)
    shape = (s["n_pages"], PAGE, N_KV_HEADS, HEAD_DIM)
    # Keys share an offset (softmax forgets it, short sums do not); values vary about a mean.
    k = (rng.standard_normal(shape, dtype=xp.float32) + 0.6).astype(bf16)
    v = (rng.standard_normal(shape, dtype=xp.float32) + 0.25).astype(bf16)
    share = rng.random(s["n_seqs"], dtype=xp.float32) + 0.5
    share[1] = 0
    ends = xp.floor(xp.cumsum(share) / xp.sum(share) * s["n_used_pages"]).astype(xp.int32)
    ends[-1] = s["n_used_pages"]
    indptr = xp.concatenate((xp.zeros(1, xp.int32), ends))
    indices = xp.argsort(rng.random(s["n_pages"], dtype=xp.float32))[:s["n_used_pages"]].astype(xp.int32)
    last = rng.integers(1, PAGE + 1, s["n_seqs"]).astype(xp.int32)
    return q, k, v, indptr, indices, xp.where(indptr[1:] > indptr[:-1], last, 0).astype(xp.int32)


def reference(xp, q, k_cache, v_cache, kv_indptr, kv_indices, last_page_len):
    n_seqs, group = q.shape[0], N_HEADS // N_KV_HEADS
    kind = precision.wide_type()
    out = xp.zeros((n_seqs, N_HEADS, HEAD_DIM), kind)
    lse = xp.full((n_seqs, N_HEADS), -xp.inf, kind)
    bounds, last = kv_indptr.tolist(), last_page_len.tolist()
    for b in range(n_seqs):
        pages = kv_indices[bounds[b]:bounds[b + 1]]
        if pages.size == 0:
            continue
        n = (pages.size - 1) * PAGE + last[b]
        k = k_cache[pages].reshape(-1, N_KV_HEADS, HEAD_DIM)[:n].transpose(1, 2, 0)      # [kv head, d, token]
        v = v_cache[pages].reshape(-1, N_KV_HEADS, HEAD_DIM)[:n].transpose(1, 0, 2)      # [kv head, token, d]
        scores = precision.matmul(xp, q[b].reshape(N_KV_HEADS, group, HEAD_DIM), k) * HEAD_DIM ** -0.5
        top = xp.max(scores, axis=-1, keepdims=True)
        weights = xp.exp(scores - top)
        norm = precision.total(xp, weights)
        mixed = precision.matmul(xp, precision.narrow(weights, "bf16"), v) / norm
        out[b] = mixed.reshape(N_HEADS, HEAD_DIM)
        lse[b] = (xp.log(norm) + top).reshape(N_HEADS)
    return precision.narrow(out, "bf16"), precision.narrow(lse, "f32")


def work(size="full"):
    s = SIZES[size]
    n_tokens = s["n_used_pages"] * PAGE - (s["n_seqs"] - 1) * (PAGE - 1) // 2      # on average
    cache = 2 * n_tokens * N_KV_HEADS * HEAD_DIM * 2
    q_and_out = 2 * s["n_seqs"] * N_HEADS * HEAD_DIM * 2
    return {"n_bytes": cache + q_and_out + 4 * (s["n_seqs"] * (N_HEADS + 2) + 1 + s["n_used_pages"]),
            "n_operations": 4 * n_tokens * N_HEADS * HEAD_DIM, "unit": "bf16"}
