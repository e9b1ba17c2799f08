"""How long claims live: Kaplan-Meier with Greenwood's error, and the log-rank test."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from mkb_analyze.stats.estimate import Estimate, HypothesisTest, untested

# times closer than this, absolutely or relative to their mean size, are one time (0.1 + 0.2 and 0.3)
SAME_TIME = math.sqrt(np.finfo(float).eps)
SCALES = ("log", "log-log", "plain")


def merged_times(times: Sequence[float]) -> np.ndarray:
    """Times with those that differ by rounding alone made equal."""
    times = np.asarray(times, dtype=float)
    distinct = np.unique(times)
    if len(distinct) < 2:
        return times
    gap = np.diff(distinct)
    same = (gap <= SAME_TIME) | (gap <= SAME_TIME * np.abs(distinct).mean())
    cuts = distinct[np.concatenate([[True], ~same])]
    return cuts[np.searchsorted(cuts, times, side="right") - 1]


@dataclass(frozen=True)
class Survival:
    """The product-limit curve at each distinct `time`: numbers at risk, of events, censored; the surviving share with
    Greenwood's error; limits by scale; and the median and the restricted mean (area under the curve to `horizon`)."""

    time: np.ndarray
    n_risk: np.ndarray
    n_event: np.ndarray
    n_censor: np.ndarray
    share: np.ndarray
    se: np.ndarray
    low: dict[str, np.ndarray]
    high: dict[str, np.ndarray]
    median: dict[str, Estimate]
    restricted_mean: Estimate
    horizon: float

    def at(self, time: float, scale: str = "log-log", level: float = 0.95, name: str = "survival") -> Estimate:
        """The surviving share just after `time`, with the interval of `scale`."""
        n = int(self.n_risk[0]) if len(self.n_risk) else 0
        method = f"Kaplan-Meier; Greenwood, {scale}"
        before = np.flatnonzero(self.time <= time + SAME_TIME)
        if n == 0 or time > self.horizon + SAME_TIME:
            reason = "no cases" if n == 0 else "beyond the last time seen"
            return Estimate(name, math.nan, math.nan, math.nan, n, method, level, reason=reason)
        if not len(before):
            return Estimate(name, 1.0, 1.0, 1.0, n, method, level)
        i = before[-1]
        reason = ""
        if math.isnan(self.low[scale][i]):
            reason = "no survivors: no interval" if self.share[i] == 0 else "no event yet: no interval on this scale"
        return Estimate(name, self.share[i], self.low[scale][i], self.high[scale][i], n, method, level, reason=reason)


def _first_half(curve: np.ndarray, time: np.ndarray) -> float:
    """First time the curve is at 1/2 or below; the middle of the step where it lies at 1/2; NaN if never."""
    known = ~np.isnan(curve) & (curve < 0.5 + SAME_TIME)
    if not known.any():
        return math.nan
    curve, time = curve[known], time[known]
    below = np.flatnonzero(curve < curve[0])
    if abs(curve[0] - 0.5) < SAME_TIME and len(below):
        return float(time[0] + time[below[0]]) / 2
    return float(time[0])


def _limits(share: np.ndarray, se: np.ndarray, level: float) -> tuple[dict, dict]:
    z = stats.norm.ppf(0.5 + level / 2)
    with np.errstate(all="ignore"):
        relative = se / share
        low = {"log": share * np.exp(-z * relative), "plain": np.maximum(share - z * se, 0)}
        high = {"log": np.minimum(share * np.exp(z * relative), 1), "plain": np.minimum(share + z * se, 1)}
        bend = z * relative / np.log(share)
        low["log-log"] = np.where(share == 1, np.nan, share ** np.exp(-bend))
        high["log-log"] = np.where(share == 1, np.nan, share ** np.exp(bend))
    for side in (low, high):
        for scale in side:
            side[scale] = np.where(share > 0, side[scale], np.nan)
    return low, high


def kaplan_meier(
    times: Sequence[float], events: Sequence[int], level: float = 0.95, name: str = "survival"
) -> Survival:
    """Kaplan & Meier's curve (1958); `events` 1 where the claim died at its time, 0 where it was last seen alive.

    Limits on the log, log-log and plain scales as in R's survfit; where no survivor is left there are none, nor on the
    log-log scale before the first event. Cases
    with a missing time or event are left out.
    """
    t = np.array([math.nan if v is None else v for v in times], dtype=float)
    d = np.array([math.nan if v is None else v for v in events], dtype=float)
    known = ~(np.isnan(t) | np.isnan(d))
    t, d = merged_times(t[known]), d[known]
    if np.any((d != 0) & (d != 1)):
        raise ValueError("events: 1 for an event, 0 for censored; code them so")
    n = len(t)
    time, which = np.unique(t, return_inverse=True)
    n_event = np.bincount(which, weights=d, minlength=len(time)).astype(int)
    leaving = np.bincount(which, minlength=len(time))
    n_risk = n - np.concatenate([[0], np.cumsum(leaving)[:-1]]).astype(int) if n else np.zeros(0, dtype=int)
    with np.errstate(all="ignore"):
        share = np.cumprod(1 - n_event / n_risk)
        se = np.where(share > 0, share * np.sqrt(np.cumsum(n_event / (n_risk * (n_risk - n_event)))), np.nan)
    low, high = _limits(share, se, level)
    cells = {"events": int(d.sum()), "censored": int(n - d.sum())}
    median = {}
    for scale in SCALES:
        centre = _first_half(share, time)
        limits = _first_half(low[scale], time), _first_half(high[scale], time)
        reason = "no cases" if n == 0 else ""
        if n and math.isnan(centre):
            reason = "fewer than half died: no median"
        elif any(math.isnan(v) for v in limits):
            reason = reason or "a limit's curve never reaches one half"
        median[scale] = Estimate(
            f"{name} median", centre, *limits, n, f"Kaplan-Meier; Greenwood, {scale}", level, cells, reason=reason
        )
    horizon = float(time[-1]) if n else math.nan
    mean = _restricted_mean(time, n_risk, n_event, share, n, level, f"{name} mean to the last time", cells)
    return Survival(time, n_risk, n_event, leaving - n_event, share, se, low, high, median, mean, horizon)


