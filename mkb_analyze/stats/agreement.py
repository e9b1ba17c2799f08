"""Agreement of raters beyond chance: Cohen, Fleiss, Gwet's AC1 and the raw share, missing ratings respected."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from mkb_analyze.stats.estimate import Estimate
from mkb_analyze.stats.ratings import codes, label_counts

ONE_LABEL = "every rating has the same label: chance agreement is certain"


@dataclass(frozen=True)
class Coefficient:
    """A chance-corrected coefficient with its standard error, the observed share and the share expected by chance."""

    value: Estimate
    se: float
    observed: float
    chance: float


def _interval(value: float, se: float, level: float, df: float) -> tuple[float, float]:
    """Symmetric on Fisher's z where |value| < 1, so that the limits stay in [-1, 1]; t with `df`."""
    if math.isnan(se) or math.isnan(value):
        return math.nan, math.nan
    if abs(value) >= 1 or se == 0:
        return value, value
    half = stats.t.ppf(0.5 + level / 2, df) * se / (1 - value * value)
    centre = math.atanh(value)
    return math.tanh(centre - half), math.tanh(centre + half)


def _coefficient(
    name: str, value: float, se: float, observed: float, chance: float, n: int, method: str, level: float, reason: str
) -> Coefficient:
    low, high = _interval(value, se, level, max(n - 1, 1))
    notes = ("the sample shows no spread: the interval has no width",) if se == 0 else ()
    if not reason and math.isnan(se):
        reason = "one item: no interval"
    return Coefficient(
        Estimate(name, value, low, high, n, method, level, notes=notes, reason=reason), se, observed, chance
    )


def weight_matrix(n_levels: int, weights: str) -> np.ndarray:
    """Agreement weights: 1 on the diagonal; `linear` 1 - d/(q - 1), `quadratic` 1 - (d/(q - 1))^2 in rank steps d."""
    step = np.abs(np.subtract.outer(np.arange(n_levels), np.arange(n_levels))).astype(float)
    if weights == "unweighted":
        return (step == 0).astype(float)
    if weights not in ("linear", "quadratic"):
        raise ValueError(f"weights={weights}: unweighted, linear or quadratic; choose one")
    share = step / max(n_levels - 1, 1)
    return 1 - (share if weights == "linear" else share**2)


def cohen_kappa(
    a: Sequence[Any],
    b: Sequence[Any],
    levels: Sequence[Any],
    weights: str = "unweighted",
    level: float = 0.95,
    name: str = "Cohen kappa",
) -> Coefficient:
    """Cohen's kappa of two raters (1960; weighted 1968) with the standard error of Fleiss, Cohen & Everitt (1969).

    Items that one rater left out are dropped. Unused `levels` count: they space the weights. The observed share is
    the unweighted one.
    """
    first, second = codes(a, levels), codes(b, levels)
    both = (first >= 0) & (second >= 0)
    n, q = int(both.sum()), len(levels)
    method = f"Cohen kappa, {weights}; Fleiss-Cohen-Everitt standard error, Fisher z"
    nan = math.nan
    if n == 0:
        return _coefficient(name, nan, nan, nan, nan, 0, method, level, "no item rated by both")
    share = np.bincount(first[both] * q + second[both], minlength=q * q).reshape(q, q) / n
    row, column, w = share.sum(1), share.sum(0), weight_matrix(q, weights)
    agree, chance = float((w * share).sum()), float(row @ w @ column)
    observed = float(np.trace(share))
    if 1 - chance < 1e-14:
        return _coefficient(name, nan, nan, observed, chance, n, method, level, ONE_LABEL)
    kappa = (agree - chance) / (1 - chance)
    spread = w - (1 - kappa) * np.add.outer(w @ column, row @ w)
    first_term = float((share * spread**2).sum())
    second_term = (kappa - chance * (1 - kappa)) ** 2
    variance = first_term - second_term
    # where every cell pulls the same way the two terms cancel and floating point leaves 1e-17
    if variance < 1e-13 * max(first_term, second_term, 1e-300):
        variance = 0.0
    se = math.sqrt(variance / n) / (1 - chance)
    return _coefficient(name, kappa, se, observed, chance, n, method, level, "")


@dataclass(frozen=True)
class MultiLabel:
    """Agreement on many yes/no labels of the same items: one kappa a label, their mean over the defined, the share of
    items with identical sets, and the kappa of all cells pooled."""

    per_label: tuple[Coefficient, ...]
    macro_kappa: float
    n_undefined: int
    exact_set_match: float
    pooled_kappa: Coefficient


def cohen_multilabel(
    rater1: Sequence[Sequence[int]],
    rater2: Sequence[Sequence[int]],
    names: Sequence[str] | None = None,
    level: float = 0.95,
) -> MultiLabel:
    """Cohen's kappa for each column of two items x labels tables of 0/1 (None or NaN: not rated)."""
    first, second = codes(rater1, (0, 1)), codes(rater2, (0, 1))
    if first.shape != second.shape or first.ndim != 2:
        raise ValueError(f"shapes {first.shape} and {second.shape}: two equal items x labels tables needed")
    names = [f"label {j + 1}" for j in range(first.shape[1])] if names is None else list(names)

    def kappa(x: np.ndarray, y: np.ndarray, name: str) -> Coefficient:
        return cohen_kappa(
            np.where(x < 0, np.nan, x).tolist(), np.where(y < 0, np.nan, y).tolist(), (0, 1), level=level, name=name
        )

    columns = tuple(kappa(first[:, j], second[:, j], names[j]) for j in range(first.shape[1]))
    values = np.array([c.value.estimate for c in columns])
    known = ~np.isnan(values)
    whole = ((first >= 0) & (second >= 0)).all(1)
    match = float((first == second)[whole].all(1).mean()) if whole.any() else math.nan
    macro = float(values[known].mean()) if known.any() else math.nan
    return MultiLabel(columns, macro, int((~known).sum()), match, kappa(first.ravel(), second.ravel(), "pooled"))


