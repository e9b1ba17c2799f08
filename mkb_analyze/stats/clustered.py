"""Linear and logistic regression whose errors hold when cases come in clusters."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import stats
from scipy.optimize import linprog

from mkb_analyze.stats.estimate import Estimate

# R's glm stops where the deviance moves by less than this, relatively
DEVIANCE_STEP = 1e-8
MAX_STEPS = 25


def treatment(values: Sequence[Any], name: str = "category") -> tuple[np.ndarray, tuple[str, ...]]:
    """Design of one factor: an intercept and one 0/1 column a level but the first in sorted order; with their names."""
    values = list(values)
    levels = sorted(set(values))
    columns = [np.ones(len(values))] + [np.array([float(v == level) for v in values]) for level in levels[1:]]
    return np.column_stack(columns), ("(Intercept)", *(f"{name}{level}" for level in levels[1:]))


@dataclass(frozen=True)
class ClusterFit:
    """A regression with `coef` and standard errors by kind in `se`: model, CR0, CR1, CR1S, CR2.

    CR0 is Liang & Zeger's sandwich; CR1 multiplies its variance by G/(G-1); CR1S by G(N-1)/((G-1)(N-p)); CR2 is Bell
    & McCaffrey's. `estimates` hold each coefficient with its CR2 interval and p by t on `df_cr2` (Satterthwaite).
    `separated` names coefficients that the data push to infinity: their estimate is NaN with the reason.
    """

    names: tuple[str, ...]
    coef: np.ndarray
    se: dict[str, np.ndarray]
    df_cr2: np.ndarray
    p_cr2: np.ndarray
    estimates: tuple[Estimate, ...]
    n: int
    n_clusters: int
    log_likelihood: float = math.nan
    converged: bool = True
    separated: tuple[str, ...] = field(default=())


def _checked(y: Any, x: Any, clusters: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    y, x = np.array([math.nan if v is None else v for v in y], dtype=float), np.asarray(x, dtype=float)
    clusters = np.asarray(clusters)
    if not len(y) == len(x) == len(clusters):
        raise ValueError(f"{len(y)} outcomes, {len(x)} rows, {len(clusters)} clusters: equally many needed")
    known = ~np.isnan(y) & ~np.isnan(x).any(1)
    return y[known], x[known], np.unique(clusters[known], return_inverse=True)[1]


def _inverse_root(b: np.ndarray) -> np.ndarray:
    """Symmetric inverse square root, zero on the null space."""
    values, vectors = np.linalg.eigh((b + b.T) / 2)
    keep = values > 1e-12 * max(values.max(initial=0.0), 1e-300)
    return (vectors[:, keep] / np.sqrt(values[keep])) @ vectors[:, keep].T


def cluster_covariances(
    x: np.ndarray, residuals: np.ndarray, weights: np.ndarray, clusters: np.ndarray
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Standard errors by kind, and the Satterthwaite degrees of freedom of CR2.

    Weighted least squares with `weights` W = inverse of the working variances and working `residuals`; for a logistic
    fit W = mu(1 - mu) and residuals (y - mu)/W. CR2 and df follow Pustejovsky & Tipton 2018 with that working model.
    """
    n, p = x.shape
    groups = [np.flatnonzero(clusters == g) for g in range(clusters.max() + 1)]
    n_groups = len(groups)
    bread = np.linalg.pinv((x * weights[:, None]).T @ x)
    scores = np.array([(x[g] * (weights[g] * residuals[g])[:, None]).sum(0) for g in groups])
    cr0 = bread @ scores.T @ scores @ bread
    ratio = n_groups / (n_groups - 1) if n_groups > 1 else math.nan
    stata = ratio * (n - 1) / (n - p) if n > p else math.nan
    adjusted = np.zeros((n_groups, p))
    pull = np.zeros((p, n_groups, n))
    hat_right = bread @ (x * weights[:, None]).T
    for k, g in enumerate(groups):
        w, root = weights[g], 1 / np.sqrt(weights[g])
        # variance of the residuals under the working model: (I - H) Phi (I - H)' = Phi - X bread X'
        spread = np.diag(1 / w) - x[g] @ bread @ x[g].T
        adjust = root[:, None] * _inverse_root(root[:, None] * spread * root) * root
        adjusted[k] = (x[g] * w[:, None]).T @ (adjust @ residuals[g])
        left = bread @ (x[g] * w[:, None]).T @ adjust
        part = -(left @ x[g]) @ hat_right
        part[:, g] += left
        pull[:, k] = part
    cr2 = bread @ adjusted.T @ adjusted @ bread
    df = np.empty(p)
    for j in range(p):
        omega = (pull[j] / weights) @ pull[j].T
        size = float((omega**2).sum())
        df[j] = np.trace(omega) ** 2 / size if size > 0 else math.nan
    diagonal = {"CR0": cr0, "CR1": ratio * cr0, "CR1S": stata * cr0, "CR2": cr2}
    return {kind: np.sqrt(np.diag(v)) for kind, v in diagonal.items()}, df