def _restricted_mean(time, n_risk, n_event, share, n, level, name, cells) -> Estimate:
    """Area under the curve to the last time, with the variance sum of (area beyond t)^2 d/(r (r - d))."""
    method = "Kaplan-Meier area; Greenwood"
    if n == 0:
        return Estimate(name, math.nan, math.nan, math.nan, 0, method, level, cells, reason="no cases")
    widths = np.diff(np.concatenate([[0.0], time]))
    area = widths * np.concatenate([[1.0], share[:-1]])
    beyond = area.sum() - np.cumsum(area)
    rest = n_risk - n_event
    inside = (n_event > 0) & (rest > 0)
    variance = float((beyond[inside] ** 2 * n_event[inside] / (n_risk[inside] * rest[inside])).sum())
    half = stats.norm.ppf(0.5 + level / 2) * math.sqrt(variance)
    value = float(area.sum())
    return Estimate(name, value, max(value - half, 0.0), min(value + half, float(time[-1])), n, method, level, cells)


@dataclass(frozen=True)
class LogRank:
    """Observed and expected events a group (sorted order), the log-rank test and Peto's weighted one."""

    groups: tuple[Any, ...]
    n: np.ndarray
    observed: np.ndarray
    expected: np.ndarray
    test: HypothesisTest
    peto: HypothesisTest


def log_rank(
    times: Sequence[float],
    events: Sequence[int],
    groups: Sequence[Any],
    strata: Sequence[Any] | None = None,
    name: str = "survival alike",
) -> LogRank:
    """Log-rank test of G groups, G - 1 df, summed over `strata`; Peto's test weights by the pooled curve just before.

    Harrington & Fleming 1982 with rho = 0 and 1.
    """
    t, d = merged_times(np.asarray(times, dtype=float)), np.asarray(events, dtype=float)
    labels, g = np.unique(np.asarray(groups), return_inverse=True)
    layers = np.zeros(len(t), dtype=int) if strata is None else np.unique(np.asarray(strata), return_inverse=True)[1]
    k = len(labels)
    observed, expected = np.zeros((2, k)), np.zeros((2, k))
    spread = np.zeros((2, k, k))
    for layer in np.unique(layers):
        here = layers == layer
        _log_rank_layer(t[here], d[here], g[here], k, observed, expected, spread)
    cells = {str(label): int(c) for label, c in zip(labels, np.bincount(g, minlength=k), strict=True)}
    tests = []
    for rho, method in enumerate(("log-rank", "Peto-Prentice weighted log-rank")):
        used = expected[rho] > 0
        if d.sum() == 0 or used.sum() < 2:
            reason = "no events" if d.sum() == 0 else "fewer than two groups at risk at an event"
            tests.append(untested(name, reason, len(t), method, cells, df=max(k - 1, 0)))
            continue
        gap = (observed[rho] - expected[rho])[used][:-1]
        inside = spread[rho][np.ix_(used, used)][:-1, :-1]
        if np.linalg.matrix_rank(inside) < len(inside):
            tests.append(untested(name, "no event with two groups at risk", len(t), method, cells, df=k - 1))
            continue
        value, df = float(gap @ np.linalg.solve(inside, gap)), int(used.sum()) - 1
        tests.append(HypothesisTest(name, value, float(stats.chi2.sf(value, df)), len(t), method, df, cells))
    return LogRank(tuple(labels.tolist()), np.bincount(g, minlength=k), observed[0], expected[0], *tests)


def _log_rank_layer(t, d, g, k, observed, expected, spread) -> None:
    survive = 1.0
    for time in np.unique(t[d > 0]):
        at_risk = np.bincount(g[t >= time], minlength=k).astype(float)
        died = np.bincount(g[(t == time) & (d > 0)], minlength=k).astype(float)
        n, m = at_risk.sum(), died.sum()
        share = at_risk / n
        variance = (np.diag(share) - np.outer(share, share)) * (m * (n - m) / (n - 1) if n > 1 else 0.0)
        for rho, weight in enumerate((1.0, survive)):
            observed[rho] += weight * died
            expected[rho] += weight * m * share
            spread[rho] += weight**2 * variance
        survive *= 1 - m / n
