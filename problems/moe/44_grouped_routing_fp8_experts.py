"""Group-limited routing and block-scaled fp8 experts of one rank, DeepSeek-V3, e4m3.

inputs   logits     f32 [n_tokens, 256]                   router logits of all experts of all ranks
         bias       f32 [256]                             added to scores for the choice alone
         x          u8  [n_tokens, n_in]                  e4m3 codes of the tokens
         x_scale    f32 [n_tokens, n_in / 128]            value = code * scale of its 128 neighbours
         w13        u8  [8, 2 n_wide, n_in]               e4m3 codes, [out, in]: of each expert first the gate, then the up rows
         w13_scale  f32 [8, 2 n_wide / 128, n_in / 128]   one scale for each 128 x 128 block
         w2         u8  [8, n_in, n_wide]                 e4m3 codes of the down projection
         w2_scale   f32 [8, n_in / 128, n_wide / 128]
outputs  out        bf16 [n_tokens, n_in]                 what experts 40 to 47, which this rank holds, add to each token

Routing, in float32:
    score = 1 / (1 + exp(-logit)),   biased = score + bias
    experts form 8 groups of 32 neighbours; a group counts the sum of its two largest biased scores; the 4 largest groups
    stay; of their experts the 8 with the largest biased score are chosen. Ties: the lower index, of groups and of experts.
    weight = 2.5 * score / (sum of the 8 chosen scores + 1e-20)
Expert e of weight w adds w * (silu(gate . x) * (up . x)) . down^T, silu(a) = a / (1 + exp(-a)); sums are float32 and the middle
is not quantised. A token with no chosen expert on this rank gets zeros; an expert may get no token.
"""

from problems import formats, precision

SOURCE = ("DeepSeek-V3: 256 experts in 8 groups, 4 groups and 8 experts a token, scaling 2.5, hidden 7168, expert width 2048, "
          "fp8 blocks of 128 x 128; one of 32 ranks, 4096 tokens")
SIZES = {"full": {"n_tokens": 4096, "n_in": 7168, "n_wide": 2048}, "small": {"n_tokens": 64, "n_in": 512, "n_wide": 256}}
N_EXPERTS, N_GROUPS, TOP_GROUPS, TOP, SCALING, FIRST, N_LOCAL, BLOCK = 256, 8, 4, 8, 2.5, 40, 8, 128
OUTPUTS = ("bf16",)
INVARIANT = "shapes, types, group and expert counts; token 0 has equal logits, so that bias and ties alone decide"


