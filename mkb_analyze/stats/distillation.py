"""How much several notes distilled from one attempt differ: overlap of their categories, variance between them."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from mkb_analyze.stats.bootstrap import Ratio, cluster_bootstrap
from mkb_analyze.stats.estimate import Estimate, undefined


def jaccard(
    categories: Any,
    attempts: Sequence[Any],
    resamples: int = 10_000,
    rng: Any = 0,
    level: float = 0.95,
    name: str = "category Jaccard",
) -> Estimate:
    """Mean overlap |A and B|/|A or B| of the category sets of two notes of one attempt; two empty sets are alike (1).

    `categories` (notes, C) 0/1, `attempts` names each note's attempt. Every pair of notes within an attempt counts
    once; attempts are resampled.
    """
    marks = np.asarray(categories) > 0
    labels, attempt = np.unique(np.asarray(attempts), return_inverse=True)
    total, pairs = np.zeros(len(labels)), np.zeros(len(labels))
    for g in range(len(labels)):
        sets = marks[attempt == g].astype(float)
        both = sets @ sets.T
        size = sets.sum(1)
        either = size[:, None] + size - both
        i, j = np.triu_indices(len(sets), 1)
        overlap = np.where(either[i, j] > 0, both[i, j] / np.maximum(either[i, j], 1), 1.0)
        total[g], pairs[g] = overlap.sum(), len(i)
    keep = pairs > 0
    cells = {"notes": len(marks), "attempts": int(keep.sum()), "pairs": int(pairs.sum())}
    if not keep.any():
        return undefined(name, "no attempt with two notes", 0, "mean over pairs", level, cells)
    ratio = Ratio(name, total[keep], pairs[keep], n=cells["pairs"], n_by_cell=cells)
    return cluster_bootstrap([ratio], resamples, rng, level)[0]


def one_way_icc(values: Sequence[float], groups: Sequence[Any], level: float = 0.95, name: str = "ICC(1)") -> Estimate:
    """Share of the variance of `values` that lies between `groups` (attempts), group sizes may differ.

    One-way analysis of variance with n0 = (N - sum n^2/N)/(k - 1) in place of the common size (Donner 1986); the
    interval is the F interval at n0, exact where sizes are equal. 1 - ICC is the share between notes of one attempt.
    """
    y = np.array([math.nan if v is None else v for v in values], dtype=float)
    known = ~np.isnan(y)
    y = y[known]
    labels, group = np.unique(np.asarray(groups)[known], return_inverse=True)
    n, k, nan = len(y), len(labels), math.nan
    cells = {"values": n, "groups": k}
    method = "one-way ICC, F interval at the mean group size n0"
    if k < 2 or n <= k:
        reason = "fewer than two groups" if k < 2 else "no group with two values"
        return undefined(name, reason, n, method, level, cells)
    size = np.bincount(group).astype(float)
    mean = np.bincount(group, weights=y) / size
    between = float((size * (mean - y.mean()) ** 2).sum()) / (k - 1)
    within = float(((y - mean[group]) ** 2).sum()) / (n - k)
    n0 = float(n - (size**2).sum() / n) / (k - 1)
    if between + within <= 1e-13 * float((y**2).sum()):
        return undefined(name, "every value is the same: no variance to share out", n, method, level, cells)
    icc = (between - within) / (between + (n0 - 1) * within)
    if within <= 1e-13 * between:
        return Estimate(name, icc, nan, nan, n, method, level, cells, reason="no variance within groups: no interval")
    a, f = (1 - level) / 2, between / within
    low = f / stats.f.isf(a, k - 1, n - k)
    high = f * stats.f.isf(a, n - k, k - 1)
    p = float(stats.f.sf(f, k - 1, n - k))
    return Estimate(name, icc, (low - 1) / (low + n0 - 1), (high - 1) / (high + n0 - 1), n, method, level, cells, p)
