"""How claims spread over generations of notes: new carriers per carrier."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from mkb_analyze.stats.estimate import Estimate, undefined


def reproduction_number(
    carriers: Sequence[int],
    new_carriers: Sequence[int],
    chains: Sequence[Any],
    generations: Sequence[int] | None = None,
    level: float = 0.95,
    name: str = "reproduction number",
) -> tuple[Estimate, ...]:
    """New carriers per carrier, pooled and then for each of `generations`: sum of new over sum of carriers.

    One row a generation of a chain: how many notes carried the claim, and how many of the next generation's notes
    took it from them. Chains are independent, their generations are not: the interval is t on the log ratio with the
    jackknife over chains. Above 1 the claim spreads, below 1 it dies out; p is against 1.
    """
    carriers, new = np.asarray(carriers, dtype=float), np.asarray(new_carriers, dtype=float)
    if np.any(carriers < 0) or np.any(new < 0):
        raise ValueError("carriers: counts of notes, 0 or more; count them again")
    labels, chain = np.unique(np.asarray(chains), return_inverse=True)

    def part(label: str, keep: np.ndarray) -> Estimate:
        old = np.bincount(chain[keep], weights=carriers[keep], minlength=len(labels))
        fresh = np.bincount(chain[keep], weights=new[keep], minlength=len(labels))
        return _log_ratio(fresh[old > 0], old[old > 0], level, label)

    out = [part(name, np.ones(len(carriers), dtype=bool))]
    if generations is not None:
        at = np.asarray(generations)
        out += [part(f"{name}, generation {g}", at == g) for g in np.unique(at)]
    return tuple(out)


def _log_ratio(new: np.ndarray, carriers: np.ndarray, level: float, name: str) -> Estimate:
    n_chains, n, nan = len(carriers), int(carriers.sum()), math.nan
    cells = {"chains": n_chains, "carriers": n, "new carriers": int(new.sum())}
    method = "ratio of sums; t on the log with the jackknife over chains"
    if n == 0:
        return undefined(name, "no carriers", 0, method, level, cells)
    ratio = float(new.sum() / n)
    if n_chains < 2:
        return Estimate(name, ratio, nan, nan, n, method, level, cells, reason="one chain: no interval")
    left = new.sum() - new
    if np.any(left <= 0):
        reason = "no new carriers" if new.sum() == 0 else "one chain holds every new carrier"
        return Estimate(name, ratio, nan, nan, n, method, level, cells, reason=f"{reason}: no interval")
    logs = np.log(left / (n - carriers))
    se = math.sqrt((n_chains - 1) / n_chains * float(((logs - logs.mean()) ** 2).sum()))
    if se < 1e-12:
        reason = "every chain spreads alike: no spread to judge by"
        return Estimate(name, ratio, nan, nan, n, method, level, cells, reason=reason)
    half = float(stats.t.ppf(0.5 + level / 2, n_chains - 1)) * se
    p = float(2 * stats.t.sf(abs(math.log(ratio)) / se, n_chains - 1))
    return Estimate(name, ratio, ratio * math.exp(-half), ratio * math.exp(half), n, method, level, cells, p)
