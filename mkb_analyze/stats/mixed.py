"""Logistic regression with a normal random intercept a cluster, by adaptive Gauss-Hermite quadrature."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats
from scipy.optimize import minimize
from scipy.special import expit, log_expit, logsumexp

from mkb_analyze.stats.clustered import logit_irls, separating
from mkb_analyze.stats.estimate import Estimate

# a spread below this many logits is the boundary, as lme4's isSingular has it
SINGULAR_SD = 1e-4


@dataclass(frozen=True)
class MixedFit:
    """`coef` and `se` of the fixed effects (logits, within cluster), `sd_cluster` of the random intercept, the
    marginal log-likelihood, whether the spread sits at zero, and the estimates with Wald intervals."""

    names: tuple[str, ...]
    coef: np.ndarray
    se: np.ndarray
    sd_cluster: float
    log_likelihood: float
    singular: bool
    estimates: tuple[Estimate, ...]
    n: int
    n_clusters: int


class _Marginal:
    """Marginal log-likelihood as a function of (coefficients, spread); an even function of the spread."""

    def __init__(self, y: np.ndarray, x: np.ndarray, groups: np.ndarray, n_points: int):
        order = np.argsort(groups, kind="stable")
        self.sign, self.x, self.groups = (2 * y - 1)[order], x[order], groups[order]
        self.starts = np.flatnonzero(np.diff(self.groups, prepend=-1))
        self.n_groups = len(self.starts)
        nodes, weights = np.polynomial.hermite_e.hermegauss(n_points)
        self.nodes, self.log_weights = nodes, np.log(weights) + nodes**2 / 2
        self.mode = np.zeros(self.n_groups)

    def _sum(self, values: np.ndarray) -> np.ndarray:
        return np.add.reduceat(values, self.starts, axis=0)

    def __call__(self, parameters: np.ndarray) -> float:
        fixed, spread = self.x @ parameters[:-1], parameters[-1]
        u = self.mode if np.all(np.isfinite(self.mode)) else np.zeros(self.n_groups)
        for _ in range(100):
            mu = expit(fixed + spread * u[self.groups])
            slope = spread * self._sum((self.sign > 0) - mu) - u
            curve = spread**2 * self._sum(mu * (1 - mu)) + 1
            step = slope / curve
            u = u + np.clip(step, -2, 2)
            if np.abs(step).max() < 1e-13:
                break
        self.mode = u
        mu = expit(fixed + spread * u[self.groups])
        scale = 1 / np.sqrt(spread**2 * self._sum(mu * (1 - mu)) + 1)
        at = u[:, None] + scale[:, None] * self.nodes
        eta = fixed[:, None] + spread * at[self.groups]
        inside = self._sum(log_expit(self.sign[:, None] * eta)) - at**2 / 2 + self.log_weights
        return float((logsumexp(inside, axis=1) + np.log(scale)).sum()) - self.n_groups / 2 * math.log(2 * math.pi)


def _hessian(f: Any, at: np.ndarray) -> np.ndarray:
    """Central second differences, Richardson-extrapolated once."""
    k = len(at)

    def plain(h: float) -> np.ndarray:
        steps, out = np.eye(k) * h * np.maximum(1.0, np.abs(at)), np.empty((k, k))
        for i in range(k):
            for j in range(i, k):
                value = (
                    f(at + steps[i] + steps[j]) - f(at + steps[i] - steps[j])
                    - f(at - steps[i] + steps[j]) + f(at - steps[i] - steps[j])
                )  # fmt: skip
                out[i, j] = out[j, i] = value / (4 * steps[i, i] * steps[j, j])
        return out

    return (4 * plain(5e-4) - plain(1e-3)) / 3


def mixed_logistic(
    y: Sequence[float],
    x: Any,
    clusters: Sequence[Any],
    names: Sequence[str],
    n_points: int = 25,
    level: float = 0.95,
) -> MixedFit:
    """Maximum likelihood of logit P(y = 1) = x b + sd u_cluster, u standard normal.

    `n_points` of adaptive Gauss-Hermite quadrature (Pinheiro & Bates 1995); 1 is the Laplace approximation. Errors
    come from the observed information of all parameters. Clusters need not be contiguous.
    """
    y = np.array([math.nan if v is None else v for v in y], dtype=float)
    x, known = np.asarray(x, dtype=float), ~np.isnan(y)
    y, x = y[known], x[known]
    groups = np.unique(np.asarray(clusters)[known], return_inverse=True)[1]
    n, p = x.shape
    n_groups = int(groups.max()) + 1 if n else 0
    label = "Laplace" if n_points == 1 else f"adaptive Gauss-Hermite, {n_points} points"
    method = f"mixed logistic, random intercept, {label}; Wald"
    cells, nan = {"clusters": n_groups}, math.nan
    reason = ""
    if n_groups < 2:
        reason = "fewer than two clusters"
    elif np.linalg.matrix_rank(x) < p:
        reason = "the columns do not determine every coefficient"
    elif separating(y, x).any():
        reason = "separated: the data push a coefficient to infinity"
    if reason:
        nothing = np.full(p, nan)
        none = tuple(Estimate(v, nan, nan, nan, n, method, level, cells, reason=reason) for v in names)
        return MixedFit(tuple(names), nothing, nothing, nan, nan, False, none, n, n_groups)
    marginal = _Marginal(y, x, groups, n_points)
    start, _ = logit_irls(y, x)
    best = None
    for spread in (0.3, 1.0, 2.0):
        found = minimize(lambda v: -marginal(v), np.append(start, spread), method="BFGS", options={"gtol": 1e-6})
        if best is None or found.fun < best.fun - 1e-9:
            best = found
    at = np.append(best.x[:-1], abs(best.x[-1]))
    boundary = np.append(start, 0.0)
    singular = at[-1] < SINGULAR_SD or marginal(boundary) >= -best.fun - 1e-9
    if singular:
        at = boundary
    information = -_hessian(marginal, at)
    if singular:
        information = information[:-1, :-1]
    se = np.sqrt(np.diag(np.linalg.inv(information)))[:p]
    coef = at[:-1]
    half = stats.norm.ppf(0.5 + level / 2) * se
    p_values = 2 * stats.norm.sf(np.abs(coef / se))
    notes = ("no spread between clusters beyond chance: the spread sits at zero",) if singular else ()
    estimates = tuple(
        Estimate(v, c, c - h, c + h, n, method, level, cells, q, notes=notes)
        for v, c, h, q in zip(names, coef, half, p_values, strict=True)
    )
    return MixedFit(tuple(names), coef, se, float(at[-1]), marginal(at), bool(singular), estimates, n, n_groups)
