"""Insert of new tokens into the main KV cache and the index cache of sparse attention at once, MiniMax, bf16.

inputs   k, v        bf16 [n_tokens, 8, 128]
         index_k     bf16 [n_tokens, 128]              index key, shared by all heads
         slots       i64  [n_tokens]                   page * 64 + place in the main cache, all different; -1: do not
                                                       store
         index_slots i64  [n_tokens]                   page * 64 + place in the index cache, all different; -1: do not
                                                       store
         kv_cache    bf16 [n_pages, 2, 64, 8, 128]     of a page first the keys, then the values
         index_cache bf16 [n_index_pages, 64, 128]
outputs  kv_cache, index_cache                         as the inputs, but for the slots written; the inputs stay as they
                                                       are

A token may be stored in one cache and not in the other. Values are moved, not computed.
"""

from problems import formats, precision

SOURCE = ("MiniMax-M2 (8 KV heads, head_dim 128) with one index key of 128 a token, as sparse attention keeps them, "
          "page 64; "
          "32768 tokens into 65536 slots")
SIZES = {"full": {"n_tokens": 32768, "n_pages": 1024, "n_index_pages": 1024},
         "small": {"n_tokens": 100, "n_pages": 3, "n_index_pages": 4}}
N_KV_HEADS, HEAD_DIM, PAGE = 8, 128, 64
OUTPUTS = ("bf16", "bf16")
INVARIANT = "shapes and types; slots are drawn, token 1 is stored nowhere, token 2 in the index cache alone"


def make_inputs(xp, rng, size="full"):
    s = SIZES[size]

    def normal(*shape, mean):
        return (rng.standard_normal(shape, dtype=xp.float32) + xp.float32(mean)).astype(precision.TYPES["bf16"])

    def places(n_pages):
        return xp.argsort(rng.random(n_pages * PAGE, dtype=xp.float32))[:s["n_tokens"]].astype(xp.int64)

    slots, index_slots = places(s["n_pages"]), places(s["n_index_pages"])
    slots[1:3], index_slots[1] = -1, -1
    k, v = (normal(s["n_tokens"], N_KV_HEADS, HEAD_DIM, mean=mean) for mean in (0.5, -0.5))
    index_k = normal(s["n_tokens"], HEAD_DIM, mean=1)
    kv_cache = normal(s["n_pages"], 2, PAGE, N_KV_HEADS, HEAD_DIM, mean=0)
    return k, v, index_k, slots, index_slots, kv_cache, normal(s["n_index_pages"], PAGE, HEAD_DIM, mean=0)


def reference(xp, k, v, index_k, slots, index_slots, kv_cache, index_cache):
    new_kv, new_index = kv_cache.copy(), index_cache.copy()
    kept = slots >= 0
    page, place = slots[kept] // PAGE, slots[kept] % PAGE
    new_kv[page, 0, place] = k[kept]
    new_kv[page, 1, place] = v[kept]
    kept = index_slots >= 0
    new_index.reshape(-1, HEAD_DIM)[index_slots[kept]] = index_k[kept]
    return new_kv, new_index


def half_mutant(xp, k, v, index_k, *rest):
    """Nothing is summed here: what must be refused is values that lose digits on their way (through e4m3)."""
    lossy = (formats.decode(xp, "e4m3", formats.encode(xp, "e4m3", x)).astype(x.dtype) for x in (k, v, index_k))
    return reference(xp, *lossy, *rest)


def work(size="full"):
    s = SIZES[size]
    row, index_row = 2 * 2 * N_KV_HEADS * HEAD_DIM, 2 * HEAD_DIM
    caches = row * s["n_pages"] * PAGE + index_row * s["n_index_pages"] * PAGE
    # Every cache row is written once and read once, from the old cache or from the new tokens.
    return {"n_bytes": 2 * caches + 16 * s["n_tokens"], "n_operations": s["n_tokens"] * 4, "unit": "int"}
