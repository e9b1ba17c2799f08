"""Krippendorff's alpha with a bootstrap over items that is one matrix product."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mkb_analyze.stats.estimate import Estimate, undefined
from mkb_analyze.stats.ratings import codes, label_counts
from mkb_analyze.stats.resample import bca_levels, below_and_equal, bias

MEASUREMENTS = ("nominal", "ordinal", "interval")


def _distances(totals: np.ndarray, measurement: str, values: np.ndarray | None) -> np.ndarray:
    """(..., q, q) squared distances between labels; `totals` (..., q) are the labels' frequencies (ordinal alone)."""
    q = totals.shape[-1]
    if measurement == "nominal":
        return 1.0 - np.eye(q)
    if measurement == "interval":
        return np.subtract.outer(values, values) ** 2
    # ranks on the mid-point scale: the distance c to k is the sum of frequencies between, ends counted half
    middle = np.cumsum(totals, axis=-1) - totals / 2
    return (middle[..., :, None] - middle[..., None, :]) ** 2


def _alpha(totals: np.ndarray, coincidences: np.ndarray, measurement: str, values: np.ndarray | None) -> np.ndarray:
    """alpha of each row: `totals` (B, q) and `coincidences` (B, q*q); NaN where all pairable values are one label."""
    distance = _distances(totals, measurement, values)
    n = totals.sum(-1)
    if distance.ndim == 2:
        seen = coincidences @ distance.ravel()
        by_chance = np.einsum("bq,bq->b", totals @ distance, totals)
    else:
        seen = np.einsum("bx,bx->b", coincidences, distance.reshape(len(totals), -1))
        by_chance = np.einsum("bq,bqk,bk->b", totals, distance, totals)
    with np.errstate(all="ignore"):
        return np.where(by_chance > 0, 1 - (n - 1) * seen / by_chance, np.nan)