def make_inputs(xp, rng, size="full"):
    s = SIZES[size]
    n_in, n_wide = s["n_in"], s["n_wide"]

    def normal(*shape):
        return rng.standard_normal(shape, dtype=xp.float32)

    bias = rng.integers(-8, 9, N_EXPERTS).astype(xp.float32) / 64
    bias[FIRST:FIRST + N_LOCAL] += xp.float32(1 / 32)                # this rank is a busy one
    logits = normal(s["n_tokens"], N_EXPERTS) * xp.float32(1.5)
    # A token whose choice hangs on less than float32 can tell takes the logits of the token that is surest.
    margin = _margin(xp, logits, bias)
    logits = xp.where((margin > 1e-4)[:, None], logits, logits[xp.argmax(margin)])
    logits[0] = 0

    # Tokens and weights lean to one direction of random signs, each by its own amount: sums outgrow their terms.
    lean = xp.where(rng.random(n_in, dtype=xp.float32) < 0.5, -1, 1).astype(xp.float32)
    x = normal(s["n_tokens"], n_in)
    x, x_scale = formats.encode_groups(xp, "e4m3", x + (0.5 + rng.random((s["n_tokens"], 1), dtype=xp.float32)) * lean, BLOCK)

    def weights(n_rows, n_columns, lean):
        codes, scales = xp.empty((N_LOCAL, n_rows, n_columns), xp.uint8), []
        for e in range(N_LOCAL):
            w = (normal(n_rows, n_columns) + (normal(n_rows, 1) + 1) * lean) * xp.float32(n_columns ** -0.5)
            blocks = w.reshape(n_rows // BLOCK, BLOCK, n_columns // BLOCK, BLOCK)
            scales.append(xp.max(xp.abs(blocks), axis=(1, 3)) / xp.float32(formats.LARGEST["e4m3"]))
            codes[e] = formats.encode(xp, "e4m3", blocks / scales[-1][:, None, :, None]).reshape(w.shape)
        return codes, xp.stack(scales)

    return (logits, bias, x, x_scale, *weights(2 * n_wide, n_in, lean * xp.float32(2 * n_in ** -0.5)),
            *weights(n_in, n_wide, xp.full(n_wide, 0.5, xp.float32)))


def _margin(xp, logits, bias):
    """Distance of each token's closest decision: its 4th group from the 5th, its 8th expert from the 9th."""
    biased = 1 / (1 + xp.exp(-logits)) + bias
    group = xp.sort(xp.sort(biased.reshape(-1, N_GROUPS, N_EXPERTS // N_GROUPS), axis=-1)[..., -2:].sum(axis=-1), axis=-1)
    expert = xp.sort(_allowed(xp, biased), axis=-1)
    return xp.minimum(group[:, -TOP_GROUPS] - group[:, -TOP_GROUPS - 1], expert[:, -TOP] - expert[:, -TOP - 1])


def _allowed(xp, biased):
    """Biased scores with minus infinity outside each token's best groups."""
    groups = biased.reshape(-1, N_GROUPS, N_EXPERTS // N_GROUPS)
    best_two = xp.sort(groups, axis=-1)[..., -2:]
    order = xp.argsort(-(best_two[..., 0] + best_two[..., 1]), axis=-1, kind="stable")[:, :TOP_GROUPS]
    kept = (order[:, :, None] == xp.arange(N_GROUPS)).any(axis=1)
    return xp.where(kept[:, :, None], groups, groups.dtype.type(-xp.inf)).reshape(biased.shape)


def route(xp, logits, bias):
    """Chosen experts [n_tokens, 8] by falling biased score, and their weights."""
    score = 1 / (1 + xp.exp(-precision.wide(logits)))
    ids = xp.argsort(-_allowed(xp, score + precision.wide(bias)), axis=-1, kind="stable")[:, :TOP]
    chosen = xp.take_along_axis(score, ids, axis=-1)
    return ids, chosen / (precision.total(xp, chosen) + 1e-20) * SCALING


def reference(xp, logits, bias, x, x_scale, w13, w13_scale, w2, w2_scale):
    ids, weights = route(xp, logits, bias)
    values = formats.decode_groups(xp, "e4m3", x, x_scale)
    n_wide = w2.shape[2]
    out = xp.zeros(x.shape, precision.wide_type())
    for e in range(N_LOCAL):
        token, choice = xp.nonzero(ids == FIRST + e)
        if token.size == 0:
            continue
        both = precision.matmul(xp, values[token], formats.decode_blocks(xp, "e4m3", w13[e], w13_scale[e], (BLOCK, BLOCK)).T)
        gate, up = both[:, :n_wide], both[:, n_wide:]
        down = formats.decode_blocks(xp, "e4m3", w2[e], w2_scale[e], (BLOCK, BLOCK))
        out[token] += precision.matmul(xp, gate / (1 + xp.exp(-gate)) * up, down.T) * weights[token, choice][:, None]
    return precision.narrow(out, "bf16")


def work(size="full"):
    s = SIZES[size]
    n_pairs = s["n_tokens"] * TOP * N_LOCAL // N_EXPERTS             # on average
    n_weights = 3 * N_LOCAL * s["n_in"] * s["n_wide"]
    n_bytes = s["n_tokens"] * (4 * N_EXPERTS + 2 * s["n_in"]) + n_pairs * s["n_in"] * (1 + 4 / BLOCK)
    return {"n_bytes": int(n_bytes + n_weights * (1 + 4 / BLOCK ** 2)), "unit": "fp8",
            "n_operations": 6 * n_pairs * s["n_in"] * s["n_wide"]}
