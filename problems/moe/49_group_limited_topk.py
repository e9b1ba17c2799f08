"""Router of a mixture of experts: logits, sigmoid, group-limited top 8 with a correction bias, Ring Flash, bf16.

inputs   x         bf16 [n_tokens, n_in]
         w_router  bf16 [256, n_in]            [out, in]
         bias      f32  [256]                  added to scores for the choice alone
outputs  ids       i32  [n_tokens, 8]          chosen experts by falling biased score
         weights   f32  [n_tokens, 8]

    score = 1 / (1 + exp(-x . w_router^T)),   biased = score + bias            float32
    experts form 8 groups of 32 neighbours; a group counts the sum of its two largest biased scores; the 4 largest groups
    stay; of their experts the 8 with the largest biased score are chosen. Ties: the lower index, of groups and of experts.
    weight = 2.5 * score / (sum of the 8 chosen scores + 1e-20)
"""

from problems import precision

SOURCE = ("Ring-flash-2.0: hidden_size 4096, 256 experts in 8 groups, 4 groups and 8 experts a token, sigmoid scores, "
          "routed_scaling_factor 2.5; 32768 tokens")
SIZES = {"full": {"n_tokens": 32768, "n_in": 4096}, "small": {"n_tokens": 64, "n_in": 512}}
N_EXPERTS, N_GROUPS, TOP_GROUPS, TOP, SCALING = 256, 8, 4, 8, 2.5
OUTPUTS = ("i32", "f32")
INVARIANT = ("shapes, types, group and expert counts; tokens and router are small multiples of powers of two, so that logits are "
             "exact whatever the order of sums; token 0 is zero, so that bias and ties alone choose for it")


def make_inputs(xp, rng, size="full"):
    s, bf16 = SIZES[size], precision.TYPES["bf16"]
    n_in = s["n_in"]
    # Multiples of 1/4 and of a power of two near 1.5 / (3 sqrt(n_in)): every partial sum fits 24 bits.
    unit = 2.0 ** round(-1 - 0.5 * (n_in.bit_length() - 1))
    x = rng.integers(-8, 9, (s["n_tokens"], n_in)).astype(xp.float32) / 4
    w_router = rng.integers(-4, 5, (N_EXPERTS, n_in)).astype(xp.float32) * xp.float32(unit)
    bias = rng.integers(-8, 9, N_EXPERTS).astype(xp.float32) / 128
    # A token whose choice hangs on less than float32 can tell is replaced by the token that is surest.
    margin = _margin(xp, xp.matmul(x, w_router.T), bias)
    x = x[xp.where(margin > 2e-5, xp.arange(len(x)), xp.argmax(margin))]
    x[0] = 0
    return x.astype(bf16), w_router.astype(bf16), bias


def _margin(xp, logits, bias):
    """Distance of each token's closest decision: its 4th group from the 5th, its first nine experts from one another."""
    biased = 1 / (1 + xp.exp(-logits)) + bias
    group = xp.sort(xp.sort(biased.reshape(-1, N_GROUPS, N_EXPERTS // N_GROUPS), axis=-1)[..., -2:].sum(axis=-1), axis=-1)
    expert = xp.sort(_allowed(xp, biased), axis=-1)[:, -TOP - 1:]
    return xp.minimum(group[:, -TOP_GROUPS] - group[:, -TOP_GROUPS - 1], (expert[:, 1:] - expert[:, :-1]).min(axis=-1))


def _allowed(xp, biased):
    """Biased scores with minus infinity outside each token's best groups."""
    groups = biased.reshape(-1, N_GROUPS, N_EXPERTS // N_GROUPS)
    best_two = xp.sort(groups, axis=-1)[..., -2:]
    order = xp.argsort(-(best_two[..., 0] + best_two[..., 1]), axis=-1, kind="stable")[:, :TOP_GROUPS]
    kept = (order[:, :, None] == xp.arange(N_GROUPS)).any(axis=1)
    return xp.where(kept[:, :, None], groups, groups.dtype.type(-xp.inf)).reshape(biased.shape)


def reference(xp, x, w_router, bias):
    score = 1 / (1 + xp.exp(-precision.matmul(xp, x, w_router.T)))
    ids = xp.argsort(-_allowed(xp, score + precision.wide(bias)), axis=-1, kind="stable")[:, :TOP]
    chosen = xp.take_along_axis(score, ids, axis=-1)
    weights = chosen / (precision.total(xp, chosen) + 1e-20) * SCALING
    return precision.narrow(ids, "i32"), precision.narrow(weights, "f32")


def work(size="full"):
    s = SIZES[size]
    n, n_in = s["n_tokens"], s["n_in"]
    n_bytes = 2 * n_in * (n + N_EXPERTS) + 4 * N_EXPERTS + 8 * TOP * n
    return {"n_bytes": n_bytes, "n_operations": 2 * n * n_in * N_EXPERTS, "unit": "bf16"}
