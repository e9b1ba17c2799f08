"""Paired positive measurements: geometric mean ratio, sign test, sign-flip permutation test."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from mkb_analyze.stats.estimate import Estimate, HypothesisTest, undefined, untested
from mkb_analyze.stats.rates import clopper_pearson

# differences that agree to this many decimals are one value; raw doubles lose the ties (0.3 - 0.1 is not 0.4 - 0.2)
DECIMALS = 10


def paired_values(x: Sequence[float], y: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Both as float arrays with the pairs that lack a value (None, NaN) left out."""
    x, y = (np.array([math.nan if v is None else v for v in values], dtype=float) for values in (x, y))
    if x.shape != y.shape:
        raise ValueError(f"{len(x)} and {len(y)} values: pairs need equally many; match them first")
    known = ~(np.isnan(x) | np.isnan(y))
    return x[known], y[known]


@dataclass(frozen=True)
class GeometricMeanRatio:
    """`ratio` = exp(mean log(x/y)) with its t interval and p, and the log scale parts it was made from."""

    ratio: Estimate
    mean_log: float
    sd_log: float
    t: float
    df: int


def geometric_mean_ratio(
    x: Sequence[float], y: Sequence[float], level: float = 0.95, name: str = "geometric mean ratio"
) -> GeometricMeanRatio:
    """Geometric mean of x/y over pairs, t interval on the logs; values must be positive and finite.

    Logs whose spread is at rounding error (standard error under 10 eps |mean|) leave t and the interval undefined: a
    p of 1e-49 from constant ratios says nothing.
    """
    x, y = paired_values(x, y)
    n, method = len(x), "geometric mean ratio; t on log ratios"
    nan = math.nan

    def none(reason: str) -> GeometricMeanRatio:
        return GeometricMeanRatio(undefined(name, reason, n, method, level), nan, nan, nan, n - 1)

    if n == 0:
        return none("no pairs")
    if np.any(x <= 0) or np.any(y <= 0) or np.any(np.isinf(x)) or np.any(np.isinf(y)):
        return none("a value is zero, negative or infinite: its logarithm is not a number")
    log = np.log(x / y)
    mean = float(log.mean())
    if n == 1:
        reason = "one pair: no interval"
        ratio = Estimate(name, math.exp(mean), nan, nan, n, method, level, reason=reason)
        return GeometricMeanRatio(ratio, mean, nan, nan, 0)
    sd = float(log.std(ddof=1))
    se = sd / math.sqrt(n)
    if se <= 10 * np.finfo(float).eps * abs(mean):
        reason = "all ratios are equal: no spread to judge the mean by"
        ratio = Estimate(name, math.exp(mean), nan, nan, n, method, level, reason=reason)
        return GeometricMeanRatio(ratio, mean, sd, nan, n - 1)
    t = mean / se
    half = float(stats.t.ppf(0.5 + level / 2, n - 1)) * se
    p = float(2 * stats.t.sf(abs(t), n - 1))
    ratio = Estimate(name, math.exp(mean), math.exp(mean - half), math.exp(mean + half), n, method, level, p=p)
    return GeometricMeanRatio(ratio, mean, sd, t, n - 1)


@dataclass(frozen=True)
class SignTest:
    """Share of positive among the nonzero differences with its exact interval and two-sided p; zeros are dropped."""

    positive_share: Estimate
    p_greater: float
    p_less: float
    n_positive: int
    n_negative: int
    n_zero: int


def sign_test(differences: Sequence[float], level: float = 0.95, name: str = "positive share") -> SignTest:
    """Exact sign test; differences equal to zero to 10 decimals are dropped and counted."""
    d = np.array([math.nan if v is None else v for v in differences], dtype=float)
    d = np.round(d[~np.isnan(d)], DECIMALS)
    n_pos, n_neg = int((d > 0).sum()), int((d < 0).sum())
    n, cells = n_pos + n_neg, {"positive": n_pos, "negative": n_neg, "zero": int((d == 0).sum())}
    method = "sign test; Clopper-Pearson"
    if n == 0:
        none = undefined(name, "no nonzero difference", 0, method, level, cells)
        return SignTest(none, math.nan, math.nan, n_pos, n_neg, cells["zero"])
    shape = clopper_pearson(n_pos, n, level)
    p = float(stats.binomtest(n_pos, n).pvalue)
    share = Estimate(name, shape.estimate, shape.low, shape.high, n, method, level, cells, p)
    greater, less = float(stats.binom.sf(n_pos - 1, n, 0.5)), float(stats.binom.cdf(n_pos, n, 0.5))
    return SignTest(share, greater, less, n_pos, n_neg, cells["zero"])


@dataclass(frozen=True)
class SignFlip:
    """Sign-flip permutation test of the sum of differences: two-sided `test`, one-sided p, and the count behind p."""

    test: HypothesisTest
    p_greater: float
    p_less: float
    n_assignments: int
    n_extreme: int


def sign_flip(
    differences: Sequence[float],
    name: str = "sum of differences",
    max_exact: int = 20,
    resamples: int = 100_000,
    rng: np.random.Generator | int = 0,
) -> SignFlip:
    """All 2^n sign assignments of the differences (n <= `max_exact`), else a seeded sample with the +1 rule.

    Sums within 1e-9 of the seen one, relative to the sum of |d|, tie with it. Zeros stay and double the count.
    """
    d = np.array([math.nan if v is None else v for v in differences], dtype=float)
    d = d[~np.isnan(d)]
    n = len(d)
    if n == 0:
        return SignFlip(untested(name, "no differences", 0, "sign-flip permutation"), math.nan, math.nan, 0, 0)
    seen, slack = float(d.sum()), 1e-9 * max(float(np.abs(d).sum()), 1e-300)
    if n <= max_exact:
        sums = np.zeros(1)
        for value in d:
            sums = np.concatenate([sums + value, sums - value])
        method, extra = "sign-flip permutation, all assignments", 0
    else:
        rng = np.random.default_rng(rng)
        sums = np.empty(resamples)
        for start in range(0, resamples, 10_000):
            block = rng.integers(0, 2, (min(10_000, resamples - start), n)) * 2.0 - 1.0
            sums[start : start + len(block)] = block @ d
        method, extra = f"sign-flip permutation, {resamples} random assignments", 1
    total = len(sums) + extra
    both = int((np.abs(sums) >= abs(seen) - slack).sum()) + extra
    greater = int((sums >= seen - slack).sum()) + extra
    less = int((sums <= seen + slack).sum()) + extra
    test = HypothesisTest(name, seen, both / total, n, method)
    return SignFlip(test, greater / total, less / total, len(sums), both)
