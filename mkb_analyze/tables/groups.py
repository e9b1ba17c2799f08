"""Who is counted together: groups of transfers, rates with the right interval, and the word for a pool."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mkb_analyze.stats import bootstrap, ranks, rates
from mkb_analyze.stats.estimate import Estimate, undefined
from mkb_analyze.transfers import Outcome, Transfer

POOLED = "all"


@dataclass(frozen=True)
class Resampling:
    """How bootstraps of one report are drawn: everything that decides their bytes."""

    n_resamples: int = 2000
    seed: int = 0
    level: float = 0.95

    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)


def by(transfers: Sequence[Transfer], key: Callable[[Transfer], Any]) -> dict[Any, list[Transfer]]:
    """Groups in sorted order of their key."""
    out: dict[Any, list[Transfer]] = {}
    for transfer in transfers:
        out.setdefault(key(transfer), []).append(transfer)
    return dict(sorted(out.items(), key=lambda kv: str(kv[0])))


def direction_name(transfer: Transfer) -> str:
    return f"{transfer.source_dsl} → {transfer.target_dsl}"


def _ratio(name: str, values: Sequence[float], transfers: Sequence[Transfer], **how: Any) -> bootstrap.Ratio:
    """The mean of `values` as sums over clusters of one problem."""
    _, codes = np.unique([t.problem for t in transfers], return_inverse=True)
    n_clusters = int(codes.max()) + 1
    return bootstrap.Ratio(
        name,
        np.bincount(codes, values, n_clusters),
        np.bincount(codes, minlength=n_clusters).astype(float),
        n=len(values),
        n_by_cell={"problems": n_clusters},
        **how,
    )


def share(transfers: Sequence[Transfer], test: Callable[[Transfer], bool], name: str, how: Resampling) -> Estimate:
    """Share of transfers for which `test` holds: Wilson where each problem stands once, else clusters by problem."""
    hits = [bool(test(t)) for t in transfers]
    k, n, n_problems = sum(hits), len(hits), len({t.problem for t in transfers})
    if n_problems in (n, 1):
        return rates.wilson(k, n, how.level, name)
    (pooled,) = bootstrap.cluster_bootstrap(
        [_ratio(name, np.asarray(hits, float), transfers)], how.n_resamples, how.rng(), how.level
    )
    cells = {"with": k, "without": n - k, "problems": n_problems}
    if math.isnan(pooled.low) or pooled.low == pooled.high:
        # Where nothing varies a bootstrap has no width; Wilson on the number of problems says how little that proves.
        few = rates.wilson(round(k / n * n_problems), n_problems, how.level, name)
        return Estimate(name, k / n, few.low, few.high, n, "Wilson on the number of problems", how.level, cells)
    return replace(pooled, n_by_cell=cells)


def difference(
    first: Sequence[Transfer], second: Sequence[Transfer], test: Callable[[Transfer], bool], name: str, how: Resampling
) -> Estimate:
    """Share in `first` less share in `second`: Newcombe where each problem stands once, else clusters by problem (BCa)."""
    x1, x2 = ([bool(test(t)) for t in group] for group in (first, second))
    newcombe = rates.newcombe(sum(x1), len(x1), sum(x2), len(x2), how.level, name)
    problems = [t.problem for t in (*first, *second)]
    if len(set(problems)) == len(problems) or not newcombe.defined:
        return newcombe
    _, codes = np.unique(problems, return_inverse=True)
    n_clusters, cut = int(codes.max()) + 1, len(x1)
    parts = [
        np.bincount(c, w, n_clusters)
        for c, w in (
            (codes[:cut], np.asarray(x1, float)),
            (codes[:cut], np.ones(cut)),
            (codes[cut:], np.asarray(x2, float)),
            (codes[cut:], np.ones(len(x2))),
        )
    ]
    ratio = bootstrap.Ratio(name, *parts, n=len(problems), n_by_cell={**newcombe.n_by_cell, "problems": n_clusters})
    (pooled,) = bootstrap.cluster_bootstrap([ratio], how.n_resamples, how.rng(), how.level)
    if math.isnan(pooled.low) or pooled.low == pooled.high:
        return newcombe.with_notes("clusters show no spread: Newcombe, as if cases were independent")
    return pooled


def lift(transfers: Sequence[Transfer], name: str, how: Resampling) -> Estimate:
    """Paired lift in per cent, 100 × (geometric mean of r − 1), clusters by problem (BCa), p by Wilcoxon on log r."""
    if not transfers:
        return undefined(name, "no resolved transfer", method="cluster bootstrap by problem, BCa")
    logs = np.asarray([t.log_ratio for t in transfers])
    ratio = _ratio(name, logs, transfers, transform="exp-1", scale=100.0)
    if len(ratio.top) < 2:
        percent = 100 * math.expm1(float(logs.mean()))
        return Estimate(
            name,
            percent,
            math.nan,
            math.nan,
            len(logs),
            "none",
            how.level,
            ratio.n_by_cell,
            reason="one problem alone: no interval",
        )
    (pooled,) = bootstrap.cluster_bootstrap([ratio], how.n_resamples, how.rng(), how.level)
    p = ranks.signed_rank_p(logs)
    return replace(pooled, p=p, method=f"{pooled.method}; p: Wilcoxon signed rank on log r")


def helped(t: Transfer) -> bool:
    return t.outcome is Outcome.HELPED


def harmed(t: Transfer) -> bool:
    return t.outcome is Outcome.HARMED
