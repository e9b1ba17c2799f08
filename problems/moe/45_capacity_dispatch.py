"""Top-8 routing and dispatch into expert buffers of fixed capacity, Qwen3 Coder 480B, bf16.

inputs   logits   f32  [n_tokens, n_experts]
         x        bf16 [n_tokens, n_in]
outputs  buffer   bf16 [n_experts, capacity, n_in]    row of each expert's slot: the token sent there, zeros where none is
         slots    i32  [n_tokens, 8]                  expert * capacity + place of each choice, -1 where it was dropped
         weights  f32  [n_tokens, 8]                  weight of each choice, 0 where it was dropped

    p = softmax(logits) over all experts, float32
    each token chooses the 8 experts of largest p, by falling p; ties: the lower expert first
    weight = p / (sum of the 8 chosen p)              before anything is dropped
    capacity = ceil(1.25 * 8 n_tokens / n_experts)
An expert's places are given out in the order of tokens; a choice whose place would be capacity or more is dropped.
Values are moved, not computed; an expert may get no token.
"""

from problems import precision

SOURCE = ("Qwen3-Coder 480B-A35B: hidden_size 6144, 160 experts, 8 a token, norm_topk_prob; capacity factor 1.25 as in "
          "GShard-style dispatch; 4096 tokens")
SIZES = {"full": {"n_tokens": 4096, "n_in": 6144, "n_experts": 160}, "small": {"n_tokens": 96, "n_in": 256, "n_experts": 32}}
TOP = 8
MAIN_INPUT = 1
OUTPUTS = ("bf16", "i32", "f32")
INVARIANT = "shapes and types; logits are multiples of 1/16, so that ties are exact; some experts overflow, token 0 ties everywhere"


def capacity(n_tokens, n_experts):
    return -(-5 * TOP * n_tokens // (4 * n_experts))


def make_inputs(xp, rng, size="full"):
    s = SIZES[size]
    # Experts differ in how well they are liked, so that some overflow and others stay half empty.
    liked = rng.standard_normal(s["n_experts"], dtype=xp.float32) * xp.float32(0.5)
    logits = rng.standard_normal((s["n_tokens"], s["n_experts"]), dtype=xp.float32) + liked
    logits = xp.round(logits * 16) / 16
    logits[0] = 0
    x = rng.standard_normal((s["n_tokens"], s["n_in"]), dtype=xp.float32) + 1
    return logits.astype(xp.float32), x.astype(precision.TYPES["bf16"])


def reference(xp, logits, x):
    n_tokens, n_experts = logits.shape
    n_places = capacity(n_tokens, n_experts)
    z = precision.wide(logits)
    p = xp.exp(z - xp.max(z, axis=-1, keepdims=True))
    p = p / precision.total(xp, p)
    ids = xp.argsort(-z, axis=-1, kind="stable")[:, :TOP]
    weights = xp.take_along_axis(p, ids, axis=-1)
    weights = weights / precision.total(xp, weights)

    flat = ids.ravel()
    order = xp.argsort(flat, kind="stable")                          # by expert, and by token within an expert
    counts = xp.bincount(flat, minlength=n_experts)
    place = xp.empty_like(order)
    place[order] = xp.arange(flat.size) - (xp.cumsum(counts) - counts)[flat[order]]
    kept = (place < n_places).reshape(ids.shape)
    slots = xp.where(kept, ids * n_places + place.reshape(ids.shape), -1)

    buffer = xp.zeros((n_experts * n_places, x.shape[1]), x.dtype)
    token, choice = xp.nonzero(kept)
    buffer[slots[token, choice]] = x[token]
    weights = xp.where(kept, weights, weights.dtype.type(0))
    return buffer.reshape(n_experts, n_places, -1), precision.narrow(slots, "i32"), precision.narrow(weights, "f32")


def work(size="full"):
    s = SIZES[size]
    n_rows = s["n_experts"] * capacity(s["n_tokens"], s["n_experts"])
    n_bytes = 2 * s["n_in"] * (n_rows + s["n_tokens"]) + s["n_tokens"] * (4 * s["n_experts"] + 8 * TOP)
    return {"n_bytes": n_bytes, "n_operations": 4 * s["n_tokens"] * s["n_experts"], "unit": "f32"}
