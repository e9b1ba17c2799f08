"""Association of two yes/no answers over strata: Cochran-Mantel-Haenszel and whether the strata agree."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from mkb_analyze.stats.estimate import Estimate, HypothesisTest, untested
from mkb_analyze.stats.exact import Conditional, Root


@dataclass(frozen=True)
class Stratified:
    """The pooled odds ratio (Mantel-Haenszel, p by CMH without correction), its exact counterpart, the CMH tests, and
    Breslow-Day's and Tarone's tests that the odds ratios of the strata are one."""

    odds_ratio: Estimate
    exact: Estimate
    cmh: HypothesisTest
    cmh_corrected: HypothesisTest
    breslow_day: HypothesisTest
    tarone: HypothesisTest
    n_dropped: int


def _strata(tables: Sequence[Sequence[Sequence[int]]]) -> np.ndarray:
    strata = np.asarray(tables)
    if strata.ndim != 3 or np.any(strata < 0) or np.any(strata != np.round(strata)):
        raise ValueError("strata: one table of counts, 0 or more, a stratum, all of one shape; count the cases")
    return strata.astype(float)


def mantel_haenszel(
    tables: Sequence[Sequence[Sequence[int]]],
    level: float = 0.95,
    name: str = "common odds ratio",
    root: Root | None = None,
) -> Stratified:
    """Common odds ratio of S strata of 2 x 2 counts, in the order [[a, b], [c, d]].

    Estimate: Mantel & Haenszel 1959; interval: Robins, Breslow & Greenland 1986 on the log; test: CMH chi-square on
    1 df, with and without the 1/2 correction (never below zero); exact: conditional on all margins (Gart 1970);
    homogeneity: Breslow & Day 1980 with Tarone's 1985 correction at the Mantel-Haenszel odds ratio. Strata with an
    empty row or column carry nothing and are left out of every part; their number is `n_dropped`.
    """
    strata = _strata(tables)
    if strata.shape[1:] != (2, 2):
        raise ValueError(f"strata of shape {strata.shape[1:]}: 2 x 2 needed; use cmh_general")
    n_all = int(strata.sum())
    margins = np.concatenate([strata.sum(1), strata.sum(2)], axis=1)
    kept = strata[(margins > 0).all(1)]
    n_dropped = len(strata) - len(kept)
    notes = (f"{n_dropped} strata with an empty row or column carry nothing",) if n_dropped else ()
    cells = {"strata": len(strata), "strata used": len(kept), "cases used": int(kept.sum())}
    if not len(kept):
        reason = "no stratum with both rows and both columns"
        nothing = untested(name, reason, n_all, "Cochran-Mantel-Haenszel", cells)
        nan = math.nan
        odds = Estimate(name, nan, nan, nan, n_all, "Mantel-Haenszel", level, cells, notes=notes, reason=reason)
        return Stratified(odds, odds, nothing, nothing, nothing, nothing, n_dropped)
    a, b, c, d = kept[:, 0, 0], kept[:, 0, 1], kept[:, 1, 0], kept[:, 1, 1]
    n = a + b + c + d
    row, column = a + b, a + c
    gap = float((a - row * column / n).sum())
    # a stratum of one case has no variance and n - 1 = 0: it adds nothing
    with np.errstate(all="ignore"):
        spread = float(np.nansum(np.where(n > 1, row * (n - row) * column * (n - column) / (n * n * (n - 1)), 0.0)))

    def cmh_test(shift: float, method: str) -> HypothesisTest:
        value = max(abs(gap) - shift, 0) ** 2 / spread
        return HypothesisTest(name, value, float(stats.chi2.sf(value, 1)), n_all, method, 1, cells, notes=notes)

    plain = cmh_test(0.0, "Cochran-Mantel-Haenszel")
    # R's correction is taken only where it cannot pass zero
    corrected = cmh_test(0.5 if abs(gap) >= 0.5 else 0.0, "Cochran-Mantel-Haenszel, continuity correction")
    odds = _pooled_odds(a, b, c, d, level, name, plain, notes)
    law = Conditional(list(kept))
    low, high = law.interval(level, root)
    exact = Estimate(
        name, law.odds_ratio(root), low, high, n_all, "exact conditional", level, cells, law.two_sided(), notes=notes
    )
    breslow_day, tarone = _homogeneity(kept, odds.estimate, name, cells, notes)
    return Stratified(odds, exact, plain, corrected, breslow_day, tarone, n_dropped)


def _pooled_odds(a, b, c, d, level, name, test, notes) -> Estimate:
    n = a + b + c + d
    r, s = a * d / n, b * c / n
    p, q = (a + d) / n, (b + c) / n
    top, bottom = float(r.sum()), float(s.sum())
    method = "Mantel-Haenszel; Robins-Breslow-Greenland interval; CMH p"
    if top == 0 or bottom == 0:
        ratio = 0.0 if bottom else (math.inf if top else math.nan)
        reason = "a zero in every stratum: the pooled odds ratio has no interval; see the exact one"
        return Estimate(
            name, ratio, math.nan, math.nan, test.n, method, level, test.n_by_cell, test.p, notes=notes, reason=reason
        )
    variance = (
        (p * r).sum() / (2 * top * top)
        + (p * s + q * r).sum() / (2 * top * bottom)
        + (q * s).sum() / (2 * bottom * bottom)
    )
    half = stats.norm.ppf(0.5 + level / 2) * math.sqrt(variance)
    ratio = top / bottom
    return Estimate(
        name, ratio, ratio * math.exp(-half), ratio * math.exp(half), test.n, method, level, test.n_by_cell, test.p,
        notes=notes,
    )  # fmt: skip


def _homogeneity(kept, ratio, name, cells, notes) -> tuple[HypothesisTest, HypothesisTest]:
    n, methods = int(kept.sum()), ("Breslow-Day", "Breslow-Day with Tarone's correction")
    if not (math.isfinite(ratio) and ratio > 0):
        reason = "the pooled odds ratio is not a positive number"
        return tuple(untested(name, reason, n, method, cells) for method in methods)
    a = kept[:, 0, 0]
    row, other, column = kept[:, 0].sum(1), kept[:, 1].sum(1), kept[:, :, 0].sum(1)
    if ratio == 1:
        fitted = row * column / (row + other)
    else:
        # the cell x with x (other - column + x) = ratio (row - x)(column - x), in the stable form of the quadratic
        linear = ratio * (row + column) + other - column
        fitted = 2 * ratio * row * column / (linear + np.sqrt(linear**2 - 4 * (ratio - 1) * ratio * row * column))
    variance = 1 / (1 / fitted + 1 / (row - fitted) + 1 / (column - fitted) + 1 / (other - column + fitted))
    value = float(((a - fitted) ** 2 / variance).sum())
    corrected = value - float((a - fitted).sum()) ** 2 / float(variance.sum())
    df = len(kept) - 1
    if df < 1:
        return tuple(untested(name, "one stratum cannot disagree with itself", n, m, cells) for m in methods)
    return tuple(
        HypothesisTest(name, v, float(stats.chi2.sf(v, df)), n, m, df, cells, notes=notes)
        for v, m in zip((value, corrected), methods, strict=True)
    )


def cmh_general(tables: Sequence[Sequence[Sequence[int]]], name: str = "association over strata") -> HypothesisTest:
    """Generalised CMH test of S strata of r x c counts against no association in any (Landis, Heyman & Koch 1978).

    Rows and columns empty over all strata are left out; df = (r - 1)(c - 1) of what is left.
    """
    strata = _strata(tables)
    strata = strata[:, strata.sum((0, 2)) > 0][:, :, strata.sum((0, 1)) > 0]
    n_cases = int(strata.sum())
    n_rows, n_columns = strata.shape[1:]
    cells = {"strata": len(strata)}
    method = "generalised Cochran-Mantel-Haenszel"
    if min(n_rows, n_columns) < 2:
        return untested(name, "fewer than two rows or columns with cases", n_cases, method, cells)
    df = (n_rows - 1) * (n_columns - 1)
    gap, spread = np.zeros(df), np.zeros((df, df))
    for table in strata:
        n = table.sum()
        if n < 2:
            continue
        row, column = table.sum(1)[:-1], table.sum(0)[:-1]
        gap += (table[:-1, :-1] - np.outer(row, column) / n).T.ravel()
        of_rows = np.diag(row) * n - np.outer(row, row)
        of_columns = np.diag(column) * n - np.outer(column, column)
        spread += np.kron(of_columns, of_rows) / (n * n * (n - 1))
    if np.linalg.matrix_rank(spread) < df:
        return untested(name, "the strata do not determine every contrast", n_cases, method, cells)
    value = float(gap @ np.linalg.solve(spread, gap))
    return HypothesisTest(name, value, float(stats.chi2.sf(value, df)), n_cases, method, df, cells)
