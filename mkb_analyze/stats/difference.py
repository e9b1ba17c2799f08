"""Whether two groups of yes/no outcomes differ when the cases come in clusters that serve both."""

import numpy as np
from scipy import stats

from mkb_analyze.stats.estimate import HypothesisTest, untested


def cluster_difference_p(x1: np.ndarray, n1: np.ndarray, x2: np.ndarray, n2: np.ndarray) -> np.ndarray:
    """Two-sided p of equal shares for each row of (..., G) yes counts x and case counts n of two groups.

    Score form: with p the pooled share, r_g = (x1g - p n1g)/N1 - (x2g - p n2g)/N2, t = sum r_g / sqrt(sum r_g^2) on
    G - 1 df (Boos 1992's generalised score test for a difference of ratio means). It keeps its level in the far tail
    that multiplicity needs, where the Wald form rejects up to twice too often. A row without cases in a group, or
    without spread, gets p = 1.
    """
    x1, n1, x2, n2 = (np.asarray(v, dtype=float) for v in (x1, n1, x2, n2))
    with np.errstate(all="ignore"):
        total1, total2 = n1.sum(-1, keepdims=True), n2.sum(-1, keepdims=True)
        pooled = (x1 + x2).sum(-1, keepdims=True) / (total1 + total2)
        pull = (x1 - pooled * n1) / total1 - (x2 - pooled * n2) / total2
        t = pull.sum(-1) / np.sqrt((pull**2).sum(-1))
    p = 2 * stats.t.sf(np.abs(t), x1.shape[-1] - 1)
    return np.where(np.isnan(p), 1.0, p)


def cluster_difference(
    x1: np.ndarray, n1: np.ndarray, x2: np.ndarray, n2: np.ndarray, name: str = "difference"
) -> HypothesisTest:
    """The test of one table: per-cluster (problem) yes counts and case counts of two groups, each (G,)."""
    x1, n1, x2, n2 = (np.asarray(v, dtype=float) for v in (x1, n1, x2, n2))
    if np.any(x1 > n1) or np.any(x2 > n2) or min(v.min(initial=0) for v in (x1, x2)) < 0:
        raise ValueError("x1, x2: a count lies between 0 and its total in every cluster; count the cases again")
    used = (n1 + n2) > 0
    x1, n1, x2, n2 = x1[used], n1[used], x2[used], n2[used]
    n, method = int(n1.sum() + n2.sum()), "cluster-robust score test, t on clusters - 1"
    cells = {"first": int(n1.sum()), "second": int(n2.sum()), "clusters": len(n1)}
    if cells["first"] == 0 or cells["second"] == 0:
        return untested(name, "no cases in one group", n, method, cells)
    if len(n1) < 2:
        return untested(name, "fewer than two clusters", n, method, cells)
    if (x1 + x2).sum() in (0, n):
        return untested(name, "every case has the same answer", n, method, cells)
    p = float(cluster_difference_p(x1, n1, x2, n2))
    t = float(np.copysign(stats.t.isf(p / 2, len(n1) - 1), x1.sum() / n1.sum() - x2.sum() / n2.sum()))
    return HypothesisTest(name, t, p, n, method, len(n1) - 1, cells)
