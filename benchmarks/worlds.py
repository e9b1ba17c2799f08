"""Simulated studies with known truth, as large as the published one, for the coverage of every interval."""

import numpy as np
from scipy import stats

N_GROUPS, N_PROBLEMS = 12, 74
# a problem that is hard in one direction is hard in others: intracluster correlation of outcomes
ICC = 0.10


def beta_shares(p: float, icc: float, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Clusters' own shares with mean p and intracluster correlation icc."""
    size = (1 - icc) / icc
    return rng.beta(p * size, (1 - p) * size, shape)


def pooled_yes(p: float, rng: np.random.Generator, n_groups: int = N_GROUPS, icc: float = ICC) -> np.ndarray:
    """(problems,) counts of yes among `n_groups` transfers of each problem."""
    return rng.binomial(n_groups, beta_shares(p, icc, rng, (N_PROBLEMS,)))


class Lift:
    """Log paired ratios: half neutral at zero, the rest heavy-tailed, clipped to +- log 16, with a problem effect."""

    def __init__(self) -> None:
        self.truth = float(self.draw(np.random.default_rng(7), 40_000).mean())

    @staticmethod
    def draw(rng: np.random.Generator, n_problems: int = N_PROBLEMS, n_groups: int = N_GROUPS) -> np.ndarray:
        """(problems, groups) logs."""
        effect = rng.normal(0.05, 0.15, (n_problems, 1))
        noise = rng.standard_t(3, (n_problems, n_groups)) * 0.35
        moved = rng.random((n_problems, n_groups)) < 0.5
        return np.where(moved, np.clip(effect + noise, -np.log(16), np.log(16)), 0.0)


def categories(
    rng: np.random.Generator, p_harmed: float, p_helped: float, icc: float = ICC, n_groups: int = N_GROUPS
) -> tuple[np.ndarray, ...]:
    """(problems, groups) harmed, helped and whether the note shows the category; both depend on the problem."""
    shape = (N_PROBLEMS, n_groups)
    side = rng.random(shape)
    lean = beta_shares(0.18, 0.05, rng, (N_PROBLEMS, 1))
    harmed, helped = side < lean, side > 1 - 0.31
    uniform = rng.random((N_PROBLEMS, 1))

    if p_harmed == p_helped:
        share = beta_shares(p_helped, icc, rng, uniform.shape) if icc else p_helped
        return harmed, helped, rng.random(shape) < share

    def shown(p: float) -> np.ndarray:
        size = (1 - icc) / icc if icc else np.inf
        share = np.full(uniform.shape, p) if icc == 0 else stats.beta.ppf(uniform, p * size, (1 - p) * size)
        return rng.random(shape) < share

    marks = np.where(harmed, shown(p_harmed), shown(p_helped))
    return harmed, helped, marks


class Raters:
    """Three raters of n claims on q labels: a hidden label, kept with probability `accuracy`, else drawn anew."""

    def __init__(self, n: int, q: int = 11, accuracy: float = 0.8, n_raters: int = 3, skew: float = 0.5):
        share = 1 / np.arange(1, q + 1) ** skew
        self.n, self.q, self.accuracy, self.n_raters = n, q, accuracy, n_raters
        self.share = share / share.sum()

    def draw(self, rng: np.random.Generator, n: int | None = None) -> np.ndarray:
        n = n or self.n
        gold = rng.choice(self.q, n, p=self.share)
        guess = rng.choice(self.q, (n, self.n_raters), p=self.share)
        return np.where(rng.random((n, self.n_raters)) < self.accuracy, gold[:, None], guess)


def claim_lives(rng: np.random.Generator, n: int, hazard: float = 0.35, last: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Generations survived, geometric, with uniform censoring; and whether the end was seen."""
    life, end = rng.geometric(hazard, n), rng.integers(1, last + 1, n)
    return np.minimum(life, end), (life <= end).astype(int)
