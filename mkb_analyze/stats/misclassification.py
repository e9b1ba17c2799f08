"""Shares and differences corrected for a rater's known errors, with the calibration's own doubt in the interval."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from mkb_analyze.stats.bootstrap import cluster_counts
from mkb_analyze.stats.estimate import Estimate, undefined
from runner.errors import UserError

# below this, the rater's labels hardly depend on the gold label, and dividing by it only makes noise
LEAST_YOUDEN = 0.05
WORST_CONDITION = 1e4
ASSUMED = "assumes that the rater errs alike in every group"


@dataclass(frozen=True)
class Calibration:
    """A rater against gold: `confusion[i, j]` items with gold label i that the rater gave label j, and whose it is."""

    rater: str
    rubric_digest: str
    prompt_digest: str
    labels: tuple[str, ...]
    confusion: np.ndarray

    def __post_init__(self) -> None:
        k = len(self.labels)
        confusion = np.asarray(self.confusion)
        if confusion.shape != (k, k) or np.any(confusion < 0):
            raise ValueError(f"confusion of shape {confusion.shape}: {k} x {k} counts needed, gold in rows")

    def check(self, rater: str, rubric_digest: str, prompt_digest: str) -> None:
        """Refuse labels that another rater, rubric or prompt made."""
        for what in ("rater", "rubric_digest", "prompt_digest"):
            own, other = getattr(self, what), {"rater": rater, "rubric_digest": rubric_digest}.get(what, prompt_digest)
            if own != other:
                raise UserError(
                    f"{what} {other!r}: the calibration is of {own!r}; calibrate this one, or label with that one"
                )


@dataclass(frozen=True)
class Corrected:
    """The same number without and with the correction, side by side."""

    uncorrected: Estimate
    corrected: Estimate


def _gold_draws(confusion: np.ndarray, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """(B, K, K) draws of P(rater j | gold i): Dirichlet with prior 1/K a cell (Jeffreys' 1/2 for yes/no).

    A plain resample of gold where the rater never erred would hold that it never errs; the prior keeps the doubt.
    """
    k = len(confusion)
    draws = np.stack([rng.dirichlet(row + 1 / k, size=resamples) for row in confusion], axis=1)
    return draws


def _study_draws(counts: np.ndarray, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """(B, K) draws of the rater's shares: clusters of counts (G, K) with multiplicity, or one row (K,) by Dirichlet."""
    if counts.ndim == 1:
        return rng.dirichlet(counts + 1 / len(counts), size=resamples)
    sums = cluster_counts(len(counts), resamples, rng, np) @ counts
    with np.errstate(all="ignore"):
        return sums / sums.sum(1, keepdims=True)


def _solve(rates: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Gold shares g with g M = shares, for (..., K, K) rates M and (..., K) shares; not clipped."""
    return np.linalg.solve(np.swapaxes(rates, -1, -2), shares[..., None])[..., 0]


def _clip(shares: np.ndarray) -> np.ndarray:
    """Negative shares to 0 and the rest scaled to sum to 1."""
    kept = np.maximum(shares, 0.0)
    return kept / kept.sum(-1, keepdims=True)


def _checked(confusion: Any, counts: Any) -> tuple[np.ndarray, np.ndarray, str]:
    confusion, counts = np.asarray(confusion, dtype=float), np.asarray(counts, dtype=float)
    k = confusion.shape[0]
    if confusion.shape != (k, k) or counts.shape[-1] != k or np.any(confusion < 0) or np.any(counts < 0):
        raise ValueError(f"shapes {confusion.shape} and {counts.shape}: K x K gold counts and K or G x K study counts")
    reason = ""
    if np.any(confusion.sum(1) == 0):
        reason = "a label has no gold items: the rater's errors on it are unknown"
    elif counts.sum() == 0:
        reason = "no cases in the study"
    else:
        rates = confusion / confusion.sum(1, keepdims=True)
        if (k == 2 and rates[0, 0] + rates[1, 1] - 1 < LEAST_YOUDEN) or np.linalg.cond(rates) > WORST_CONDITION:
            reason = "the rater's labels hardly depend on the gold labels: nothing to invert"
    return confusion, counts, reason


def corrected_shares(
    confusion: Any,
    counts: Any,
    names: Sequence[str],
    resamples: int = 4000,
    rng: np.random.Generator | int = 0,
    level: float = 0.95,
) -> tuple[Corrected, ...]:
    """True shares of K labels from a rater's counts and its K x K confusion (gold in rows), one record a label.

    K = 2 is Rogan & Gladen's (1978) estimate, more labels the matrix inversion (Buonaccorsi 2010). `counts` is (K,) or
    (G, K) per cluster (problem). Intervals are percentiles of joint draws of gold and study. Negative shares are
    clipped to 0, the others scaled, and the record says so.
    """
    confusion, counts, reason = _checked(confusion, counts)
    total = counts if counts.ndim == 1 else counts.sum(0)
    n, n_gold = int(total.sum()), int(confusion.sum())
    cells = {"study": n, "gold": n_gold}
    method = f"{'Rogan-Gladen' if len(names) == 2 else 'matrix inversion'}, joint bootstrap of gold and study"
    plain_method = "as labelled" + (", Dirichlet draws" if counts.ndim == 1 else ", cluster bootstrap")
    rng = np.random.default_rng(rng)
    tails = [(1 - level) / 2, (1 + level) / 2]
    if n == 0:
        none = [undefined(name, "no cases in the study", 0, method, level, cells) for name in names]
        return tuple(Corrected(record, record) for record in none)
    study = _study_draws(counts, resamples, rng)
    plain_low, plain_high = np.nanquantile(study, tails, axis=0)
    plain = [
        Estimate(name, total[j] / n, plain_low[j], plain_high[j], n, plain_method, level, cells)
        for j, name in enumerate(names)
    ]
    if reason:
        return tuple(Corrected(p, undefined(p.name, reason, n, method, level, cells)) for p in plain)
    rates = confusion / confusion.sum(1, keepdims=True)
    raw = _solve(rates, total / n)
    value = _clip(raw)
    notes: tuple[str, ...] = (ASSUMED,)
    if np.any(raw < 0):
        notes += ("a corrected share was below 0 or above 1 and was clipped",)
    draws = _solve(_gold_draws(confusion, resamples, rng), study)
    clipped = float((draws < 0).any(1).mean())
    if clipped > 0.01:
        notes += (f"{100 * clipped:.0f}% of the draws were clipped",)
    low, high = np.nanquantile(_clip(draws), tails, axis=0)
    return tuple(
        Corrected(p, Estimate(p.name, value[j], low[j], high[j], n, method, level, cells, notes=notes))
        for j, p in enumerate(plain)
    )


def corrected_difference(
    confusion: Any,
    counts1: Any,
    counts2: Any,
    name: str = "difference",
    resamples: int = 4000,
    rng: np.random.Generator | int = 0,
    level: float = 0.95,
) -> Corrected:
    """Difference of a yes/no label's share between two groups, corrected by one 2 x 2 confusion (gold no, yes in rows).

    `counts1`, `counts2` are (2,) counts of no, yes, or (G, 2) per cluster; with clusters the same resampled problems
    serve both groups. The correction divides the difference by sensitivity + specificity - 1; each share is clipped to
    [0, 1] first.
    """
    first, second = np.asarray(counts1, dtype=float), np.asarray(counts2, dtype=float)
    if first.ndim != second.ndim or (first.ndim == 2 and len(first) != len(second)):
        raise ValueError("counts: both groups with the same clusters, or both without; give them alike")
    confusion, first, reason = _checked(confusion, first)
    _, second, other = _checked(confusion, second)
    reason = reason or other
    totals = [c if c.ndim == 1 else c.sum(0) for c in (first, second)]
    n1, n2 = (int(t.sum()) for t in totals)
    cells = {"first": n1, "second": n2, "gold": int(confusion.sum())}
    method, n = "Rogan-Gladen difference, joint bootstrap of gold and study", n1 + n2
    if n1 == 0 or n2 == 0:
        none = undefined(name, "no cases in one group", n, method, level, cells)
        return Corrected(none, none)
    rng = np.random.default_rng(rng)
    if first.ndim == 1:
        shares = [_study_draws(c, resamples, rng) for c in (first, second)]
    else:
        weights = cluster_counts(len(first), resamples, rng, np)
        with np.errstate(all="ignore"):
            shares = [(weights @ c) / (weights @ c).sum(1, keepdims=True) for c in (first, second)]
    tails = [(1 - level) / 2, (1 + level) / 2]
    gap = (shares[0] - shares[1])[:, 1]
    low, high = np.nanquantile(gap, tails)
    plain = Estimate(name, totals[0][1] / n1 - totals[1][1] / n2, low, high, n, "as labelled, bootstrap", level, cells)
    if reason:
        return Corrected(plain, undefined(name, reason, n, method, level, cells))
    rates = confusion / confusion.sum(1, keepdims=True)
    raw = [_solve(rates, t / m) for t, m in zip(totals, (n1, n2), strict=True)]
    notes = (ASSUMED,) + (("a corrected share was clipped to [0, 1]",) if min(r.min() for r in raw) < 0 else ())
    gold = _gold_draws(confusion, resamples, rng)
    drawn = [_clip(_solve(gold, s))[:, 1] for s in shares]
    low, high = np.nanquantile(drawn[0] - drawn[1], tails)
    value = _clip(raw[0])[1] - _clip(raw[1])[1]
    return Corrected(plain, Estimate(name, value, low, high, n, method, level, cells, notes=notes))


def gold_labels_needed(
    half_width: float, share: float, sensitivity: float, specificity: float, n_study: int, level: float = 0.95
) -> int | None:
    """Smallest number of gold items, drawn like the study, for a corrected share known to +- `half_width`.

    Delta method: variance = [q(1-q)/n + s^2 Se(1-Se)/(m s) + (1-s)^2 Sp(1-Sp)/(m (1-s))]/(Se + Sp - 1)^2 with m gold
    items of which a share s are positive; None when the study alone is already less certain than that.
    """
    youden = sensitivity + specificity - 1
    if not (0 < share < 1 and youden > LEAST_YOUDEN and half_width > 0 and n_study > 0):
        raise ValueError("share in (0, 1), sensitivity + specificity - 1 above 0.05, half_width and n_study above 0")
    apparent = share * sensitivity + (1 - share) * (1 - specificity)
    allowed = (half_width * youden / stats.norm.ppf(0.5 + level / 2)) ** 2 - apparent * (1 - apparent) / n_study
    if allowed <= 0:
        return None
    per_item = share * sensitivity * (1 - sensitivity) + (1 - share) * specificity * (1 - specificity)
    return max(1, math.ceil(per_item / allowed))
