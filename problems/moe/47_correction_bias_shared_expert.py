"""Mixture of experts whose choice is corrected by a bias, plus shared experts that every token takes, ERNIE 4.5, bf16.

inputs   x                      bf16 [n_tokens, n_in]
         w_router               f32  [n_experts, n_in]             [out, in]
         bias                   f32  [n_experts]                   added to probabilities for the choice alone
         w_gate, w_up           bf16 [n_experts, n_wide, n_in]     [out, in] of each expert
         w_down                 bf16 [n_experts, n_in, n_wide]
         s_gate, s_up           bf16 [n_shared, n_in]              the shared experts as one wide MLP
         s_down                 bf16 [n_in, n_shared]
outputs  out                    bf16 [n_tokens, n_in]

    p = softmax(x . w_router^T), float32
    chosen: the 6 experts of largest p + bias; ties: the lower index
    weight = p / max(sum of the 6 chosen p, 1e-12)
    mlp(x) = (silu(x . gate^T) * (x . up^T)) . down^T,   silu(a) = a / (1 + exp(-a))
    out = sum over the chosen of weight * mlp_expert(x) + mlp_shared(x)
Sums and elementwise mathematics are float32; the middle of each MLP is rounded to bf16 before it is multiplied. An expert may
get no token.
"""

from problems import precision

SOURCE = ("ERNIE 4.5 21B-A3B: hidden_size 2560, 64 experts of 1536, 6 a token, 2 shared experts, softmax router in float32 with "
          "correction bias; 2048 tokens")
SIZES = {"full": {"n_tokens": 2048, "n_in": 2560, "n_experts": 64, "n_wide": 1536, "n_shared": 3072},
         "small": {"n_tokens": 12, "n_in": 384, "n_experts": 8, "n_wide": 768, "n_shared": 1024}}
TOP = 6
OUTPUTS = ("bf16",)
INVARIANT = "shapes, types and the number of experts a token takes; token 0 is zero, so that bias and ties alone choose for it"


def make_inputs(xp, rng, size="full"):
    s, bf16 = SIZES[size], precision.TYPES["bf16"]
    n_in, n_wide, n_experts, n_shared = s["n_in"], s["n_wide"], s["n_experts"], s["n_shared"]

    def normal(*shape):
        return rng.standard_normal(shape, dtype=xp.float32)

    # Tokens and weights lean to one direction of random signs, each by its own amount: sums outgrow their terms.
    lean = xp.where(rng.random(n_in, dtype=xp.float32) < 0.5, -1, 1).astype(xp.float32)
    x = (normal(s["n_tokens"], n_in) + (0.5 + rng.random((s["n_tokens"], 1), dtype=xp.float32)) * lean).astype(bf16)
    w_router = normal(n_experts, n_in) * xp.float32(n_in ** -0.5)
    bias = rng.integers(-8, 9, n_experts).astype(xp.float32) / 1024
    # A token whose choice hangs on less than float32 can tell is replaced by the token that is surest.
    logits = xp.matmul(x.astype(xp.float32), w_router.T)
    p = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
    ranked = xp.sort(p / p.sum(axis=-1, keepdims=True) + bias, axis=-1)
    margin = ranked[:, -TOP] - ranked[:, -TOP - 1]
    x = x[xp.where(margin > 2e-5, xp.arange(len(x)), xp.argmax(margin))]
    x[0] = 0

    def rows(*shape, lean):
        w = normal(*shape) + (normal(*shape[:-1], 1) + 1) * lean
        return (w * xp.float32(shape[-1] ** -0.5)).astype(bf16)

    inward, outward = lean * xp.float32(2 * n_in ** -0.5), xp.float32(1)
    return (x, w_router, bias, rows(n_experts, n_wide, n_in, lean=inward), rows(n_experts, n_wide, n_in, lean=inward),
            rows(n_experts, n_in, n_wide, lean=outward), rows(n_shared, n_in, lean=inward), rows(n_shared, n_in, lean=inward),
            rows(n_in, n_shared, lean=outward))


def route(xp, x, w_router, bias):
    """Chosen experts [n_tokens, 6] by falling corrected probability, and their weights."""
    logits = precision.matmul(xp, x, w_router.T)
    p = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
    p = p / precision.total(xp, p)
    ids = xp.argsort(-(p + precision.wide(bias)), axis=-1, kind="stable")[:, :TOP]
    weights = xp.take_along_axis(p, ids, axis=-1)
    return ids, weights / xp.maximum(precision.total(xp, weights), 1e-12)


def _mlp(xp, x, gate, up, down):
    g = precision.matmul(xp, x, gate.swapaxes(-1, -2))
    h = precision.narrow(g / (1 + xp.exp(-g)) * precision.matmul(xp, x, up.swapaxes(-1, -2)), "bf16")
    return precision.matmul(xp, h, down.swapaxes(-1, -2))


def reference(xp, x, w_router, bias, w_gate, w_up, w_down, s_gate, s_up, s_down):
    ids, weights = route(xp, x, w_router, bias)
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
    return precision.narrow(routed + _mlp(xp, x, s_gate, s_up, s_down), "bf16")


def work(size="full"):
    s = SIZES[size]
    n, n_in = s["n_tokens"], s["n_in"]
    n_weights = 3 * n_in * (s["n_experts"] * s["n_wide"] + s["n_shared"])
    n_bytes = 2 * (n_weights + 2 * n * n_in) + 4 * s["n_experts"] * (n_in + 1)
    return {"n_bytes": n_bytes, "n_operations": 6 * n * n_in * (TOP * s["n_wide"] + s["n_shared"]), "unit": "bf16"}
