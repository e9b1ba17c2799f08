"""Raw agreement: the share of rater pairs, or of items, with the same label."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scipy import stats

from mkb_analyze.stats.estimate import Estimate, undefined
from mkb_analyze.stats.ratings import codes, label_counts


@dataclass(frozen=True)
class Percent:
    """Shares in [0, 1] over items with two or more ratings: mean over items of the agreeing rater pairs (with an
    interval), the same pooled over pairs, and the items on which all agree."""

    over_items: Estimate
    over_pairs: float
    all_identical: float
    n_items: int


def percent_agreement(ratings: Any, levels: Sequence[Any], level: float = 0.95, name: str = "raw agreement") -> Percent:
    """Raw agreement of items x raters; Wilson's interval at the effective number of items p(1 - p)/var(mean).

    Two raters make each item yes or no, and the interval is Wilson's over items; more raters leave items between 0
    and 1 with less spread, which counts as more items.
    """
    counts = label_counts(codes(ratings, levels), len(list(levels)))
    raters = counts.sum(1)
    counts, raters = counts[raters >= 2], raters[raters >= 2]
    n, nan = len(counts), math.nan
    method = "mean over items of agreeing pairs; Wilson at the effective number of items"
    if n == 0:
        return Percent(undefined(name, "no item has two ratings", 0, method, level), nan, nan, 0)
    pairs, agreeing = raters * (raters - 1), (counts * (counts - 1)).sum(1)
    per_item = agreeing / pairs
    p = float(per_item.mean())
    effective = float(n)
    if n > 1 and 0 < p < 1:
        # division by n makes two raters give exactly n
        effective = max(n, p * (1 - p) * n / max(float(per_item.var()), 1e-300))
    z2 = stats.norm.ppf(0.5 + level / 2) ** 2
    centre = (p + z2 / (2 * effective)) / (1 + z2 / effective)
    half = math.sqrt(z2 * (p * (1 - p) / effective + z2 / (4 * effective**2))) / (1 + z2 / effective)
    low, high = (0.0 if p == 0 else centre - half), (1.0 if p == 1 else centre + half)
    over_items = Estimate(name, p, low, high, n, method, level)
    return Percent(over_items, float(agreeing.sum() / pairs.sum()), float((counts.max(1) == raters).mean()), n)