def _finished(names, coef, se, df, n, n_clusters, method, level, separated, what) -> dict[str, Any]:
    estimates, p_values = [], np.full(len(coef), math.nan)
    cells = {"clusters": n_clusters}
    for j, label in enumerate(names):
        if label in separated or what:
            reason = what or "separated: the data push this coefficient to infinity"
            estimates.append(Estimate(label, math.nan, math.nan, math.nan, n, method, level, cells, reason=reason))
            continue
        t = coef[j] / se["CR2"][j] if se["CR2"][j] > 0 else math.nan
        if math.isnan(t):
            estimates.append(
                Estimate(label, coef[j], math.nan, math.nan, n, method, level, cells, reason="no spread over clusters")
            )
            continue
        half = stats.t.ppf(0.5 + level / 2, df[j]) * se["CR2"][j]
        p_values[j] = 2 * stats.t.sf(abs(t), df[j])
        estimates.append(Estimate(label, coef[j], coef[j] - half, coef[j] + half, n, method, level, cells, p_values[j]))
    return {"estimates": tuple(estimates), "p_cr2": p_values}


def cluster_linear(
    y: Sequence[float], x: Any, clusters: Sequence[Any], names: Sequence[str], level: float = 0.95
) -> ClusterFit:
    """Least squares of y on the columns of x, with cluster-robust errors; rows with a missing y are dropped."""
    y, x, groups = _checked(y, x, clusters)
    n, p = x.shape
    n_groups = int(groups.max()) + 1 if n else 0
    method = "least squares; CR2 with Satterthwaite t"
    if n_groups < 2 or np.linalg.matrix_rank(x) < p or n <= p:
        return _no_fit(names, n, n_groups, method, level)
    coef = np.linalg.lstsq(x, y, rcond=None)[0]
    residuals = y - x @ coef
    se, df = cluster_covariances(x, residuals, np.ones(n), groups)
    variance = residuals @ residuals / (n - p)
    se["model"] = np.sqrt(variance * np.diag(np.linalg.inv(x.T @ x)))
    log_likelihood = -n / 2 * (math.log(2 * math.pi * (residuals @ residuals) / n) + 1) if variance > 0 else math.inf
    rest = _finished(names, coef, se, df, n, n_groups, method, level, (), "")
    return ClusterFit(tuple(names), coef, se, df, n=n, n_clusters=n_groups, log_likelihood=log_likelihood, **rest)


def _no_fit(names: Sequence[str], n: int, n_groups: int, method: str, level: float) -> ClusterFit:
    reason = "fewer than two clusters" if n_groups < 2 else "the columns do not determine every coefficient"
    nothing = np.full(len(names), math.nan)
    se = dict.fromkeys(("model", "CR0", "CR1", "CR1S", "CR2"), nothing)
    rest = _finished(names, nothing, se, nothing, n, n_groups, method, level, (), reason)
    return ClusterFit(tuple(names), nothing, se, nothing, n=n, n_clusters=n_groups, converged=False, **rest)


