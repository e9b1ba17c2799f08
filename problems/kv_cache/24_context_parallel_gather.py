"""Gather of a context-parallel latent cache, interleaved over 8 ranks and held in fp8, into bf16 rows in token order.

inputs   shards      u8  [8, n_pages, 64, 576]     e4m3 codes of each rank's cache, all ranks' already on this device
         scale       f32 [8]                       value = code * scale of its rank
         block_table i32 [n_seqs, max_pages]       page of each 64 tokens that one rank holds of a sequence; -1 past its
                                                   end
         cu_seqlens  i32 [n_seqs + 1]              sequence b fills the output rows cu_seqlens[b] : cu_seqlens[b + 1]
outputs  rows        bf16 [n_tokens, 576]

Token t of a sequence is the rank's token t // 8 on rank t % 8; the block table is the same for all ranks. A sequence
may be empty.
"""

from problems import formats, precision

SOURCE = ("DeepSeek-V3 (latent 512 + rope 64) with an fp8_e4m3 cache under decode context parallelism 8, "
          "interleaved by token; "
          "131072 tokens of 16 sequences")
SIZES = {"full": {"n_seqs": 16, "n_tokens": 131072, "n_pages": 320},
         "small": {"n_seqs": 4, "n_tokens": 700, "n_pages": 8}}
N_RANKS, WIDTH, PAGE = 8, 576, 64
OUTPUTS = ("bf16",)
INVARIANT = "shapes, types and the total of tokens; lengths and pages are drawn, sequence 1 is empty"


def make_inputs(xp, rng, size="full"):
    s = SIZES[size]
    shards = formats.draw(xp, rng, "e4m3", (N_RANKS, s["n_pages"], PAGE, WIDTH), mean=20.0, std=100.0)
    scale = (rng.random(N_RANKS, dtype=xp.float32) + xp.float32(0.5)) / xp.float32(100)
    share = rng.random(s["n_seqs"], dtype=xp.float32) + 0.5
    share[1] = 0
    ends = xp.floor(xp.cumsum(share) / xp.sum(share) * s["n_tokens"]).astype(xp.int32)
    ends[-1] = s["n_tokens"]
    bounds = xp.concatenate((xp.zeros(1, xp.int32), ends))
    n_pages = (bounds[1:] - bounds[:-1] + N_RANKS * PAGE - 1) // (N_RANKS * PAGE)
    max_pages = s["n_tokens"] * 3 // s["n_seqs"] // (N_RANKS * PAGE) + 1
    before = xp.cumsum(n_pages) - n_pages
    pool = xp.argsort(rng.random(s["n_pages"], dtype=xp.float32))
    place = xp.minimum(before[:, None] + xp.arange(max_pages), s["n_pages"] - 1)
    return shards, scale, xp.where(xp.arange(max_pages) < n_pages[:, None], pool[place], -1).astype(xp.int32), bounds


def reference(xp, shards, scale, block_table, cu_seqlens):
    row = xp.arange(int(cu_seqlens[-1]))
    seq = xp.searchsorted(cu_seqlens[1:], row, side="right")
    token = row - cu_seqlens[seq]
    rank, held = token % N_RANKS, token // N_RANKS
    codes = shards[rank, block_table[seq, held // PAGE], held % PAGE]
    return precision.narrow(formats.decode(xp, "e4m3", codes) * precision.wide(scale)[rank][:, None], "bf16")


def half_mutant(xp, shards, *rest):
    """Nothing is summed here: what must be refused is codes decoded with one digit less (through e5m2)."""
    values = formats.decode(xp, "e4m3", shards)
    coarse = formats.encode(xp, "e4m3", formats.decode(xp, "e5m2", formats.encode(xp, "e5m2", values)))
    return reference(xp, coarse, *rest)


def work(size="full"):
    s = SIZES[size]
    n_bytes = s["n_tokens"] * 3 * WIDTH + 4 * (s["n_tokens"] // (N_RANKS * PAGE) + s["n_seqs"] + 1 + N_RANKS)
    return {"n_bytes": n_bytes, "n_operations": s["n_tokens"] * WIDTH, "unit": "f32"}
