"""Exact conditional inference on sums of hypergeometric counts: tails, the conditional odds ratio, its interval."""

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln, logsumexp

# tables whose probability equals the observed one up to this factor count as equally extreme
TIE = 1 + 1e-7
Root = Callable[[Callable[[float], float], float, float], float]


class Conditional:
    """Distribution of S = sum of the upper left cells of 2 x 2 tables with fixed margins and a common odds ratio.

    Per table the cell is noncentral hypergeometric (Fisher 1935); the sum's weights are their convolution.
    `support` holds the reachable sums, `log_weight` the log weights at odds ratio 1, `observed` the seen sum.
    """

    def __init__(self, tables: Sequence[np.ndarray]):
        low, weights, observed = 0, np.zeros(1), 0
        for table in tables:
            (a, b), (c, d) = (tuple(int(v) for v in row) for row in np.asarray(table))
            row, other, column = a + b, c + d, a + c
            first, last = max(0, column - other), min(row, column)
            k = np.arange(first, last + 1)
            log_w = (
                gammaln(row + 1) - gammaln(k + 1) - gammaln(row - k + 1)
                + gammaln(other + 1) - gammaln(column - k + 1) - gammaln(other - column + k + 1)
            )  # fmt: skip
            log_w -= logsumexp(log_w)
            weights = log_w if len(weights) == 1 else _log_convolve(weights, log_w)
            low, observed = low + first, observed + a
        self.support = low + np.arange(len(weights))
        self.log_weight = weights - logsumexp(weights)
        self.observed = observed

    def probabilities(self, odds_ratio: float) -> np.ndarray:
        if odds_ratio == 0:
            return (self.support == self.support[0]).astype(float)
        if math.isinf(odds_ratio):
            return (self.support == self.support[-1]).astype(float)
        log_p = self.log_weight + self.support * math.log(odds_ratio)
        p = np.exp(log_p - log_p.max())
        return p / p.sum()

    def mean(self, odds_ratio: float) -> float:
        return float(self.probabilities(odds_ratio) @ self.support)

    def upper(self, odds_ratio: float) -> float:
        """P(S >= observed)."""
        return float(min(self.probabilities(odds_ratio)[self.support >= self.observed].sum(), 1.0))

    def lower(self, odds_ratio: float) -> float:
        """P(S <= observed)."""
        return float(min(self.probabilities(odds_ratio)[self.support <= self.observed].sum(), 1.0))

    def two_sided(self) -> float:
        """Sum of the probabilities, at odds ratio 1, of all sums no likelier than the one seen."""
        p = self.probabilities(1.0)
        seen = p[self.support == self.observed][0]
        return float(min(p[p <= seen * TIE].sum(), 1.0))

    def mid_p(self) -> float:
        """The two-sided p with the seen probability, and all that tie with it, counted half (Lancaster 1961)."""
        p = self.probabilities(1.0)
        seen = p[self.support == self.observed][0]
        ties = p[(p <= seen * TIE) & (p >= seen / TIE)].sum()
        return float(min(max(p[p <= seen * TIE].sum() - ties / 2, 0.0), 1.0))

    @property
    def carries_nothing(self) -> bool:
        return len(self.support) == 1

    def odds_ratio(self, root: Root | None = None) -> float:
        """Conditional maximum likelihood estimate: the odds ratio at which the mean is the sum seen."""
        if self.carries_nothing:
            return math.nan
        if self.observed == self.support[0]:
            return 0.0
        if self.observed == self.support[-1]:
            return math.inf
        return _solve(lambda t: self.mean(t) - self.observed, root)

    def interval(self, level: float, root: Root | None = None, mid: bool = False) -> tuple[float, float]:
        """Exact limits: each tail holds (1 - level)/2; `mid` counts the seen sum's own probability half in its tail."""
        a = (1 - level) / 2

        def tail(whole: Callable[[float], float], t: float) -> float:
            own = self.probabilities(t)[self.support == self.observed][0] / 2 if mid else 0.0
            return whole(t) - own - a

        low = 0.0 if self.observed == self.support[0] else _solve(lambda t: tail(self.upper, t), root)
        high = math.inf if self.observed == self.support[-1] else _solve(lambda t: tail(self.lower, t), root)
        return low, high


def _log_convolve(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    grid = np.full((len(x), len(x) + len(y) - 1), -np.inf)
    for i, value in enumerate(x):
        grid[i, i : i + len(y)] = value + y
    return logsumexp(grid, axis=0)


def _solve(gap: Callable[[float], float], root: Root | None) -> float:
    """The odds ratio t > 0 where `gap` is zero, looked for in t on (0, 1] or in 1/t on (0, 1].

    `root(f, lower, upper)` finds the zero; the default brackets on the log scale and solves to machine precision.
    """
    at_one = gap(1.0)
    if at_one == 0:
        return 1.0
    if root is not None:
        # a gap that rises with t has its zero below 1 where it is positive at 1, and the other way round
        rises = gap(0.5) < gap(2.0)
        if (at_one > 0) == rises:
            return root(gap, 0.0, 1.0)
        return 1.0 / root(lambda t: gap(1.0 / t), np.finfo(float).eps, 1.0)
    width = 1.0
    while gap(math.exp(-width)) * gap(math.exp(width)) > 0:
        width *= 2
        if width > 600:
            return math.nan
    return math.exp(brentq(lambda u: gap(math.exp(u)), -width, width, xtol=1e-15, rtol=8.9e-16, maxiter=500))
