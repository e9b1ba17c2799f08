"""Generalised estimating equations for yes/no outcomes in clusters, by the moments of two programs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from mkb_analyze.stats.clustered import inverse_logit, logit_irls, separating
from mkb_analyze.stats.estimate import Estimate


@dataclass(frozen=True)
class GeeFit:
    """Logistic GEE: `coef` with `robust_se` (sandwich) and `naive_se` (model), working correlation `alpha`, scale
    `phi`, Wald p, and the estimates with Wald intervals."""

    names: tuple[str, ...]
    coef: np.ndarray
    robust_se: np.ndarray
    naive_se: np.ndarray
    alpha: float
    phi: float
    p: np.ndarray
    estimates: tuple[Estimate, ...]
    n: int
    n_clusters: int
    converged: bool


def gee_logistic(
    y: Sequence[float],
    x: Any,
    clusters: Sequence[Any],
    names: Sequence[str],
    correlation: str = "exchangeable",
    moments: str = "plain",
    level: float = 0.95,
    tolerance: float = 1e-12,
    max_steps: int = 200,
) -> GeeFit:
    """Liang & Zeger's (1986) GEE with a logit link; clusters need not be contiguous.

    `correlation`: exchangeable or independence. `moments`: "plain" divides the scale by N and the correlation by the
    number of pairs (as geepack does), "adjusted" by N - p and pairs - p (as gee does). With few clusters the sandwich
    is too short: prefer cluster_logistic's CR2.
    """
    if correlation not in ("exchangeable", "independence") or moments not in ("plain", "adjusted"):
        raise ValueError(
            f"correlation={correlation}, moments={moments}: exchangeable or independence, plain or adjusted"
        )
    y = np.array([math.nan if v is None else v for v in y], dtype=float)
    x, known = np.asarray(x, dtype=float), ~np.isnan(y)
    y, x = y[known], x[known]
    groups = np.unique(np.asarray(clusters)[known], return_inverse=True)[1]
    order = np.argsort(groups, kind="stable")
    y, x, groups = y[order], x[order], groups[order]
    n, p = x.shape
    sizes = np.bincount(groups)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    pairs = float((sizes * (sizes - 1) / 2).sum())
    off = p if moments == "adjusted" else 0
    method = f"GEE, {correlation}, {moments} moments; sandwich, Wald"
    if len(sizes) < 2 or np.linalg.matrix_rank(x) < p or separating(y, x).any():
        reason = "fewer than two clusters" if len(sizes) < 2 else "separated, or columns that depend on each other"
        return _no_fit(names, reason, n, len(sizes), method, level)
    coef, _ = logit_irls(y, x)
    alpha, phi, converged = 0.0, 1.0, False

    def weigh(columns: np.ndarray, size: np.ndarray) -> np.ndarray:
        """R^-1 times each cluster's block, R = (1 - alpha) I + alpha J."""
        if alpha == 0:
            return columns
        sums = np.add.reduceat(columns, starts, axis=0)
        share = alpha / (1 + (size - 1) * alpha)
        return (columns - (sums * share[:, None])[groups]) / (1 - alpha)

    for _ in range(max_steps):
        mu = inverse_logit(x @ coef)
        root = np.sqrt(mu * (1 - mu))
        pearson = (y - mu) / root
        phi = float((pearson**2).sum()) / (n - off)
        if correlation == "exchangeable":
            sums = np.add.reduceat(pearson, starts)
            cross = float((sums**2 - np.add.reduceat(pearson**2, starts)).sum()) / 2
            alpha = cross / phi / (pairs - off) if pairs > off else 0.0
        d = x * root[:, None]
        step = np.linalg.solve(d.T @ weigh(d, sizes), d.T @ weigh(pearson[:, None], sizes))[:, 0]
        coef = coef + step
        if np.abs(step).max() < tolerance * max(1.0, np.abs(coef).max()):
            converged = True
            break
    mu = inverse_logit(x @ coef)
    root = np.sqrt(mu * (1 - mu))
    d, pearson = x * root[:, None], (y - mu) / root
    bread = np.linalg.inv(d.T @ weigh(d, sizes))
    scores = np.add.reduceat(d * weigh(pearson[:, None], sizes), starts, axis=0)
    robust = np.sqrt(np.diag(bread @ scores.T @ scores @ bread))
    naive = np.sqrt(phi * np.diag(bread))
    p_values = 2 * stats.norm.sf(np.abs(coef / robust))
    half = stats.norm.ppf(0.5 + level / 2) * robust
    cells, notes = {"clusters": len(sizes)}, () if converged else ("the iterations did not settle",)
    estimates = tuple(
        Estimate(label, c, c - h, c + h, n, method, level, cells, q, notes=notes)
        for label, c, h, q in zip(names, coef, half, p_values, strict=True)
    )
    return GeeFit(tuple(names), coef, robust, naive, alpha, phi, p_values, estimates, n, len(sizes), converged)


def _no_fit(names: Sequence[str], reason: str, n: int, n_clusters: int, method: str, level: float) -> GeeFit:
    nan, nothing = math.nan, np.full(len(names), math.nan)
    estimates = tuple(
        Estimate(label, nan, nan, nan, n, method, level, {"clusters": n_clusters}, reason=reason) for label in names
    )
    return GeeFit(tuple(names), nothing, nothing, nothing, nan, nan, nothing, estimates, n, n_clusters, False)
