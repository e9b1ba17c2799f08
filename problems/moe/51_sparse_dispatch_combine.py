"""Mixture of experts: router, dispatch of each token to 4 experts, clamped SwiGLU, weighted combine, GPT-OSS, float32.

inputs   x            f32 [n_tokens, n_in]
         router_w     f32 [n_experts, n_in],  router_b f32 [n_experts]
         w_in         f32 [n_experts, 2 n_wide, n_in],  b_in f32 [n_experts, 2 n_wide]    even rows gate, odd rows up
         w_out        f32 [n_experts, n_in, n_wide],    b_out f32 [n_experts, n_in]
outputs  out          f32 [n_tokens, n_in]

    l = x . router_w^T + router_b;  a token takes the 4 experts of largest l, weight = softmax of these 4 values
    g, u = even and odd entries of w_in[e] . x + b_in[e],   g' = min(g, 7),   u' = u clipped to -7 .. 7
    y_e = w_out[e] . (g' / (1 + exp(-1.702 g')) * (u' + 1)) + b_out[e]
    out = sum over the 4 experts of weight * y_e
Ties: the lower expert. An expert may get no token. Token 1 is zero, so that router_b, which holds equal values, and
ties alone choose for it; for every other token the 4th and the 5th largest l lie more than 1e-4 apart.
"""

from problems import precision

SOURCE = "gpt-oss-20b: hidden_size and intermediate_size 2880, 32 experts, 4 a token, swiglu_limit 7; 512 tokens"
SIZES = {"full": {"n_tokens": 512, "n_in": 2880, "n_wide": 2880, "n_experts": 32},
         "small": {"n_tokens": 24, "n_in": 160, "n_wide": 96, "n_experts": 8}}
TOP, LIMIT, ALPHA, MARGIN = 4, 7.0, 1.702, 1e-4
OUTPUTS = ("f32",)
INVARIANT = "shapes, types, limit and alpha; token 1 is zero, the last expert has no tokens"


def make_inputs(xp, rng, size="full"):
    s = SIZES[size]
    n_experts, n_in, n_wide = s["n_experts"], s["n_in"], s["n_wide"]

    def normal(*shape, mean=0.0, std=1.0):
        return rng.standard_normal(shape, dtype=xp.float32) * xp.float32(std) + xp.float32(mean)

    x = normal(s["n_tokens"], n_in, mean=0.25)
    router_w = normal(n_experts, n_in) * xp.float32(n_in ** -0.5)
    router_b = xp.round(normal(n_experts, std=2)) / 4
    router_b[2], router_b[-1] = router_b[0], -64
    # A token whose choice hangs on less than float32 can tell is replaced by the token that is surest.
    ranked = xp.sort(_logits(xp, x, router_w, router_b), axis=-1)
    margin = ranked[:, -TOP] - ranked[:, -TOP - 1]
    x = x[xp.where(margin > MARGIN, xp.arange(len(x)), xp.argmax(margin))]
    x[1] = 0
    # Inner values of standard deviation 3 reach the clamp now and then.
    return (x, router_w, router_b, normal(n_experts, 2 * n_wide, n_in, mean=0.02) * xp.float32(3 * n_in ** -0.5),
            normal(n_experts, 2 * n_wide, std=0.5),
            normal(n_experts, n_in, n_wide, mean=0.02) * xp.float32(n_wide ** -0.5), normal(n_experts, n_in, std=0.2))


def _logits(xp, x, router_w, router_b):
    return precision.matmul(xp, x, router_w.T) + precision.wide(router_b)


def reference(xp, x, router_w, router_b, w_in, b_in, w_out, b_out):
    n_tokens, n_experts = len(x), len(router_w)
    logits = _logits(xp, x, router_w, router_b)
    experts = xp.argsort(-logits, axis=-1, kind="stable")[:, :TOP]
    chosen = xp.take_along_axis(logits, experts, axis=-1)
    weights = xp.exp(chosen - chosen[:, :1])
    weights = weights / precision.total(xp, weights)
    order = xp.argsort(experts.ravel(), kind="stable")                # pairs token * 4 + choice, by expert
    begin = [0, *xp.cumsum(xp.bincount(experts.ravel(), minlength=n_experts)).tolist()]
    y = xp.zeros((n_tokens * TOP, x.shape[1]), precision.wide_type())
    for e in range(n_experts):
        pairs = order[begin[e]:begin[e + 1]]
        if not pairs.size:
            continue
        inner = precision.matmul(xp, x[pairs // TOP], w_in[e].T) + precision.wide(b_in[e])
        gate, up = xp.minimum(inner[:, 0::2], LIMIT), xp.clip(inner[:, 1::2], -LIMIT, LIMIT)
        h = gate / (1 + xp.exp(-ALPHA * gate)) * (up + 1)
        y[pairs] = precision.matmul(xp, h, w_out[e].T) + precision.wide(b_out[e])
    mixed = y.reshape(n_tokens, TOP, -1) * weights[..., None]
    return precision.narrow(precision.total(xp, mixed, axis=1, keepdims=False), "f32")


def work(size="full"):
    s = SIZES[size]
    n_in, n_wide, n_experts = s["n_in"], s["n_wide"], s["n_experts"]
    n_weights = n_experts * (n_in + 1 + 2 * n_wide * (n_in + 1) + n_in * (n_wide + 1))
    n_operations = 2 * s["n_tokens"] * n_in * (n_experts + 3 * TOP * n_wide)
    return {"n_bytes": 4 * (2 * s["n_tokens"] * n_in + n_weights), "n_operations": n_operations, "unit": "f32"}
