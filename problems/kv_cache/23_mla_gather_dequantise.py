"""Gather of sequences from a paged cache of packed bytes (fp8 latent, scales, bf16 rotary key) into bf16 rows.

inputs   cache       u8  [n_pages, 64, 656]      of a token: 512 e4m3 codes, 4 float32 scales (16 bytes, one for each
                                                 128 codes), 64 bfloat16 rotary values (128 bytes); all little-endian
         block_table i32 [n_seqs, max_pages]     page of each 64 tokens of a sequence; -1 past its end
         cu_seqlens  i32 [n_seqs + 1]            sequence b fills the output rows cu_seqlens[b] : cu_seqlens[b + 1]
outputs  rows        bf16 [n_tokens, 576]        512 values code * scale, then the 64 rotary values unchanged

A sequence may be empty.
"""

from problems import formats, precision

SOURCE = ("DeepSeek-V3.2 (latent 512 + rope 64 in 656 bytes a token, page 64); prefill over 131072 cached tokens of "
          "32 sequences")
SIZES = {"full": {"n_seqs": 32, "n_tokens": 131072, "n_pages": 2304},
         "small": {"n_seqs": 4, "n_tokens": 500, "n_pages": 16}}
LATENT, ROPE, GROUP, PAGE = 512, 64, 128, 64
ROW = LATENT + 4 * LATENT // GROUP + 2 * ROPE
OUTPUTS = ("bf16",)
INVARIANT = "shapes, types and the total of tokens; lengths and pages are drawn, sequence 1 is empty"
MAIN_INPUT = 1  # the block table: shifted bytes would be refused as NaN alone


def make_inputs(xp, rng, size="full"):
    s = SIZES[size]
    shape = (s["n_pages"], PAGE)
    codes = formats.draw(xp, rng, "e4m3", (*shape, LATENT), mean=20.0, std=100.0)
    spread = rng.standard_normal((*shape, LATENT // GROUP), dtype=xp.float32) * xp.float32(0.5)
    scales = xp.exp(spread) / xp.float32(100)
    rope = rng.standard_normal((*shape, ROPE), dtype=xp.float32).astype(precision.TYPES["bf16"])
    cache = xp.concatenate((codes, scales.view(xp.uint8), rope.view(xp.uint8)), axis=-1)
    share = rng.random(s["n_seqs"], dtype=xp.float32) + 0.5
    share[1] = 0
    ends = xp.floor(xp.cumsum(share) / xp.sum(share) * s["n_tokens"]).astype(xp.int32)
    ends[-1] = s["n_tokens"]
    bounds = xp.concatenate((xp.zeros(1, xp.int32), ends))
    n_pages = (bounds[1:] - bounds[:-1] + PAGE - 1) // PAGE
    max_pages = s["n_tokens"] * 3 // s["n_seqs"] // PAGE + 1
    before = xp.cumsum(n_pages) - n_pages
    pool = xp.argsort(rng.random(s["n_pages"], dtype=xp.float32))
    place = xp.minimum(before[:, None] + xp.arange(max_pages), s["n_pages"] - 1)
    return cache, xp.where(xp.arange(max_pages) < n_pages[:, None], pool[place], -1).astype(xp.int32), bounds


def _slots(xp, block_table, cu_seqlens):
    """Flat place in the cache of every output row, i64 [n_tokens]."""
    row = xp.arange(int(cu_seqlens[-1]))
    seq = xp.searchsorted(cu_seqlens[1:], row, side="right")
    place = row - cu_seqlens[seq]
    return block_table[seq, place // PAGE].astype(xp.int64) * PAGE + place % PAGE


def reference(xp, cache, block_table, cu_seqlens):
    rows = cache.reshape(-1, ROW)[_slots(xp, block_table, cu_seqlens)]
    scales = xp.ascontiguousarray(rows[:, LATENT:ROW - 2 * ROPE]).view(xp.float32)
    rope = xp.ascontiguousarray(rows[:, ROW - 2 * ROPE:]).view(precision.TYPES["bf16"])
    latent = formats.decode(xp, "e4m3", rows[:, :LATENT]) * xp.repeat(precision.wide(scales), GROUP, axis=1)
    return xp.concatenate((precision.narrow(latent, "bf16"), precision.narrow(rope, "bf16")), axis=1)


def half_mutant(xp, cache, block_table, cu_seqlens):
    """Nothing is summed here: what must be refused is codes decoded with one digit less (through e5m2)."""
    values = formats.decode(xp, "e4m3", cache[..., :LATENT])
    coarse = formats.encode(xp, "e4m3", formats.decode(xp, "e5m2", formats.encode(xp, "e5m2", values)))
    return reference(xp, xp.concatenate((coarse, cache[..., LATENT:]), axis=-1), block_table, cu_seqlens)


def work(size="full"):
    s = SIZES[size]
    n_bytes = s["n_tokens"] * (ROW + 2 * (LATENT + ROPE)) + 4 * (s["n_tokens"] // PAGE + s["n_seqs"] + 1)
    return {"n_bytes": n_bytes, "n_operations": s["n_tokens"] * LATENT, "unit": "f32"}