def _patterns(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct rows of items x levels counts and, for each item, which it is."""
    base = int(counts.max(initial=0)) + 1
    if counts.shape[1] * math.log2(max(base, 2)) < 62:
        key = counts @ (base ** np.arange(counts.shape[1], dtype=np.int64))
        _, first, which = np.unique(key, return_index=True, return_inverse=True)
        return counts[first], which
    return np.unique(counts, axis=0, return_inverse=True)


def _parts(patterns: np.ndarray, measurement: str, values: np.ndarray | None) -> np.ndarray:
    """What one item of each pattern adds: q label totals, then its coincidences.

    Distances that do not move with the resample (nominal, interval) fold the q*q coincidences into one number.
    """
    raters = patterns.sum(1)
    within = patterns[:, :, None] * patterns[:, None, :].astype(float)
    q = patterns.shape[1]
    within[:, np.arange(q), np.arange(q)] -= patterns
    within /= (raters - 1)[:, None, None]
    flat = within.reshape(len(patterns), -1)
    if measurement != "ordinal":
        flat = (flat @ _distances(np.zeros(q), measurement, values).ravel())[:, None]
    return np.hstack([patterns.astype(float), flat])


def _alpha_of_parts(sums: np.ndarray, q: int, measurement: str, values: np.ndarray | None) -> np.ndarray:
    totals, rest = sums[:, :q], sums[:, q:]
    if measurement == "ordinal":
        return _alpha(totals, rest, measurement, values)
    distance, n = _distances(np.zeros(q), measurement, values), totals.sum(1)
    by_chance = np.einsum("bq,bq->b", totals @ distance, totals)
    with np.errstate(all="ignore"):
        return np.where(by_chance > 0, 1 - (n - 1) * rest[:, 0] / by_chance, np.nan)


def _acceleration(without: np.ndarray, alike: np.ndarray) -> float:
    """Efron's acceleration from leave-one-unit-out values, each standing for `alike` units; 0 where none moves."""
    known = ~np.isnan(without)
    without, alike = without[known], alike[known]
    gap = np.average(without, weights=alike) - without if len(without) else np.zeros(1)
    spread = float((alike * gap**2).sum()) if len(without) else 0.0
    return float((alike * gap**3).sum()) / (6 * spread**1.5) if spread > 1e-24 else 0.0


def krippendorff_alpha(
    ratings: Any,
    levels: Sequence[Any],
    measurement: str = "nominal",
    resamples: int = 2000,
    rng: np.random.Generator | int = 0,
    clusters: Sequence[Any] | None = None,
    level: float = 0.95,
    name: str = "Krippendorff alpha",
) -> Estimate:
    """Krippendorff's alpha (2011) of items x raters; missing None or NaN; `levels` ordered, numeric for `interval`.

    The interval is the BCa bootstrap that draws items (or `clusters` of items, one label an item: the note that the
    claims come from) with replacement and recomputes observed and expected disagreement. Items with the same
    ratings are one pattern, so that a resample is a multinomial count of patterns and all resamples one product of
    counts with per-pattern coincidences. `resamples=0` leaves the interval out.
    """
    if measurement not in MEASUREMENTS:
        raise ValueError(f"measurement={measurement}: one of {', '.join(MEASUREMENTS)}; choose one")
    levels = list(levels)
    counts = label_counts(codes(ratings, levels), len(levels))
    values = np.asarray(levels, dtype=float) if measurement == "interval" else None
    pairable = counts.sum(1) >= 2
    counts = counts[pairable]
    n, q = len(counts), len(levels)
    n_pairable = int(counts.sum())
    cells = {"items": n, "pairable ratings": n_pairable}
    unit = "items" if clusters is None else "clusters of items"
    method = f"Krippendorff alpha, {measurement}; BCa bootstrap over {unit}, {resamples} resamples"
    if n == 0:
        return undefined(name, "no item has two ratings", 0, method, level, cells)
    patterns, which = _patterns(counts)
    parts = _parts(patterns, measurement, values)
    held = np.bincount(which, minlength=len(patterns))
    estimate = float(_alpha_of_parts(held[None, :].astype(float) @ parts, q, measurement, values)[0])
    if math.isnan(estimate):
        return undefined(name, "every pairable rating has the same label", n, method, level, cells)
    if resamples == 0:
        return Estimate(name, estimate, math.nan, math.nan, n, method, level, cells, reason="no resamples asked for")
    rng = np.random.default_rng(rng)
    if clusters is None:
        n_units, unit_parts, share, alike = n, parts, held / n, held
    else:
        labels, of_item = np.unique(np.asarray(clusters)[pairable], return_inverse=True)
        n_units = len(labels)
        unit_parts = np.zeros((n_units, parts.shape[1]))
        np.add.at(unit_parts, of_item, parts[which])
        share, alike = np.full(n_units, 1 / n_units), np.ones(n_units)
        cells["clusters"] = n_units
    if n_units < 2:
        reason = "one item or cluster: nothing to resample"
        return Estimate(name, estimate, math.nan, math.nan, n, method, level, cells, reason=reason)
    draws = rng.multinomial(n_units, share, size=resamples).astype(float)
    replicates = _alpha_of_parts(draws @ unit_parts, q, measurement, values)
    lost = int(np.isnan(replicates).sum())
    notes = (f"{lost} of {resamples} resamples had one label and were left out",) if lost else ()
    if lost > resamples / 2:
        reason = "most resamples had one label: no interval"
        return Estimate(name, estimate, math.nan, math.nan, n, method, level, cells, notes=notes, reason=reason)
    without = _alpha_of_parts(alike @ unit_parts - unit_parts, q, measurement, values)
    replicates = replicates[~np.isnan(replicates)]
    z0 = bias(*below_and_equal(replicates, estimate), len(replicates))
    at = bca_levels(z0, _acceleration(without, alike), level)
    if np.isnan(at).any():
        at = np.array([(1 - level) / 2, (1 + level) / 2])
        notes += ("perfect or one-sided resamples: plain percentiles",)
    low, high = np.quantile(replicates, at)
    return Estimate(name, estimate, low, high, n, method, level, cells, notes=notes)
