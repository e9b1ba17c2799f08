"""Adjustment of the p values of one table for their number."""

import math
from collections.abc import Sequence

import numpy as np
from statsmodels.stats.multitest import multipletests

from mkb_analyze.stats.estimate import Estimate, HypothesisTest

METHODS = {
    "BH": "fdr_bh",
    "BY": "fdr_by",
    "holm": "holm",
    "bonferroni": "bonferroni",
    "hochberg": "simes-hochberg",
}


def adjust(p: Sequence[float], method: str = "BH") -> np.ndarray:
    """Adjusted p values in the order given; NaN stays NaN and is not counted.

    BH: Benjamini & Hochberg 1995; BY: Benjamini & Yekutieli 2001; holm: Holm 1979; hochberg: Hochberg 1988.
    """
    if method not in METHODS:
        raise ValueError(f"method={method}: one of {', '.join(METHODS)}; choose one of them")
    p = np.array([math.nan if v is None else v for v in p], dtype=float)
    known = ~np.isnan(p)
    if np.any((p[known] < 0) | (p[known] > 1)):
        raise ValueError("p: a probability lies in [0, 1]; check the tests")
    adjusted = np.full(len(p), math.nan)
    if known.any():
        adjusted[known] = multipletests(p[known], method=METHODS[method])[1]
    return adjusted


def adjusted_table(
    rows: Sequence[Estimate | HypothesisTest], family: str, method: str = "BH"
) -> tuple[Estimate | HypothesisTest, ...]:
    """The rows of one table with q; `family` says in words what they were adjusted over."""
    q = adjust([row.p for row in rows], method)
    n_tests = int(np.sum(~np.isnan(q)))
    stated = f"{method} over {n_tests} tests: {family}"
    return tuple(row.with_q(value, stated) for row, value in zip(rows, q, strict=True))
