"""Shares of counts and their differences, with intervals that hold for small n."""

import math

from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from mkb_analyze.stats.estimate import Estimate, undefined


def check_counts(x: int, n: int) -> None:
    """Refuse counts that no sample can have."""
    if not 0 <= x <= n:
        raise ValueError(f"{x} of {n}: a count lies between 0 and its total; count the cases again")


def wilson(x: int, n: int, level: float = 0.95, name: str = "share", corrected: bool = False) -> Estimate:
    """Share x/n with Wilson's score interval (Wilson 1927); `corrected` adds Newcombe's continuity correction (1998).

    The corrected limits are the roots of (|x - n p| - c)^2 = z^2 n p (1 - p) with c = min(1/2, |x - n/2|), as in R's
    prop.test.
    """
    check_counts(x, n)
    method = "Wilson with continuity correction" if corrected else "Wilson"
    if n == 0:
        return undefined(name, "no cases", 0, method, level)
    if not corrected:
        low, high = (float(v) for v in proportion_confint(x, n, 1 - level, method="wilson"))
        # the limits at x = 0 and x = n are exact; floating point leaves 1e-17 there
        low, high = (0.0 if x == 0 else max(low, 0.0)), (1.0 if x == n else min(high, 1.0))
        return Estimate(name, x / n, low, high, n, method, level, {"with": x, "without": n - x})
    z = stats.norm.ppf(0.5 + level / 2)
    c = min(0.5, abs(x - n / 2))
    z22n = z * z / (2 * n)
    high_p, low_p = x / n + c / n, x / n - c / n
    high = (high_p + z22n + z * math.sqrt(max(high_p * (1 - high_p), 0) / n + z22n / (2 * n))) / (1 + 2 * z22n)
    low = (low_p + z22n - z * math.sqrt(max(low_p * (1 - low_p), 0) / n + z22n / (2 * n))) / (1 + 2 * z22n)
    low, high = (0.0 if low_p <= 0 else max(low, 0.0)), (1.0 if high_p >= 1 else min(high, 1.0))
    return Estimate(name, x / n, low, high, n, method, level, {"with": x, "without": n - x})


def clopper_pearson(x: int, n: int, level: float = 0.95, name: str = "share") -> Estimate:
    """Share x/n with the exact binomial interval (Clopper & Pearson 1934): never too short, often too long."""
    check_counts(x, n)
    if n == 0:
        return undefined(name, "no cases", 0, "Clopper-Pearson", level)
    a = (1 - level) / 2
    low = 0.0 if x == 0 else float(stats.beta.ppf(a, x, n - x + 1))
    high = 1.0 if x == n else float(stats.beta.isf(a, x + 1, n - x))
    return Estimate(name, x / n, low, high, n, "Clopper-Pearson", level, {"with": x, "without": n - x})


def newcombe(x1: int, n1: int, x2: int, n2: int, level: float = 0.95, name: str = "difference") -> Estimate:
    """Difference x1/n1 - x2/n2 of independent shares by Newcombe's hybrid of two Wilson intervals (1998, method 10)."""
    first, second = wilson(x1, n1, level), wilson(x2, n2, level)
    cells = {"first with": x1, "first": n1, "second with": x2, "second": n2}
    if n1 == 0 or n2 == 0:
        empty = "first" if n1 == 0 else "second"
        return undefined(name, f"no cases in the {empty} group", n1 + n2, "Newcombe", level, cells)
    p1, p2 = first.estimate, second.estimate
    low = p1 - p2 - math.hypot(p1 - first.low, second.high - p2)
    high = p1 - p2 + math.hypot(first.high - p1, p2 - second.low)
    notes = ("fewer than 5 cases in one group",) if min(n1, n2) < 5 <= n1 + n2 else ()
    return Estimate(name, p1 - p2, low, high, n1 + n2, "Newcombe", level, cells, notes=notes)
