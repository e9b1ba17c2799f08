"""Mixture of many small experts, ten a token, plus a shared expert behind a gate of its own, Qwen3-Next, bf16.

inputs   x                 bf16 [n_tokens, n_in]
         w_router          bf16 [n_experts, n_in]            [out, in]
         w_gate, w_up      bf16 [n_experts, n_wide, n_in]    [out, in] of each expert
         w_down            bf16 [n_experts, n_in, n_wide]
         s_gate, s_up      bf16 [n_wide, n_in]               the shared expert
         s_down            bf16 [n_in, n_wide]
         w_shared          bf16 [1, n_in]                    the shared expert's gate
outputs  out               bf16 [n_tokens, n_in]

    z = x . w_router^T, float32 and not rounded
    chosen: the 10 experts of largest z; ties: the lower index
    weight = softmax of z over the 10 chosen                  (softmax over all, divided by the sum of the chosen, is the same)
    mlp(x) = (silu(x . gate^T) * (x . up^T)) . down^T,   silu(a) = a / (1 + exp(-a))
    out = sum over the chosen of weight * mlp_expert(x) + mlp_shared(x) / (1 + exp(-x . w_shared^T))
Sums and elementwise mathematics are float32; the middle of each MLP is rounded to bf16 before it is multiplied. An expert may
get no token.
"""

from problems import precision

SOURCE = ("Qwen3-Next 80B-A3B: hidden_size 2048, 512 experts of 512, 10 a token, norm_topk_prob, shared expert of 512; "
          "4096 tokens")
SIZES = {"full": {"n_tokens": 4096, "n_in": 2048, "n_experts": 512, "n_wide": 512},
         "small": {"n_tokens": 12, "n_in": 384, "n_experts": 16, "n_wide": 768}}
TOP = 10
OUTPUTS = ("bf16",)
INVARIANT = "shapes, types and the number of experts a token takes; token 0 is zero, so that it takes experts 0 to 9"


def make_inputs(xp, rng, size="full"):
    s, bf16 = SIZES[size], precision.TYPES["bf16"]
    n_in, n_wide, n_experts = s["n_in"], s["n_wide"], s["n_experts"]

    def normal(*shape):
        return rng.standard_normal(shape, dtype=xp.float32)

    # Tokens and weights lean to one direction of random signs, each by its own amount: sums outgrow their terms.
    lean = xp.where(rng.random(n_in, dtype=xp.float32) < 0.5, -1, 1).astype(xp.float32)
    x = (normal(s["n_tokens"], n_in) + (0.5 + rng.random((s["n_tokens"], 1), dtype=xp.float32)) * lean).astype(bf16)

    def rows(*shape, lean):
        w = normal(*shape) + (normal(*shape[:-1], 1) + 1) * lean
        return (w * xp.float32(shape[-1] ** -0.5)).astype(bf16)

    w_router = rows(n_experts, n_in, lean=xp.float32(0))
    # A token whose choice hangs on less than float32 can tell is replaced by the token that is surest.
    ranked = xp.sort(xp.matmul(x.astype(xp.float32), w_router.astype(xp.float32).T), axis=-1)
    margin = ranked[:, -TOP] - ranked[:, -TOP - 1]
    x = x[xp.where(margin > 1e-3, xp.arange(len(x)), xp.argmax(margin))]
    x[0] = 0
    inward, outward = lean * xp.float32(2 * n_in ** -0.5), xp.float32(1)
    return (x, w_router, rows(n_experts, n_wide, n_in, lean=inward), rows(n_experts, n_wide, n_in, lean=inward),
            rows(n_experts, n_in, n_wide, lean=outward), rows(n_wide, n_in, lean=inward), rows(n_wide, n_in, lean=inward),
            rows(n_in, n_wide, lean=outward), rows(1, n_in, lean=xp.float32(0)))


def _mlp(xp, x, gate, up, down):
    g = precision.matmul(xp, x, gate.swapaxes(-1, -2))
    h = precision.narrow(g / (1 + xp.exp(-g)) * precision.matmul(xp, x, up.swapaxes(-1, -2)), "bf16")
    return precision.matmul(xp, h, down.swapaxes(-1, -2))


def reference(xp, x, w_router, w_gate, w_up, w_down, s_gate, s_up, s_down, w_shared):
    z = precision.matmul(xp, x, w_router.T)
    ids = xp.argsort(-z, axis=-1, kind="stable")[:, :TOP]
    chosen = xp.take_along_axis(z, ids, axis=-1)
    weights = xp.exp(chosen - chosen[:, :1])
    weights = weights / precision.total(xp, weights)
    # Each expert's tokens stand in rows of its own, padded with zeros to the longest.
    flat = ids.ravel()
    order = xp.argsort(flat, kind="stable")
    counts = xp.bincount(flat, minlength=len(w_router))
    place = xp.empty_like(order)
    place[order] = xp.arange(flat.size) - (xp.cumsum(counts) - counts)[flat[order]]
    rows = xp.zeros((len(w_router), int(counts.max()), x.shape[1]), x.dtype)
    rows[flat, place] = xp.repeat(x, TOP, axis=0)
    results = _mlp(xp, rows, w_gate, w_up, w_down)[flat, place].reshape(*ids.shape, -1)
    routed = precision.total(xp, results * weights[:, :, None], axis=1, keepdims=False)
    shared = _mlp(xp, x, s_gate, s_up, s_down) / (1 + xp.exp(-precision.matmul(xp, x, w_shared.T)))
    return precision.narrow(routed + shared, "bf16")


def work(size="full"):
    s = SIZES[size]
    n, n_in = s["n_tokens"], s["n_in"]
    n_weights = 3 * n_in * s["n_wide"] * (s["n_experts"] + 1) + n_in * (s["n_experts"] + 1)
    n_operations = 6 * n * n_in * s["n_wide"] * (TOP + 1) + 2 * n * n_in * (s["n_experts"] + 1)
    return {"n_bytes": 2 * (n_weights + 2 * n * n_in), "n_operations": n_operations, "unit": "bf16"}
