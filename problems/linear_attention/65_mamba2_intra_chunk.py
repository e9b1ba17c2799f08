"""Mamba-2 intra-chunk diagonal: what each token reads from its own chunk alone, Nemotron Nano, bf16.

inputs   x          bf16 [n_seqs, n_chunks, 128, n_heads, 80]
         step       f32  [n_seqs, n_chunks, 128, n_heads]          step sizes, above 0
         rate       f32  [n_heads]                                 below 0
         b, c       bf16 [n_seqs, n_chunks, 128, n_groups, 128]    head j reads group j // (n_heads / n_groups)
outputs  y          bf16 [n_seqs, n_chunks, 128, n_heads, 80]

For token i of a chunk and each head:
    y_i = sum over j <= i in the chunk of exp(rate (step_(j+1) + ... + step_i)) (c_i . b_j) step_j x_j
The exponent is 0 for j = i. Nothing passes from chunk to chunk. Sums and decays are float32; operands of the two matrix
products (c . b, and the decayed scores by step x) are rounded to bf16. The head dimension, 80, is no power of two.
"""

from problems import precision

SOURCE = ("NVIDIA Nemotron Nano 9B v2: mamba_num_heads 128, mamba_head_dim 80, n_groups 8, ssm_state_size 128, "
          "chunk_size 128; 1 sequence of 8192 tokens")
SIZES = {"full": {"n_seqs": 1, "n_chunks": 64, "n_heads": 128, "n_groups": 8},
         "small": {"n_seqs": 1, "n_chunks": 2, "n_heads": 4, "n_groups": 2}}
HEAD_DIM, STATE_DIM, CHUNK = 80, 128, 128
OUTPUTS = ("bf16",)
INVARIANT = "shapes and types; the heads' rates are drawn with the rest"


def make_inputs(xp, rng, size="full"):
    s, bf16, f32 = SIZES[size], precision.TYPES["bf16"], xp.float32
    tokens, n_heads = (s["n_seqs"], s["n_chunks"], CHUNK), s["n_heads"]

    def normal(*shape, mean=0.0):
        return rng.standard_normal(shape, dtype=f32) + f32(mean)

    # What is written and what is read lean to one direction of random signs: sums over tokens outgrow their terms.
    lean = xp.where(rng.random(STATE_DIM, dtype=f32) < 0.5, -1, 1).astype(f32) * f32(1.2)
    b, c = ((normal(*tokens, s["n_groups"], STATE_DIM) + lean).astype(bf16) for _ in range(2))
    x = normal(*tokens, n_heads, HEAD_DIM, mean=1).astype(bf16)
    step = f32(0.01) + f32(0.09) * rng.random((*tokens, n_heads), dtype=f32)
    return x, step, f32(-0.1) - f32(0.4) * rng.random(n_heads, dtype=f32), b, c


def reference(xp, x, step, rate, b, c):
    n_shared = x.shape[3] // b.shape[3]
    # Heads go before tokens: [n_seqs, n_chunks, n_heads, 128, ...].
    b, c = (v.swapaxes(2, 3) for v in (b, c))
    step = precision.wide(step).swapaxes(2, 3)[..., None]
    total = xp.cumsum(step, axis=-2) * precision.wide(rate)[:, None, None]
    lower = precision.wide(xp.tri(CHUNK, dtype=xp.float32))
    decay = xp.exp(xp.minimum(total - total.swapaxes(-1, -2), 0)) * lower
    scores = xp.repeat(precision.matmul(xp, c, b.swapaxes(-1, -2)), n_shared, axis=2) * decay
    written = step * precision.wide(x).swapaxes(2, 3)
    y = precision.matmul(xp, precision.narrow(scores, "bf16"), precision.narrow(written, "bf16"))
    return precision.narrow(xp.ascontiguousarray(y.swapaxes(2, 3)), "bf16")


def work(size="full"):
    s = SIZES[size]
    n_tokens = s["n_seqs"] * s["n_chunks"] * CHUNK
    n_bytes = n_tokens * (s["n_heads"] * (4 * HEAD_DIM + 4) + 4 * s["n_groups"] * STATE_DIM) + 4 * s["n_heads"]
    # Half of a chunk's 128 tokens are in the past of one of them.
    n_operations = n_tokens * CHUNK * (s["n_heads"] * HEAD_DIM + s["n_groups"] * STATE_DIM)
    return {"n_bytes": n_bytes, "n_operations": n_operations, "unit": "bf16"}
