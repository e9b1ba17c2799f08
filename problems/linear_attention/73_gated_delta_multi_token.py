"""Gated delta rule for speculative decoding: four draft tokens a sequence, every state kept, Qwen3-Next, bf16.

inputs   q, k       bf16 [n_seqs, 4, n_qk_heads, 128]          value head j reads query/key head j // 2
         v          bf16 [n_seqs, 4, n_v_heads, 128]
         log_decay  f32  [n_seqs, 4, n_v_heads]                at most 0
         beta       f32  [n_seqs, 4, n_v_heads]                write strength in (0, 1)
         states     f32  [n_seqs, 4, n_v_heads, 128, 128]      after each draft token of the last step, indexed [key, value dim]
         n_accepted i32  [n_seqs]                              1 to 4: how many of the last step's tokens stood
outputs  out        bf16 [n_seqs, 4, n_v_heads, 128]
         new_states f32  [n_seqs, 4, n_v_heads, 128, 128]      after each of the four tokens (a new array)

A sequence goes on from S = states[seq, n_accepted - 1]; the other three are rejected and not read. Then token by token, with
q^ = q / sqrt(sum q^2 + 1e-6) over the 128 entries and k^ likewise, all in float32:
    S <- exp(log_decay) S
    S <- S + k^ (beta (v - k^T S))^T,   new_states[seq, token] = S
    out = q^T S / sqrt(128)
"""

from problems import precision

SOURCE = ("Qwen3-Next 80B-A3B: linear_num_key_heads 16, linear_num_value_heads 32, linear_key/value_head_dim 128; "
          "3 draft tokens and the one before, 48 sequences")
SIZES = {"full": {"n_seqs": 48, "n_qk_heads": 16, "n_v_heads": 32}, "small": {"n_seqs": 4, "n_qk_heads": 2, "n_v_heads": 4}}
N_TOKENS, DIM = 4, 128
OUTPUTS = ("bf16", "f32")
INVARIANT = "shapes and types; how many tokens stood is drawn"


def make_inputs(xp, rng, size="full"):
    s, bf16, f32 = SIZES[size], precision.TYPES["bf16"], xp.float32
    n, n_qk, n_v = s["n_seqs"], s["n_qk_heads"], s["n_v_heads"]
    q, k = ((rng.standard_normal((n, N_TOKENS, n_qk, DIM), dtype=f32) + f32(0.5)).astype(bf16) for _ in range(2))
    v = rng.standard_normal((n, N_TOKENS, n_v, DIM), dtype=f32).astype(bf16)
    log_decay = f32(-0.5) * rng.random((n, N_TOKENS, n_v), dtype=f32)
    beta = f32(0.1) + f32(0.8) * rng.random((n, N_TOKENS, n_v), dtype=f32)
    states = rng.standard_normal((n, N_TOKENS, n_v, DIM, DIM), dtype=f32)
    return q, k, v, log_decay, beta, states, rng.integers(1, N_TOKENS + 1, n).astype(xp.int32)


def reference(xp, q, k, v, log_decay, beta, states, n_accepted):
    q, k = (xp.repeat(_unit(xp, x), v.shape[2] // q.shape[2], axis=2) for x in (q, k))
    v, beta, decay = precision.wide(v), precision.wide(beta)[..., None], xp.exp(precision.wide(log_decay))[..., None, None]
    state = precision.wide(states[xp.arange(len(q)), n_accepted - 1])
    outs, news = [], []
    for t in range(N_TOKENS):
        state = state * decay[:, t]
        recalled = precision.total(xp, k[:, t, :, :, None] * state, axis=-2, keepdims=False)
        state = state + k[:, t, :, :, None] * (beta[:, t] * (v[:, t] - recalled))[..., None, :]
        outs.append(precision.total(xp, q[:, t, :, :, None] * state, axis=-2, keepdims=False) * DIM ** -0.5)
        news.append(state)
    return precision.narrow(xp.stack(outs, axis=1), "bf16"), precision.narrow(xp.stack(news, axis=1), "f32")


def _unit(xp, x):
    x = precision.wide(x)
    return x / xp.sqrt(precision.total(xp, x * x) + 1e-6)


def work(size="full"):
    s = SIZES[size]
    n_tokens, n_state = s["n_seqs"] * N_TOKENS, s["n_seqs"] * s["n_v_heads"] * DIM * DIM
    small = n_tokens * (2 * (2 * s["n_qk_heads"] + 2 * s["n_v_heads"]) * DIM + 8 * s["n_v_heads"]) + 4 * s["n_seqs"]
    # One state is read, four are written.
    return {"n_bytes": 4 * (1 + N_TOKENS) * n_state + small, "n_operations": 7 * N_TOKENS * n_state, "unit": "f32"}
