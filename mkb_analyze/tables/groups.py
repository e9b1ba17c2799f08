"""Who is counted together: groups of transfers, rates with the right interval, and the word for a pool."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mkb_analyze.stats import bootstrap, paired, rates
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


def share(transfers: Sequence[Transfer], test: Callable[[Transfer], bool], name: str, how: Resampling) -> Estimate:
    """Share of transfers for which `test` holds: Wilson where each problem stands once, else clusters by problem."""
    hits = [bool(test(t)) for t in transfers]
    problems = [t.problem for t in transfers]
    wilson = rates.wilson(sum(hits), len(hits), how.level, name)
    if len(set(problems)) == len(problems) or len(set(problems)) < 2:
        return wilson
    pooled = bootstrap.cluster_mean(np.asarray(hits, float), np.asarray(problems), rng=how.rng(), level=how.level,
                                    n_resamples=how.n_resamples, name=name)
    # Where nothing varies a bootstrap has no width; Wilson on the number of problems says how little that proves.
    if math.isnan(pooled.low) or pooled.low == pooled.high:
        k, n = sum(hits), len(hits)
        few = rates.wilson(round(k / n * len(set(problems))) if n else 0, len(set(problems)), how.level, name)
        return Estimate(name, k / n, few.low, few.high, n, "Wilson on the number of problems", how.level,
                        {"with": k, "without": n - k, "problems": len(set(problems))})
    return pooled


def lift(transfers: Sequence[Transfer], name: str, how: Resampling) -> Estimate:
    """Paired lift in per cent, 100 × (geometric mean of r − 1), clusters by problem (BCa), p by Wilcoxon on log r."""
    if not transfers:
        return undefined(name, "no resolved transfer", method="cluster bootstrap by problem, BCa")
    logs = np.asarray([t.log_ratio for t in transfers])
    pooled = bootstrap.cluster_mean(logs, np.asarray([t.problem for t in transfers]), rng=how.rng(), level=how.level,
                                    n_resamples=how.n_resamples, name=name)
    test = paired.wilcoxon(logs)
    percent = lambda value: 100 * math.expm1(value) if not math.isnan(value) else math.nan  # noqa: E731
    return Estimate(name, percent(float(logs.mean())), percent(pooled.low), percent(pooled.high), len(logs),
                    f"{pooled.method}; p: Wilcoxon signed rank on log r", how.level, pooled.n_by_cell, test.p,
                    notes=pooled.notes, reason=pooled.reason)


def helped(t: Transfer) -> bool:
    return t.outcome is Outcome.HELPED


def harmed(t: Transfer) -> bool:
    return t.outcome is Outcome.HARMED
