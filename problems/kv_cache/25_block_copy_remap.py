"""Batched copy of cache blocks within every layer's cache (fork, swap, defragment), plain bytes.

inputs   cache u8  [n_layers, n_blocks, block_bytes]
         pairs i64 [n_pairs, 2]                        source and destination block; (-1, -1): no copy
outputs  cache u8  [n_layers, n_blocks, block_bytes]   as the input, but for the destinations; the input stays as it is

All pairs apply to all layers and read the old content: a block that is a source and a destination at once (a chain, a
swap) gives its old bytes away before it takes new ones. Destinations are all different; one source may serve several.
"""

from problems import precision

SOURCE = ("Llama 3.1 8B with 16-token blocks of fp8 keys and values (16 * 2 * 8 * 128 bytes), 8 of its layers, 4096 "
          "blocks")
SIZES = {"full": {"n_layers": 8, "n_blocks": 4096, "block_bytes": 32768, "n_pairs": 1024},
         "small": {"n_layers": 2, "n_blocks": 4096, "block_bytes": 64, "n_pairs": 1024}}
OUTPUTS = ("u8",)
INVARIANT = "shapes and types; the pairs are drawn, pair 1 is no copy, the last two swap their blocks"


def make_inputs(xp, rng, size="full"):
    s = SIZES[size]
    cache = rng.integers(0, 256, (s["n_layers"], s["n_blocks"], s["block_bytes"] // 4)).astype(xp.uint8)
    cache = xp.concatenate((cache, 255 - cache, cache ^ 0x5a, cache * 7), axis=-1).astype(xp.uint8)
    source = rng.integers(0, s["n_blocks"], s["n_pairs"]).astype(xp.int64)
    target = xp.argsort(rng.random(s["n_blocks"], dtype=xp.float32))[:s["n_pairs"]].astype(xp.int64)
    source[-2:] = target[-2:][::-1]
    pairs = xp.stack((source, target), axis=1)
    pairs[1] = -1
    return cache, pairs


def reference(xp, cache, pairs):
    kept = pairs[pairs[:, 0] >= 0]
    new = cache.copy()
    new[:, kept[:, 1]] = cache[:, kept[:, 0]]
    return new


def half_mutant(xp, cache, pairs):
    """Nothing is summed here: what must be refused is block numbers held in half precision, exact to 2048 only."""
    rounded = pairs.astype(precision.TYPES["f16"]).astype(xp.int64)
    return reference(xp, cache, xp.minimum(rounded, cache.shape[1] - 1))


def work(size="full"):
    s = SIZES[size]
    cache = s["n_layers"] * s["n_blocks"] * s["block_bytes"]
    n_moves = s["n_layers"] * s["n_pairs"] * s["block_bytes"] // 16          # of 16 bytes each
    return {"n_bytes": 2 * cache + 16 * s["n_pairs"], "n_operations": n_moves, "unit": "int"}
