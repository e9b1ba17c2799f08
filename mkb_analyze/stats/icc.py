"""Intraclass correlation: the share of variance that lies between the rows of a complete table."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from mkb_analyze.stats.estimate import Estimate, undefined


@dataclass(frozen=True)
class Icc:
    """Shrout & Fleiss' three single-score correlations with F, its degrees of freedom, and the mean squares."""

    icc1: Estimate
    icc2: Estimate
    icc3: Estimate
    f: tuple[float, float, float]
    df1: int
    df2: tuple[int, int, int]
    ms_rows: float
    ms_columns: float
    ms_error: float
    ms_within: float


def _snap(sum_of_squares: float, scale: float) -> float:
    """Zero where a sum of squares is rounding error of the values it came from."""
    return 0.0 if abs(sum_of_squares) <= 1e-13 * scale else sum_of_squares


def intraclass(scores: Sequence[Sequence[float]], level: float = 0.95, name: str = "ICC") -> Icc:
    """ICC(1), ICC(2,1) and ICC(3,1) of rows (subjects) x columns (raters, repeats); rows with a gap are dropped.

    Shrout & Fleiss 1979 with McGraw & Wong's 1996 interval for ICC(2,1). ICC(1) fits repeats without identity (notes
    of one attempt); 2 and 3 fit the same raters on every row.
    """
    y = np.array([[math.nan if v is None else v for v in row] for row in scores], dtype=float)
    if y.ndim != 2:
        raise ValueError("scores: rows of equally many values needed; give NaN where one is missing")
    y = y[~np.isnan(y).any(1)]
    n, k = y.shape
    nan = math.nan
    if n < 2 or k < 2:
        none = undefined(name, "fewer than two complete rows or columns", n, "ICC", level)
        return Icc(none, none, none, (nan,) * 3, max(n - 1, 0), (0, 0, 0), nan, nan, nan, nan)
    mean, rows, columns = y.mean(), y.mean(1), y.mean(0)
    scale = float((y**2).sum()) or 1.0
    ss_rows = _snap(k * float(((rows - mean) ** 2).sum()), scale)
    ss_columns = _snap(n * float(((columns - mean) ** 2).sum()), scale)
    ss_within = _snap(float(((y - rows[:, None]) ** 2).sum()), scale)
    ss_error = _snap(float(((y - rows[:, None] - columns + mean) ** 2).sum()), scale)
    df1, df2, df2_within = n - 1, (n - 1) * (k - 1), n * (k - 1)
    msr, msc, mse, msw = (
        np.float64(v) for v in (ss_rows / df1, ss_columns / (k - 1), ss_error / df2, ss_within / df2_within)
    )
    a = (1 - level) / 2
    with np.errstate(all="ignore"):
        f1, f3 = msr / msw, msr / mse
        icc1 = (msr - msw) / (msr + (k - 1) * msw)
        icc2 = (msr - mse) / (msr + (k - 1) * mse + k * (msc - mse) / n)
        icc3 = (msr - mse) / (msr + (k - 1) * mse)

        def one_way(f: float, denominator_df: int) -> tuple[float, float]:
            low = f / stats.f.ppf(1 - a, df1, denominator_df)
            high = f * stats.f.ppf(1 - a, denominator_df, df1)
            return (low - 1) / (low + k - 1), (high - 1) / (high + k - 1)

        low1, high1 = one_way(f1, df2_within)
        low3, high3 = one_way(f3, df2)
        # McGraw & Wong's v with F_j = MSC/MSE multiplied out by MSE, so that MSE = 0 keeps its limit
        rest = (n * (1 + (k - 1) * icc2) - k * icc2) * mse
        v = (k - 1) * (n - 1) * (k * icc2 * msc + rest) ** 2 / ((n - 1) * (k * icc2 * msc) ** 2 + rest**2)
        upper_f, lower_f = stats.f.ppf(1 - a, n - 1, v), stats.f.ppf(1 - a, v, n - 1)
        between = k * msc + (k * n - k - n) * mse
        low2 = n * (msr - upper_f * mse) / (upper_f * between + n * msr)
        high2 = n * (lower_f * msr - mse) / (between + n * lower_f * msr)
        p1, p3 = float(stats.f.sf(f1, df1, df2_within)), float(stats.f.sf(f3, df1, df2))

    def record(label: str, value: float, low: float, high: float, p: float) -> Estimate:
        reason = ""
        if math.isnan(value):
            reason = "every value is the same: no variance to share out"
        elif math.isnan(low) or math.isnan(high):
            reason = "no variance within rows: no interval"
        return Estimate(
            f"{name}({label})", value, low, high, n, "Shrout-Fleiss, F", level, {"rows": n, "columns": k}, p,
            reason=reason,
        )  # fmt: skip

    return Icc(
        record("1", icc1, low1, high1, p1),
        record("2,1", icc2, low2, high2, p3),
        record("3,1", icc3, low3, high3, p3),
        (float(f1), float(f3), float(f3)),
        df1,
        (df2_within, df2, df2),
        float(msr), float(msc), float(mse), float(msw),
    )  # fmt: skip