@dataclass(frozen=True)
class Fleiss:
    """Fleiss' kappa: the coefficient, its standard error and z under no agreement beyond chance, and one a category."""

    kappa: Coefficient
    se_null: float
    z: float
    per_category: np.ndarray
    n_raters: float


def fleiss_kappa(counts: Sequence[Sequence[int]], level: float = 0.95, name: str = "Fleiss kappa") -> Fleiss:
    """Fleiss' kappa from items x categories counts of raters (Fleiss 1971; null error Fleiss, Nee & Landis 1979).

    Items with unequal numbers of raters take the general form (Gwet 2014); null error, z and the categories' kappas
    then stay undefined. The interval uses the error that holds when raters do agree, over items.
    """
    table = np.asarray(counts, dtype=float)
    raters = table.sum(1)
    method = "Fleiss kappa; Gwet's standard error over items, Fisher z"
    general = _over_items(table, "fleiss", name, method, level)
    n, nan = len(table), math.nan
    undefined = np.full(table.shape[1], nan)
    if n == 0 or np.any(raters != raters[0]) or raters[0] < 2:
        return Fleiss(general, nan, nan, undefined, nan if n == 0 or np.any(raters != raters[0]) else float(raters[0]))
    m = float(raters[0])
    p = table.sum(0) / (n * m)
    pq = p * (1 - p)
    with np.errstate(all="ignore"):
        per_category = 1 - (table * (m - table)).sum(0) / (n * m * (m - 1) * pq)
        inside = pq.sum() ** 2 - (pq * (1 - 2 * p)).sum()
        se_null = float(np.sqrt(2 / (n * m * (m - 1))) * np.sqrt(max(inside, 0.0)) / pq.sum()) if pq.sum() else nan
        z = general.value.estimate / se_null if se_null else nan
    return Fleiss(general, se_null, z, np.where(pq > 0, per_category, nan), m)


def fleiss_general(ratings: Any, levels: Sequence[Any], level: float = 0.95, name: str = "Fleiss kappa") -> Coefficient:
    """Fleiss' kappa from items x raters with missing ratings (Gwet 2014, sec. 2.5)."""
    counts = label_counts(codes(ratings, levels), len(list(levels))).astype(float)
    return _over_items(counts, "fleiss", name, "Fleiss kappa, unequal raters; Gwet's standard error, Fisher z", level)


def gwet_ac1(ratings: Any, levels: Sequence[Any], level: float = 0.95, name: str = "Gwet AC1") -> Coefficient:
    """Gwet's AC1 (2008) from items x raters with missing ratings; `levels` must hold all q labels, seen or not."""
    counts = label_counts(codes(ratings, levels), len(list(levels))).astype(float)
    return _over_items(counts, "ac1", name, "Gwet AC1; Gwet's standard error over items, Fisher z", level)


def _over_items(counts: np.ndarray, kind: str, name: str, method: str, level: float) -> Coefficient:
    """Fleiss' kappa or AC1 from items x levels counts: observed over items with two ratings, chance over all rated."""
    nan = math.nan
    raters = counts.sum(1)
    counts, raters = counts[raters > 0], raters[raters > 0]
    n, q, paired = len(counts), counts.shape[1], raters >= 2
    n_paired = int(paired.sum())
    if n == 0:
        return _coefficient(name, nan, nan, nan, nan, 0, method, level, "no ratings")
    share = counts / raters[:, None]
    prevalence = share.mean(0)
    if kind == "ac1":
        if q < 2:
            return _coefficient(name, nan, nan, nan, nan, n, method, level, "one possible label: nothing to agree on")
        chance = float((prevalence * (1 - prevalence)).sum()) / (q - 1)
        chance_item = (share * (1 - prevalence)).sum(1) / (q - 1)
    else:
        chance = float((prevalence**2).sum())
        chance_item = (share * prevalence).sum(1)
    if n_paired == 0:
        return _coefficient(name, nan, nan, nan, chance, n, method, level, "no item has two ratings")
    agree = np.zeros(n)
    agree[paired] = (counts * (counts - 1)).sum(1)[paired] / (raters * (raters - 1))[paired]
    observed = float(agree[paired].mean())
    if 1 - chance < 1e-14:
        return _coefficient(name, nan, nan, observed, chance, n, method, level, ONE_LABEL)
    value = (observed - chance) / (1 - chance)
    se = nan
    if n > 1:
        item = n / n_paired * (agree - chance * paired) / (1 - chance)
        pull = item - 2 * (1 - value) * (chance_item - chance) / (1 - chance)
        spread = float(((pull - value) ** 2).sum())
        se = math.sqrt(spread / (n * (n - 1))) if spread > 1e-28 * n else 0.0
    return _coefficient(name, value, se, observed, chance, n, method, level, "")
