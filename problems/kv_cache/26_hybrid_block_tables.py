"""Update of the block tables of hybrid KV-cache groups and the slot of every new token in each group, int32 / int64.

inputs   tables      i32 [4, n_requests, max_blocks]    blocks of each request in each group, in token order
         n_blocks    i32 [4, n_requests]                blocks in use before this step
         new_blocks  i32 [4, n_requests, max_new]       blocks to append; the first n_new count
         n_new       i32 [4, n_requests]
         n_computed  i32 [n_requests]                   tokens already in the cache: the position of a request's first
                                                        new one
         query_start i32 [n_requests + 1]               request b owns the new tokens query_start[b] :
                                                        query_start[b + 1]
         positions   i64 [max_tokens]                   position of each new token in its request; -1 past
                                                        query_start[-1]
         block_size  i32 [4]                            tokens a block, by group
         window      i32 [4]                            attention window of the group in tokens, 0 where there is none
outputs  tables      i32 [4, n_requests, max_blocks]    new blocks at n_blocks .. n_blocks + n_new - 1; 0 (the null
                                                        block) for blocks that have left the window; the rest unchanged
         n_blocks    i32 [4, n_requests]                n_blocks + n_new
         slots       i64 [4, max_tokens]                block * block_size + place of each new token; -1 past the last
                                                        token

Where a group has a window w > 0, its block j has left it when its last token, j * size + size - 1, is less than
n_computed - w + 1. The new tokens of a request stand at the positions from n_computed on, each in block
position // size of the updated table. A request may have no new token.
"""

from problems import precision

SOURCE = ("Gemma 3 as served by a hybrid cache manager (one full-attention group, sliding windows of 1024) with "
          "blocks of 16 and 32 tokens; 2048 requests of up to 32768 tokens")
SIZES = {"full": {"n_requests": 2048, "max_blocks": 2048, "max_new": 64, "n_tokens": 131072, "max_tokens": 139264},
         "small": {"n_requests": 6, "max_blocks": 80, "max_new": 16, "n_tokens": 300, "max_tokens": 320}}
BLOCK_SIZE, WINDOW, POOL = (16, 32, 16, 32), (0, 1024, 1024, 512), 1 << 21
OUTPUTS = ("i32", "i32", "i64")
INVARIANT = "shapes, types, block sizes, windows, totals; lengths and blocks are drawn, request 1 has no new token"
MAIN_INPUT = 6                                              # positions: each token must get its own slot


def make_inputs(xp, rng, size="full"):
    s = SIZES[size]
    n, groups = s["n_requests"], len(BLOCK_SIZE)
    share = (rng.random(n, dtype=xp.float32) + 0.5).astype(xp.float64)
    share[1] = 0
    ends = xp.floor(xp.cumsum(share) / xp.sum(share) * s["n_tokens"]).astype(xp.int32)
    ends[-1] = s["n_tokens"]
    query_start = xp.concatenate((xp.zeros(1, xp.int32), ends))
    n_query = query_start[1:] - query_start[:-1]
    n_computed = rng.integers(0, (s["max_blocks"] - s["max_new"]) * min(BLOCK_SIZE), n).astype(xp.int32)
    sizes, window = xp.asarray(BLOCK_SIZE, dtype=xp.int32), xp.asarray(WINDOW, dtype=xp.int32)
    n_blocks = (n_computed + sizes[:, None] - 1) // sizes[:, None]
    n_new = (n_computed + n_query + sizes[:, None] - 1) // sizes[:, None] - n_blocks
    tables = rng.integers(1, POOL, (groups, n, s["max_blocks"])).astype(xp.int32)
    new_blocks = rng.integers(1, POOL, (groups, n, s["max_new"])).astype(xp.int32)
    token = xp.arange(s["max_tokens"])
    request = xp.minimum(xp.searchsorted(query_start[1:], token, side="right"), n - 1)
    positions = xp.where(token < s["n_tokens"], n_computed[request] + token - query_start[request], -1).astype(xp.int64)
    return (tables, n_blocks.astype(xp.int32), new_blocks, n_new.astype(xp.int32), n_computed, query_start, positions,
            sizes, window)


def reference(xp, tables, n_blocks, new_blocks, n_new, n_computed, query_start, positions, block_size, window):
    groups, n_requests, max_blocks = tables.shape
    place = xp.arange(max_blocks) - n_blocks[:, :, None]                           # of each entry among the new ones
    appended = xp.take_along_axis(new_blocks, xp.clip(place, 0, new_blocks.shape[2] - 1), axis=2)
    updated = xp.where((place >= 0) & (place < n_new[:, :, None]), appended, tables)
    size, first_seen = block_size[:, None, None], n_computed[None, :, None] - window[:, None, None] + 1
    gone = (window[:, None, None] > 0) & ((xp.arange(max_blocks) + 1) * size - 1 < first_seen)
    updated = xp.where(gone, 0, updated).astype(xp.int32)

    token = xp.arange(positions.shape[0])
    request = xp.minimum(xp.searchsorted(query_start[1:], token, side="right"), n_requests - 1)
    position = xp.maximum(positions, 0)
    slots = xp.empty((groups, positions.shape[0]), xp.int64)
    for g in range(groups):
        block = updated[g, request, position // block_size[g]].astype(xp.int64)
        slots[g] = xp.where(positions >= 0, block * block_size[g] + position % block_size[g], -1)
    return updated, n_blocks + n_new, slots


def half_mutant(xp, *inputs):
    """Nothing is summed here: what must be refused is slots computed in float32, exact to 2^24 only."""
    tables, n_blocks, slots = reference(xp, *inputs)
    return tables, n_blocks, slots.astype(precision.TYPES["f32"]).astype(xp.int64)


def work(size="full"):
    s, groups = SIZES[size], len(BLOCK_SIZE)
    n_table = groups * s["n_requests"] * s["max_blocks"]
    n_bytes = 4 * (2 * n_table + (3 * groups + 2) * s["n_requests"]) + 8 * (groups + 1) * s["max_tokens"]
    return {"n_bytes": n_bytes, "n_operations": 2 * n_table + 4 * groups * s["max_tokens"], "unit": "int"}
