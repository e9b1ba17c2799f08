"""Backward pass of routing and dispatch: from gradients of the sent rows and of the weights to tokens and router, Qwen3 Coder 30B, bf16.

inputs   x             bf16 [n_tokens, n_in]
         w_router      bf16 [n_experts, n_in]        [out, in]
         ids           i32  [n_tokens, 8]            chosen experts, all different within a token
         places        i32  [n_tokens, 8]            row of `grad_rows` that belongs to each choice: a permutation
         grad_rows     bf16 [8 n_tokens, n_in]       gradient of the loss by the rows that were sent, sorted by expert
         grad_weights  f32  [n_tokens, 8]            gradient of the loss by the weights
outputs  grad_x        bf16 [n_tokens, n_in]
         grad_w_router f32  [n_experts, n_in]

The forward pass, of which the choice is given:
    p = softmax(x . w_router^T) over all experts,   weight[t, k] = p[t, ids[t, k]] / (sum over the 8 chosen),
    row places[t, k] of what is sent = x[t]
Hence, as the other experts cancel out of the weights, they are a softmax over the chosen logits alone, and
    grad_logit[t, ids[t, k]] = weight[t, k] * (grad_weights[t, k] - sum over j of weight[t, j] * grad_weights[t, j]), 0 elsewhere
    grad_x[t] = sum over k of grad_rows[places[t, k]] + grad_logit[t] . w_router
    grad_w_router = grad_logit^T . x
All in float32 until the outputs are rounded. An expert that nobody chose has gradient zero.
"""

from problems import precision

SOURCE = "Qwen3-Coder 30B-A3B: hidden_size 2048, 128 experts, 8 a token, norm_topk_prob; 16384 tokens"
SIZES = {"full": {"n_tokens": 16384, "n_in": 2048, "n_experts": 128}, "small": {"n_tokens": 96, "n_in": 512, "n_experts": 32}}
TOP = 8
OUTPUTS = ("bf16", "f32")
INVARIANT = "shapes and types; the last expert is chosen by no token"


def make_inputs(xp, rng, size="full"):
    s, bf16 = SIZES[size], precision.TYPES["bf16"]

    def normal(*shape, mean=0.0, std=1.0):
        return rng.standard_normal(shape, dtype=xp.float32) * xp.float32(std) + xp.float32(mean)

    # Tokens and router rows lean to one direction of random signs, each by its own amount: sums outgrow their terms.
    lean = xp.where(rng.random(s["n_in"], dtype=xp.float32) < 0.5, -1, 1).astype(xp.float32)
    x = normal(s["n_tokens"], s["n_in"]) + normal(s["n_tokens"], 1, mean=0.5, std=0.2) * lean
    w = (normal(s["n_experts"], s["n_in"]) + normal(s["n_experts"], 1, std=0.2) * lean) * xp.float32(0.5 * s["n_in"] ** -0.5)
    key = rng.random((s["n_tokens"], s["n_experts"]), dtype=xp.float32)
    key[:, -1] = 2
    ids = xp.argsort(key, axis=-1)[:, :TOP]
    places = xp.argsort(xp.argsort(ids.ravel(), kind="stable"), kind="stable").reshape(ids.shape)
    grad_rows = normal(TOP * s["n_tokens"], s["n_in"], mean=0.25)
    grad_weights = normal(s["n_tokens"], TOP, std=5)
    return x.astype(bf16), w.astype(bf16), ids.astype(xp.int32), places.astype(xp.int32), grad_rows.astype(bf16), grad_weights


def reference(xp, x, w_router, ids, places, grad_rows, grad_weights):
    logits = xp.take_along_axis(precision.matmul(xp, x, w_router.T), ids.astype(xp.int64), axis=-1)
    weights = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
    weights = weights / precision.total(xp, weights)
    grad_weights = precision.wide(grad_weights)
    grad_chosen = weights * (grad_weights - precision.total(xp, weights * grad_weights))
    grad_logit = xp.zeros((len(x), len(w_router)), grad_chosen.dtype)
    grad_logit[xp.arange(len(x))[:, None], ids] = grad_chosen
    sent = precision.total(xp, grad_rows[places], axis=1, keepdims=False)
    grad_x = sent + precision.matmul(xp, grad_logit, w_router)
    return precision.narrow(grad_x, "bf16"), precision.narrow(precision.matmul(xp, grad_logit.T, x), "f32")


def work(size="full"):
    s = SIZES[size]
    n, n_in, n_experts = s["n_tokens"], s["n_in"], s["n_experts"]
    n_bytes = 2 * n_in * ((2 + TOP) * n + 3 * n_experts) + 12 * TOP * n
    return {"n_bytes": n_bytes, "n_operations": 6 * n * n_in * n_experts + TOP * n * n_in, "unit": "f32"}