def inverse_logit(eta: np.ndarray) -> np.ndarray:
    """1/(1 + exp(-eta)), kept one machine epsilon away from 0 and 1 beyond |eta| = 30."""
    odds = np.exp(np.clip(eta, -30, 30))
    eps = np.finfo(float).eps
    odds = np.where(eta < -30, eps, np.where(eta > 30, 1 / eps, odds))
    return odds / (1 + odds)


def logit_irls(y: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, bool]:
    """Logistic coefficients by iterated weighted least squares with R's start and stopping rule; and whether it
    stopped by the rule."""
    mu = (y + 0.5) / 2
    eta = np.log(mu / (1 - mu))
    deviance, coef = math.inf, np.zeros(x.shape[1])
    for step in range(MAX_STEPS):
        weights = np.maximum(mu * (1 - mu), np.finfo(float).eps)
        root = np.sqrt(weights)
        coef = np.linalg.lstsq(x * root[:, None], (eta + (y - mu) / weights) * root, rcond=1e-13)[0]
        eta = x @ coef
        mu = inverse_logit(eta)
        last, deviance = deviance, -2 * float(np.log(np.where(y > 0, mu, 1 - mu)).sum())
        if step and abs(deviance - last) / (abs(deviance) + 0.1) < DEVIANCE_STEP:
            return coef, True
    return coef, False


def separating(y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Which coefficients a direction that separates y moves (Konis 2007): a linear programme with optimum 0 if none."""
    signed = x * (2 * y - 1)[:, None]
    rows, weight = np.unique(signed, axis=0, return_counts=True)
    found = linprog(-(weight @ rows), A_ub=-rows, b_ub=np.zeros(len(rows)), bounds=[(-1, 1)] * x.shape[1])
    if not found.success or -found.fun < 1e-7:
        return np.zeros(x.shape[1], dtype=bool)
    return np.abs(found.x) > 1e-7


def cluster_logistic(
    y: Sequence[float], x: Any, clusters: Sequence[Any], names: Sequence[str], level: float = 0.95
) -> ClusterFit:
    """Logistic regression of y (0/1) on the columns of x with cluster-robust errors.

    Separation is found by linear programming, not from the fit (which converges happily); `coef` then holds where the
    iterations stopped and the separated coefficients' estimates are NaN.
    """
    y, x, groups = _checked(y, x, clusters)
    if np.any((y != 0) & (y != 1)):
        raise ValueError("y: a logistic outcome is 0 or 1; code it so")
    n, p = x.shape
    n_groups = int(groups.max()) + 1 if n else 0
    method = "logistic; CR2 with Satterthwaite t"
    if n_groups < 2 or np.linalg.matrix_rank(x) < p:
        return _no_fit(names, n, n_groups, method, level)
    away = separating(y, x)
    separated = tuple(label for label, gone in zip(names, away, strict=True) if gone)
    coef, converged = logit_irls(y, x)
    mu = inverse_logit(x @ coef)
    weights = mu * (1 - mu)
    # separated cases carry no information: what is left of their weight is rounding error
    usable = weights > 1e-7 if away.any() else np.ones(n, dtype=bool)
    se, df = dict.fromkeys(("CR0", "CR1", "CR1S", "CR2"), np.full(p, math.nan)), np.full(p, math.nan)
    if usable.any():
        kept = np.unique(groups[usable], return_inverse=True)[1]
        se, df = cluster_covariances(x[usable], ((y - mu) / weights)[usable], weights[usable], kept)
    se["model"] = np.sqrt(np.diag(np.linalg.pinv((x * weights[:, None]).T @ x)))
    log_likelihood = float(np.log(np.where(y > 0, mu, 1 - mu)).sum())
    rest = _finished(names, coef, se, df, n, n_groups, method, level, separated, "")
    return ClusterFit(
        tuple(names), coef, se, df, n=n, n_clusters=n_groups, log_likelihood=log_likelihood, converged=converged,
        separated=separated, **rest,
    )  # fmt: skip
