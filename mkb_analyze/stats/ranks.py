"""Wilcoxon's signed rank test, exact with ties, zeros by dropping or by Pratt."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from mkb_analyze.stats.estimate import Estimate, HypothesisTest, untested
from mkb_analyze.stats.paired import DECIMALS, paired_values

# above this many nonzero pairs the exact convolution gives way to the normal approximation
MAX_EXACT = 1000


@dataclass(frozen=True)
class SignedRank:
    """Signed rank results for pairs x, y.

    `shift` is the Hodges-Lehmann estimate with its exact interval and the exact conditional p. `normal` and
    `corrected` are the normal approximations without and with the continuity correction; `pratt` and `pratt_normal`
    keep the zeros in the ranking. `w_plus`, `w_minus` are rank sums after zeros are dropped; `rank_biserial` is
    (W+ - W-)/(W+ + W-).
    """

    shift: Estimate
    p_greater: float
    p_less: float
    normal: HypothesisTest
    corrected: HypothesisTest
    pratt: HypothesisTest
    pratt_normal: HypothesisTest
    w_plus: float
    w_minus: float
    rank_biserial: float
    n_pairs: int
    n_zero: int
    ties: bool


def _law(ranks: np.ndarray) -> np.ndarray:
    """P(twice the sum of a random half of the ranks = k), k = 0, 1 ...: each rank is in with probability 1/2."""
    doubled = np.rint(2 * ranks).astype(int)
    # all sums are multiples of the steps' common divisor (2 without ties at a half): the array is that much shorter
    unit = int(np.gcd.reduce(doubled, initial=0)) or 1
    law, top = np.zeros(int(doubled.sum()) // unit + 1), 0
    law[0] = 1.0
    for step in np.sort(doubled) // unit:
        law[: top + 1] /= 2
        law[step : top + step + 1] += law[: top + 1].copy()
        top += step
    if unit == 1:
        return law
    spread = np.zeros(int(doubled.sum()) + 1)
    spread[::unit] = law
    return spread


def _exact(ranks: np.ndarray, w_plus: float) -> tuple[float, float, float]:
    """Two-sided, greater and less p of the rank sum under random signs."""
    law, k = _law(ranks), int(round(2 * w_plus))
    less, greater = float(law[: k + 1].sum()), float(law[k:].sum())
    return min(1.0, 2 * min(less, greater)), min(1.0, greater), min(1.0, less)


def _hodges_lehmann_interval(d: np.ndarray, ranks: np.ndarray, level: float) -> tuple[float, float]:
    """Walsh averages cut at the signed rank's critical value (conservative under ties)."""
    n = len(d)
    i, j = np.triu_indices(n)
    walsh = np.sort((d[i] + d[j]) / 2)
    a = (1 - level) / 2
    if n <= MAX_EXACT:
        below = np.cumsum(_law(np.arange(1, n + 1)))[::2]
        cut = int(np.searchsorted(below, a, side="right"))
    else:
        mean, sd = n * (n + 1) / 4, math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        cut = int(mean - stats.norm.isf(a) * sd)
    if cut == 0:
        return -math.inf, math.inf
    return float(walsh[cut - 1]), float(walsh[len(walsh) - cut])


def signed_rank_p(x: Sequence[float]) -> float:
    """The two-sided p of `signed_rank(x)` alone, without the shift's sorting of all pairs; NaN without a nonzero."""
    d = np.round(paired_values(x, np.zeros(len(x)))[0], DECIMALS)
    kept = d[d != 0]
    if not len(kept):
        return math.nan
    ranks = stats.rankdata(np.abs(kept))
    w_plus = float(ranks[kept > 0].sum())
    if len(kept) <= MAX_EXACT:
        return _exact(ranks, w_plus)[0]
    z = (w_plus - ranks.sum() / 2) / math.sqrt(float((ranks**2).sum()) / 4)
    return float(min(1.0, 2 * stats.norm.sf(abs(z))))


def signed_rank(
    x: Sequence[float],
    y: Sequence[float] | None = None,
    level: float = 0.95,
    name: str = "Hodges-Lehmann shift",
) -> SignedRank:
    """Wilcoxon's signed rank test of x - y (or of x alone).

    Differences are rounded to 10 decimals before zeros are dropped and ties ranked, so that 0.3 - 0.1 and 0.4 - 0.2
    tie. The exact p enumerates all sign assignments by convolution and holds with ties (Hollander & Wolfe 1999). The
    interval inverts the untied test and is infinite where n is too small for the level.
    """
    x, y = paired_values(x, np.zeros(len(x)) if y is None else y)
    d = np.round(x - y, DECIMALS)
    n_pairs, n_zero = len(d), int((d == 0).sum())
    all_ranks = stats.rankdata(np.abs(d))
    kept = d[d != 0]
    n, cells = len(kept), {"pairs": n_pairs, "zero": n_zero}
    nan = math.nan
    method = "Wilcoxon signed rank, exact with ties; Hodges-Lehmann"
    if n == 0:
        reason = "no nonzero difference"
        shift = Estimate(name, nan, nan, nan, 0, method, level, cells, reason=reason)
        none = untested(name, reason, 0, "Wilcoxon signed rank", cells)
        return SignedRank(shift, nan, nan, none, none, none, none, 0.0, 0.0, nan, n_pairs, n_zero, False)
    ranks = stats.rankdata(np.abs(kept))
    w_plus, w_minus = float(ranks[kept > 0].sum()), float(ranks[kept < 0].sum())
    ties = len(np.unique(ranks)) < n
    mean, sd = ranks.sum() / 2, math.sqrt(float((ranks**2).sum()) / 4)
    gap = w_plus - mean

    def normal(value: float, label: str) -> HypothesisTest:
        return HypothesisTest(name, value, float(min(1.0, 2 * stats.norm.sf(abs(value)))), n, label, n_by_cell=cells)

    plain = normal(gap / sd, "Wilcoxon signed rank, normal")
    corrected = normal((gap - math.copysign(0.5, gap) * (gap != 0)) / sd, "Wilcoxon signed rank, normal, corrected")
    pratt_ranks, positive = all_ranks[d != 0], kept > 0
    pratt_plus = float(pratt_ranks[positive].sum())
    pratt_sd = math.sqrt(float((pratt_ranks**2).sum()) / 4)
    pratt_normal = normal((pratt_plus - pratt_ranks.sum() / 2) / pratt_sd, "signed rank with Pratt's zeros, normal")
    if n <= MAX_EXACT:
        p, greater, less = _exact(ranks, w_plus)
        pratt_p = _exact(pratt_ranks, pratt_plus)[0]
        pratt = HypothesisTest(name, pratt_plus, pratt_p, n, "signed rank with Pratt's zeros, exact", n_by_cell=cells)
    else:
        p, greater, less = plain.p, float(stats.norm.sf(gap / sd)), float(stats.norm.cdf(gap / sd))
        pratt, method = pratt_normal, "Wilcoxon signed rank, normal; Hodges-Lehmann"
    i, j = np.triu_indices(n)
    centre = float(np.median((kept[i] + kept[j]) / 2))
    low, high = _hodges_lehmann_interval(kept, ranks, level)
    shift = Estimate(name, centre, low, high, n, method, level, cells, p)
    return SignedRank(
        shift, greater, less, plain, corrected, pratt, pratt_normal, w_plus, w_minus,
        (w_plus - w_minus) / (w_plus + w_minus), n_pairs, n_zero, ties,
    )  # fmt: skip
