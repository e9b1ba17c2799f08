"""Gated delta rule, one decoding step a sequence: 16 query/key heads, 32 value heads, d 128, float32 state in and out.

inputs   q, k       bf16 [n_seqs, 16, 128]          value head j reads query/key head j // 2
         v          bf16 [n_seqs, 32, 128]
         log_decay  f32  [n_seqs, 32]               at most 0; the state is scaled by exp(log_decay) first
         beta       f32  [n_seqs, 32]               write strength in (0, 1)
         state      f32  [n_seqs, 32, 128, 128]     S, indexed [key dim, value dim]
outputs  out        bf16 [n_seqs, 32, 128]          qᵀ S' / sqrt(128)
         new_state  f32  [n_seqs, 32, 128, 128]     S' (a new array; the input state is not changed)

    k̂ = k / sqrt(Σ k² + 1e-6), q̂ likewise          over the 128 entries, float32
    S ← exp(log_decay) · S
    u = beta · (v − k̂ᵀ S)
    S' = S + k̂ uᵀ
    out = q̂ᵀ S' / sqrt(128)
"""

from problems import precision

SOURCE = "Qwen3-Next 80B-A3B: linear_num_key_heads 16, linear_num_value_heads 32, linear_key/value_head_dim 128; batch 96"
SIZES = {"full": {"n_seqs": 96}, "small": {"n_seqs": 2}}
N_QK_HEADS, N_V_HEADS, DIM = 16, 32, 128
OUTPUTS = ("bf16", "f32")
INVARIANT = "shapes and types"


def make_inputs(xp, rng, size="full"):
    n, bf16, f32 = SIZES[size]["n_seqs"], precision.TYPES["bf16"], xp.float32
    q, k = ((rng.standard_normal((n, N_QK_HEADS, DIM), dtype=f32) + 0.5).astype(bf16) for _ in range(2))
    v = rng.standard_normal((n, N_V_HEADS, DIM), dtype=f32).astype(bf16)
    log_decay = -0.5 * rng.random((n, N_V_HEADS), dtype=f32)
    beta = 0.1 + 0.8 * rng.random((n, N_V_HEADS), dtype=f32)
    state = rng.standard_normal((n, N_V_HEADS, DIM, DIM), dtype=f32)
    return q, k, v, log_decay, beta, state


def reference(xp, q, k, v, log_decay, beta, state):
    q, k = (_unit(xp, xp.repeat(x, N_V_HEADS // N_QK_HEADS, axis=1)) for x in (q, k))
    v, beta = precision.wide(v), precision.wide(beta)[:, :, None]
    decayed = precision.wide(state) * xp.exp(precision.wide(log_decay))[:, :, None, None]
    recalled = precision.total(xp, k[..., :, None] * decayed, axis=-2, keepdims=False)
    new = decayed + k[..., :, None] * (beta * (v - recalled))[..., None, :]
    out = precision.total(xp, q[..., :, None] * new, axis=-2, keepdims=False) * DIM ** -0.5
    return precision.narrow(out, "bf16"), precision.narrow(new, "f32")


def _unit(xp, x):
    x = precision.wide(x)
    return x / xp.sqrt(precision.total(xp, x * x) + 1e-6)


def work(size="full"):
    n = SIZES[size]["n_seqs"]
    n_state = n * N_V_HEADS * DIM * DIM
    small = n * (2 * (2 * N_QK_HEADS + 2 * N_V_HEADS) * DIM + 8 * N_V_HEADS)
    return {"n_bytes": 8 * n_state + small, "n_operations": 7 * n_state, "unit": "f32"}
