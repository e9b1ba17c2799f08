"""How much data a difference needs, by simulation under the clustering that was seen."""

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from mkb_analyze.stats.difference import cluster_difference_p
from mkb_analyze.stats.estimate import Estimate
from mkb_analyze.stats.rates import wilson


@dataclass(frozen=True)
class Design:
    """Two groups of yes/no outcomes on the same clusters.

    `n_clusters` problems with `per_cluster` transfers each, a share `first_share` of them (at random) in the first
    group; outcome shares `p1` and `p2`; intracluster correlation `icc` (beta-binomial, one effect a problem for both
    groups); the rater sees a yes with `sensitivity` and a no with `specificity`.
    """

    n_clusters: int
    per_cluster: int
    p1: float
    p2: float
    icc: float = 0.1
    first_share: float = 0.5
    sensitivity: float = 1.0
    specificity: float = 1.0

    def __post_init__(self) -> None:
        shares = (self.p1, self.p2, self.first_share, self.sensitivity, self.specificity)
        if any(not 0 <= v <= 1 for v in shares) or not 0 <= self.icc < 1:
            raise ValueError("shares, sensitivity, specificity in [0, 1] and icc in [0, 1); mend the design")
        if self.n_clusters < 2 or self.per_cluster < 1:
            raise ValueError("n_clusters at least 2 and per_cluster at least 1; enlarge the design")


def _cluster_shares(p: float, icc: float, uniform: np.ndarray) -> np.ndarray:
    """Each cluster's share: the beta quantile with mean p and intracluster correlation icc at a common uniform."""
    if icc == 0 or p in (0.0, 1.0):
        return np.full(uniform.shape, p)
    size = (1 - icc) / icc
    grid = np.linspace(0, 1, 2001)
    return np.interp(uniform, grid, stats.beta.ppf(grid, p * size, (1 - p) * size))


def simulate_counts(design: Design, repeats: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Yes and all counts of both groups, four arrays of (repeats, n_clusters)."""
    shape = (repeats, design.n_clusters)
    uniform = rng.random(shape)
    n1 = rng.binomial(design.per_cluster, design.first_share, shape)
    n2 = design.per_cluster - n1
    out = []
    for n, p in ((n1, design.p1), (n2, design.p2)):
        true = _cluster_shares(p, design.icc, uniform)
        seen = true * design.sensitivity + (1 - true) * (1 - design.specificity)
        out += [rng.binomial(n, seen), n]
    return tuple(out)


def power(
    design: Design,
    alpha: float = 0.05,
    repeats: int = 2000,
    rng: np.random.Generator | int = 0,
    level: float = 0.95,
    name: str = "power",
) -> Estimate:
    """Share of simulated studies whose cluster-robust test of p1 - p2 gives p < alpha, with Wilson's interval."""
    rng = np.random.default_rng(rng)
    found = int((cluster_difference_p(*simulate_counts(design, repeats, rng)) < alpha).sum())
    share = wilson(found, repeats, level, name)
    cells = {"problems": design.n_clusters, "transfers": design.n_clusters * design.per_cluster}
    method = f"simulation of {repeats} studies, cluster-robust score test, alpha {alpha}; Wilson"
    return Estimate(name, share.estimate, share.low, share.high, repeats, method, level, cells)


@dataclass(frozen=True)
class Needed:
    """The smallest design found with the power asked for, that power, and every design tried on the way."""

    n_problems: int | None
    n_transfers: int | None
    power: Estimate
    tried: tuple[Estimate, ...]


def problems_needed(
    design: Design,
    target: float = 0.8,
    alpha: float = 0.05,
    repeats: int = 2000,
    rng: np.random.Generator | int = 0,
    most: int = 20_000,
) -> Needed:
    """Smallest number of problems (with the design's transfers each) whose power reaches `target`, by bisection.

    Each size is simulated with its own stream of the seed, so that the answer does not depend on the path. The size is
    known to about 1%: bisection stops there, as the simulated power is noise below it.
    """
    seed = int(np.random.default_rng(rng).integers(2**63))
    tried: dict[int, Estimate] = {}

    def at(n: int) -> Estimate:
        if n not in tried:
            sized = Design(**{**design.__dict__, "n_clusters": n})
            tried[n] = power(sized, alpha, repeats, np.random.default_rng([seed, n]))
        return tried[n]

    low, high = 2, max(4, design.n_clusters)
    while at(high).estimate < target:
        low, high = high, high * 2
        if high > most:
            return Needed(None, None, at(low), tuple(tried.values()))
    while high - low > max(1, math.ceil(high / 100)):
        middle = (low + high) // 2
        low, high = (low, middle) if at(middle).estimate >= target else (middle, high)
    return Needed(high, high * design.per_cluster, at(high), tuple(tried.values()))
