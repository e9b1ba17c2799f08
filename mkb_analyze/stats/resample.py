"""From bootstrap replicates to an interval: quantile rules, bias correction, acceleration."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

# replicates closer to the estimate than this, relatively, tie with it: floating point must not decide the bias
TIE = 1e-12
# named quantile rules of Hyndman & Fan 1996: type 7 interpolates between order statistics, type 6 by (B + 1) a
RULES = {"type7": "linear", "type6": "weibull"}


def quantile(replicates: Sequence[float], levels: Sequence[float], rule: str = "type7") -> np.ndarray:
    """Quantiles of the replicates by a named rule: type7, type6, or "normal" (between order statistics on the normal
    scale at (B + 1) a, as Davison & Hinkley 1997 and the boot package do; extremes cut to the smallest and largest).
    """
    values, levels = np.sort(np.asarray(replicates, dtype=float)), np.asarray(levels, dtype=float)
    if np.isnan(levels).any():
        return np.full(levels.shape, np.nan)
    if rule in RULES:
        return np.quantile(values, levels, method=RULES[rule])
    if rule != "normal":
        raise ValueError(f"rule={rule}: type7, type6 or normal; choose one")
    n = len(values)
    place = (n + 1) * levels
    k = np.trunc(place).astype(int)
    inner = (k > 0) & (k < n)
    out = np.where(k <= 0, values[0], values[-1])
    ki = k[inner]
    below, above = stats.norm.ppf(ki / (n + 1)), stats.norm.ppf((ki + 1) / (n + 1))
    share = (stats.norm.ppf(levels[inner]) - below) / (above - below)
    between = values[ki - 1] + share * (values[np.minimum(ki, n - 1)] - values[ki - 1])
    out[inner] = np.where(place[inner] == ki, values[ki - 1], between)
    return out


def acceleration(jackknife: Sequence[float]) -> float:
    """Efron's (1987) acceleration from leave-one-out values; NaN where they do not move."""
    gap = np.mean(jackknife) - np.asarray(jackknife, dtype=float)
    spread = float((gap**2).sum())
    scale = float(np.abs(jackknife).max(initial=0.0)) ** 2
    if spread <= 1e-26 * max(scale, 1e-300) * len(gap):
        return math.nan
    return float((gap**3).sum()) / (6 * spread**1.5)


def below_and_equal(replicates: Sequence[float], estimate: float) -> tuple[int, int]:
    """How many replicates lie below the estimate and how many tie with it."""
    values = np.asarray(replicates, dtype=float)
    slack = TIE * max(abs(estimate), 1e-300)
    return int((values < estimate - slack).sum()), int((np.abs(values - estimate) <= slack).sum())


def bias(n_below: int, n_equal: int, n_replicates: int, ties: str = "half") -> float:
    """Bias correction z0; `ties`: "half" counts a tie as half below (right for counts), "strict" as not below."""
    if ties not in ("half", "strict"):
        raise ValueError(f"ties={ties}: half or strict; choose one")
    share = (n_below + (n_equal / 2 if ties == "half" else 0)) / n_replicates
    return float(stats.norm.ppf(share))


def bca_levels(z0: Any, a: Any, level: float) -> np.ndarray:
    """The two quantile levels of the BCa interval (Efron 1987); arrays of z0 and a give shape (2, ...)."""
    z = stats.norm.ppf([(1 - level) / 2, (1 + level) / 2]).reshape(2, *([1] * np.ndim(z0)))
    with np.errstate(invalid="ignore", divide="ignore"):
        return stats.norm.cdf(z0 + (z0 + z) / (1 - a * (z0 + z)))


def bca_interval(
    replicates: Sequence[float],
    estimate: float,
    jackknife: Sequence[float],
    level: float = 0.95,
    rule: str = "type7",
    ties: str = "half",
) -> tuple[float, float]:
    """BCa limits from replicates and leave-one-out (leave-one-cluster-out) values.

    NaN where the replicates lie on one side or the leave-one-out values do not move.
    """
    n_below, n_equal = below_and_equal(replicates, estimate)
    z0 = bias(n_below, n_equal, len(replicates), ties)
    a = acceleration(jackknife)
    if not (math.isfinite(z0) and math.isfinite(a)):
        return math.nan, math.nan
    low, high = quantile(replicates, bca_levels(z0, a, level), rule)
    return float(low), float(high)
