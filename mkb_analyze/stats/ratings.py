"""Ratings as numbers: labels to codes, codes to how many raters gave each label to each item."""

from collections.abc import Sequence
from typing import Any

import numpy as np

MISSING = -1


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and value != value)


def codes(ratings: Any, levels: Sequence[Any]) -> np.ndarray:
    """Each rating's position in `levels`, -1 where it is missing (None or NaN); same shape as `ratings`.

    `levels` lists every label that a rater could give, in order, seen or not. A label outside it is refused.
    """
    levels = list(levels)
    if len(set(levels)) != len(levels):
        raise ValueError(f"levels={levels}: a label stands twice; name each once")
    array = np.asarray(ratings)
    if array.dtype.kind in "biuf":
        known = np.asarray(levels)
        if known.dtype.kind in "biuf":
            return _numeric_codes(array, known)
    place = {label: i for i, label in enumerate(levels)}
    array = np.asarray(ratings, dtype=object)
    out = np.full(array.shape, MISSING, dtype=np.int64)
    for index, value in np.ndenumerate(array):
        if _is_missing(value):
            continue
        if value not in place:
            raise ValueError(f"rating {value!r}: not among the levels {levels}; give all labels that may be used")
        out[index] = place[value]
    return out


def _numeric_codes(array: np.ndarray, levels: np.ndarray) -> np.ndarray:
    order = np.argsort(levels)
    values = array.astype(float)
    at = np.searchsorted(levels[order], values)
    at = np.where(at < len(levels), at, 0)
    found = levels[order][at] == values
    missing = np.isnan(values)
    if np.any(~found & ~missing):
        strange = values[~found & ~missing][0]
        raise ValueError(f"rating {strange}: not among the levels {levels.tolist()}; give all labels that may be used")
    return np.where(missing, MISSING, order[at])


def label_counts(coded: np.ndarray, n_levels: int) -> np.ndarray:
    """items x levels: how many raters gave the item each label, from coded ratings (items x raters)."""
    n_items, n_raters = coded.shape
    counts = np.zeros((n_items, n_levels), dtype=np.int64)
    rows = np.arange(n_items)
    for rater in range(n_raters):
        given = coded[:, rater] >= 0
        counts[rows[given], coded[given, rater]] += 1
    return counts
