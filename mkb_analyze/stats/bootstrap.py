"""Cluster bootstrap of many ratios at once: every resample is a row of counts, every table a matrix product."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
from scipy import stats

from mkb_analyze.stats.estimate import Estimate, undefined
from mkb_analyze.stats.resample import TIE, bca_levels

KINDS = ("bca", "percentile", "expanded")
# a ratio whose resamples are undefined more often than this has no interval
MOST_LOST = 0.1
# with fewer clusters than this the resamples have too few values to spread as the estimate does
FEW_CLUSTERS = 10


@dataclass(frozen=True)
class Ratio:
    """One statistic over G clusters: sum(top)/sum(bottom), less sum(minus_top)/sum(minus_bottom) where given.

    Each part is an array of G per-cluster sums, on the NumPy or CuPy side of the others. `transform` "exp-1" reports
    exp(ratio) - 1 (the lift of a mean log ratio). `scale` multiplies the result (100 for points). `n` is the cases
    behind it.
    """

    name: str
    top: Any
    bottom: Any
    minus_top: Any = None
    minus_bottom: Any = None
    transform: str = "identity"
    scale: float = 1.0
    n: int = 0
    n_by_cell: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.transform not in ("identity", "exp-1"):
            raise ValueError(f"transform={self.transform}: identity or exp-1; choose one")
        if (self.minus_top is None) != (self.minus_bottom is None):
            raise ValueError(f"{self.name}: a difference needs both parts of the second ratio; give both")


def array_module(array: Any) -> ModuleType:
    """NumPy, or CuPy when the array lives on a GPU."""
    if type(array).__module__.split(".")[0] == "cupy":
        import cupy

        return cupy
    return np


def cluster_counts(n_clusters: int, resamples: int, rng: Any, xp: ModuleType) -> Any:
    """(resamples, n_clusters) how often each cluster was drawn: `n_clusters` draws with replacement a row."""
    drawn = rng.integers(0, n_clusters, size=(resamples, n_clusters), dtype=xp.int32)
    drawn += xp.arange(resamples, dtype=xp.int32)[:, None] * xp.int32(n_clusters)
    return xp.bincount(drawn.ravel(), minlength=resamples * n_clusters).reshape(resamples, n_clusters)


@dataclass(frozen=True)
class _Parts:
    """The columns of all ratios side by side, with where each ratio finds its own."""

    columns: Any
    top: Any
    bottom: Any
    minus_top: Any
    minus_bottom: Any
    with_minus: Any
    exponential: Any
    scale: Any


def _gather(ratios: Sequence[Ratio], xp: ModuleType) -> _Parts:
    seen: dict[int, int] = {}
    columns: list[Any] = []

    def place(part: Any) -> int:
        # the same array given to many ratios is multiplied once
        if id(part) not in seen:
            seen[id(part)] = len(columns)
            columns.append(part)
        return seen[id(part)]

    places = [
        [place(r.top), place(r.bottom)] + [0 if part is None else place(part) for part in (r.minus_top, r.minus_bottom)]
        for r in ratios
    ]
    stacked = xp.stack([xp.asarray(c, dtype=xp.float64) for c in columns], axis=1)
    at = xp.asarray(np.array(places))
    minus = np.flatnonzero([r.minus_top is not None for r in ratios])
    power = np.flatnonzero([r.transform == "exp-1" for r in ratios])
    scale = np.array([r.scale for r in ratios])[:, None]
    return _Parts(
        stacked, at[:, 0], at[:, 1], at[:, 2], at[:, 3], xp.asarray(minus), xp.asarray(power), xp.asarray(scale)
    )


def _values(sums: Any, parts: _Parts, xp: ModuleType) -> Any:
    """(ratios, B) values from (columns, B) sums; NaN where a denominator is empty."""
    with np.errstate(all="ignore"):
        out = sums[parts.top] / sums[parts.bottom]
        minus, power = parts.with_minus, parts.exponential
        if len(minus):
            out[minus] -= sums[parts.minus_top[minus]] / sums[parts.minus_bottom[minus]]
        if len(power):
            out[power] = xp.expm1(out[power])
        out *= parts.scale
    return out


def cluster_bootstrap(
    ratios: Sequence[Ratio],
    resamples: int = 10_000,
    rng: Any = 0,
    level: float = 0.95,
    kind: str = "bca",
    block: int = 100_000,
) -> tuple[Estimate, ...]:
    """Intervals of all ratios by resampling clusters (problems) with multiplicity, all from the same resamples.

    `kind`: "bca" (Efron 1987; leave-one-cluster-out acceleration, ties counted half), "percentile", or "expanded"
    (percentile at levels widened by t with G - 1 df and sqrt(G/(G - 1)); Hesterberg 2015). Quantiles are type 7. The
    array module is that of the ratios' arrays; `rng` is its Generator or a seed. Undefined resamples (an empty
    denominator) are left out and said so; more than 10% of them leave no interval.
    """
    if kind not in KINDS:
        raise ValueError(f"kind={kind}: one of {', '.join(KINDS)}; choose one")
    ratios = list(ratios)
    if not ratios:
        return ()
    xp = array_module(ratios[0].top)
    n_clusters = len(ratios[0].top)
    labels = {"bca": "BCa", "percentile": "percentile", "expanded": "expanded percentile"}
    method = f"cluster bootstrap, {labels[kind]}, {resamples} resamples of {n_clusters} clusters"
    if n_clusters < 2:
        reason = "fewer than two clusters: nothing to resample"
        return tuple(undefined(r.name, reason, r.n, method, level, r.n_by_cell) for r in ratios)
    if isinstance(rng, (int, np.integer)):
        rng = xp.random.default_rng(int(rng))
    parts = _gather(ratios, xp)
    total = parts.columns.sum(0)
    estimate = _values(total[:, None], parts, xp)[:, 0]
    jackknife = _values((total - parts.columns).T, parts, xp)
    replicates = xp.empty((len(ratios), resamples))
    for start in range(0, resamples, block):
        size = min(block, resamples - start)
        weights = cluster_counts(n_clusters, size, rng, xp).astype(xp.float64)
        replicates[:, start : start + size] = _values(parts.columns.T @ weights.T, parts, xp)
    n_lost, n_below, n_equal, low, high = _limits(replicates, estimate, jackknife, kind, level, n_clusters, xp)
    return _records(ratios, estimate, low, high, n_lost, n_equal, resamples, n_clusters, method, level, xp)


def _limits(replicates, estimate, jackknife, kind, level, n_clusters, xp):
    n_lost = xp.isnan(replicates).sum(1)
    slack = TIE * xp.maximum(xp.abs(estimate), 1e-300)[:, None]
    with np.errstate(invalid="ignore"):
        n_below = (replicates < estimate[:, None] - slack).sum(1)
        n_equal = (replicates <= estimate[:, None] + slack).sum(1) - n_below
    resamples = replicates.shape[1]
    lost, below, equal = (np.asarray(_host(v, xp), dtype=float) for v in (n_lost, n_below, n_equal))
    kept = np.maximum(resamples - lost, 1)
    k = len(lost)
    tails = np.array([(1 - level) / 2, (1 + level) / 2])
    if kind == "bca":
        z0 = stats.norm.ppf(np.clip((below + equal / 2) / kept, 0.5 / resamples, 1 - 0.5 / resamples))
        at = bca_levels(z0, _accelerations(_host(jackknife, xp)), level)
    elif kind == "expanded":
        wide = math.sqrt(n_clusters / (n_clusters - 1)) * stats.t.ppf(tails, n_clusters - 1)
        at = np.repeat(stats.norm.cdf(wide)[:, None], k, axis=1)
    else:
        at = np.repeat(tails[:, None], k, axis=1)
    if xp is np:
        replicates.sort(axis=1)
    else:
        # one sort a row: a segmented sort of the whole costs several times as much on a GPU
        for row in replicates:
            row.sort()
    place = np.clip(at, 0, 1) * (kept - 1)
    floor = np.floor(place).astype(int)
    share = place - floor
    ceiling = np.minimum(floor + 1, (kept - 1).astype(int))
    rows = xp.arange(k)
    out = []
    for side in (0, 1):
        lower = _host(replicates[rows, xp.asarray(floor[side])], xp)
        upper = _host(replicates[rows, xp.asarray(ceiling[side])], xp)
        out.append(lower + share[side] * (upper - lower))
    return lost, below, equal, out[0], out[1]


def _host(array: Any, xp: ModuleType) -> np.ndarray:
    return array if xp is np else xp.asnumpy(array)


def _accelerations(jackknife: np.ndarray) -> np.ndarray:
    """Efron's acceleration a row; 0 where leaving clusters out changes nothing or is undefined."""
    with np.errstate(all="ignore"):
        known = (~np.isnan(jackknife)).sum(1, keepdims=True)
        gap = np.nansum(jackknife, axis=1, keepdims=True) / known - jackknife
        square = np.nansum(gap**2, axis=1)
        a = np.nansum(gap**3, axis=1) / (6 * square**1.5)
        tiny = square <= 1e-26 * np.nanmax(np.abs(jackknife), axis=1, initial=1e-300) ** 2
    return np.where(np.isfinite(a) & ~tiny, a, 0.0)


def _records(
    ratios, estimate, low, high, lost, equal, resamples, n_clusters, method, level, xp
) -> tuple[Estimate, ...]:
    estimate = _host(estimate, xp)
    out = []
    for i, ratio in enumerate(ratios):
        notes = (f"only {n_clusters} clusters: the interval is too short",) if n_clusters < FEW_CLUSTERS else ()
        value, lower, upper, reason = float(estimate[i]), float(low[i]), float(high[i]), ""
        if math.isnan(value):
            out.append(undefined(ratio.name, "no cases in a denominator", ratio.n, method, level, ratio.n_by_cell))
            continue
        if lost[i] > MOST_LOST * resamples:
            lower = upper = math.nan
            reason = f"{int(lost[i])} of {resamples} resamples had an empty denominator: no interval"
        elif lost[i]:
            notes += (f"{int(lost[i])} of {resamples} resamples had an empty denominator and were left out",)
        elif equal[i] == resamples:
            lower = upper = math.nan
            reason = "every resample gives the same value: the clusters show no spread"
        out.append(
            Estimate(
                ratio.name, value, lower, upper, ratio.n, method, level, ratio.n_by_cell, notes=notes, reason=reason
            )
        )
    return tuple(out)
