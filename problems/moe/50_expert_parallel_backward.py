"""Backward pass of the SwiGLU experts that one rank of an expert-parallel group holds, MiMo, float32.

inputs   x                f32 [n_tokens, n_in]              all tokens that the rank has received
         experts          i32 [n_tokens, 8]                 experts of each token among 256, all different
         weights          f32 [n_tokens, 8]                 their weights
         w_gate, w_up     f32 [n_local, n_wide, n_in]       the rank's experts, numbers 16 to 23
         w_down           f32 [n_local, n_in, n_wide]
         grad_out         f32 [n_tokens, n_in]              gradient of the loss by the combined output
outputs  grad_x           f32 [n_tokens, n_in]              this rank's part, to be summed over ranks
         grad_weights     f32 [n_tokens, 8]                 0 for experts that live elsewhere
         grad_w_gate, grad_w_up, grad_w_down                f32, each in the shape of its input

The forward pass, which is not given and must be recomputed:
    g = w_gate[e] . x,   u = w_up[e] . x,   y_e = w_down[e] . (silu(g) * u),   silu(g) = g / (1 + exp(-g))
    out = sum over the token's local experts of weight * y_e
A token without a local expert has gradient 0; an expert without tokens likewise.
"""

from problems import precision

SOURCE = ("MiMo-V2-Flash: hidden_size 4096, moe_intermediate_size 2048, 256 experts, 8 a token; one rank of 32 holds 8 "
          "experts, 4096 tokens")
SIZES = {"full": {"n_tokens": 4096, "n_in": 4096, "n_wide": 2048, "n_local": 8},
         "small": {"n_tokens": 256, "n_in": 128, "n_wide": 96, "n_local": 8}}
N_EXPERTS, TOP, FIRST = 256, 8, 16
OUTPUTS = ("f32", "f32", "f32", "f32", "f32")
INVARIANT = "shapes, types and the rank's place; local expert 3 has no tokens, token 1 has no local expert"


def make_inputs(xp, rng, size="full"):
    s = SIZES[size]
    n_tokens, n_in, n_wide, n_local = s["n_tokens"], s["n_in"], s["n_wide"], s["n_local"]

    def normal(*shape, mean=0.0, std=1.0):
        return rng.standard_normal(shape, dtype=xp.float32) * xp.float32(std) + xp.float32(mean)

    # Experts are not equally liked, but nearly so: the work of a rank must not change much from draw to draw.
    liked = normal(n_tokens, N_EXPERTS) + normal(N_EXPERTS, std=0.2)
    liked[:, FIRST + 3] = -100
    liked[1, FIRST:FIRST + n_local] = -100
    experts = xp.argsort(-liked, axis=-1)[:, :TOP]
    weights = xp.exp(xp.take_along_axis(liked, experts, axis=-1))
    weights = weights / weights.sum(axis=-1, keepdims=True)
    return (normal(n_tokens, n_in, mean=0.25), experts.astype(xp.int32), weights,
            normal(n_local, n_wide, n_in, mean=0.05) * xp.float32(n_in ** -0.5),
            normal(n_local, n_wide, n_in, mean=0.05) * xp.float32(n_in ** -0.5),
            normal(n_local, n_in, n_wide, mean=0.05) * xp.float32(n_wide ** -0.5),
            normal(n_tokens, n_in, mean=0.2))


def reference(xp, x, experts, weights, w_gate, w_up, w_down, grad_out):
    wide = precision.wide_type()
    grad_x, grad_weights = xp.zeros(x.shape, wide), xp.zeros(weights.size, wide)
    grad_gate, grad_up, grad_down = (xp.zeros(w.shape, wide) for w in (w_gate, w_up, w_down))
    order = xp.argsort(experts.ravel(), kind="stable")                # pairs token * 8 + choice, by expert
    begin = [0, *xp.cumsum(xp.bincount(experts.ravel(), minlength=N_EXPERTS)).tolist()]
    for i in range(len(w_gate)):
        pairs = order[begin[FIRST + i]:begin[FIRST + i + 1]]
        if not pairs.size:
            continue
        tokens = pairs // TOP
        rows, weight = x[tokens], precision.wide(weights).reshape(-1)[pairs, None]
        gate, up = precision.matmul(xp, rows, w_gate[i].T), precision.matmul(xp, rows, w_up[i].T)
        sigmoid = 1 / (1 + xp.exp(-gate))
        h = gate * sigmoid * up
        grad_h = precision.matmul(xp, grad_out[tokens], w_down[i])          # by h, before the weight
        grad_weights[pairs] = precision.total(xp, grad_h * h, keepdims=False)
        grad_h = grad_h * weight
        grad_u = grad_h * gate * sigmoid
        grad_g = grad_h * up * sigmoid * (1 + gate * (1 - sigmoid))
        # A token has an expert at most once, so no row is added to twice here.
        grad_x[tokens] += precision.matmul(xp, grad_g, w_gate[i]) + precision.matmul(xp, grad_u, w_up[i])
        grad_gate[i], grad_up[i] = precision.matmul(xp, grad_g.T, rows), precision.matmul(xp, grad_u.T, rows)
        grad_down[i] = precision.matmul(xp, precision.wide(grad_out[tokens]).T, h * weight)
    results = (grad_x, grad_weights.reshape(weights.shape), grad_gate, grad_up, grad_down)
    return tuple(precision.narrow(result, "f32") for result in results)


def work(size="full"):
    s = SIZES[size]
    # On average a local expert, but for the empty one, has about n_tokens * 8 / 256 tokens.
    n_pairs = s["n_tokens"] * TOP * (s["n_local"] - 1) // N_EXPERTS
    n_weights = s["n_local"] * s["n_in"] * s["n_wide"]
    n_values = 2 * n_pairs * s["n_in"] + s["n_tokens"] * (s["n_in"] + 3 * TOP) + 2 * 3 * n_weights
    # Eight products: gate and up again, the gradient by h, two into grad_x, three weight gradients.
    return {"n_bytes": 4 * n_values, "n_operations": 16 * n_pairs * s["n_in"] * s["n_wide"], "unit": "f32"}
