"""Tests and odds ratios of one table of counts: Fisher, chi-square, McNemar, trend over ordered groups."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from mkb_analyze.stats.estimate import Estimate, HypothesisTest, untested
from mkb_analyze.stats.exact import Conditional, Root
from mkb_analyze.stats.network import fisher_rxc_p
from mkb_analyze.stats.rates import wilson


def _counts(table: Sequence[Sequence[int]]) -> np.ndarray:
    counts = np.asarray(table)
    if counts.ndim != 2 or np.any(counts < 0) or np.any(counts != np.round(counts)):
        raise ValueError("table: a contingency table holds counts, 0 or more, in rows and columns; count the cases")
    return counts.astype(np.int64)


def _cells(counts: np.ndarray) -> dict[str, int]:
    return {f"r{i + 1}c{j + 1}": int(v) for (i, j), v in np.ndenumerate(counts)}


@dataclass(frozen=True)
class Fisher:
    """Fisher's exact test of a 2 x 2 table: `odds_ratio` (conditional estimate, exact interval, two-sided p), the
    same with mid-p interval and p in `mid` (close to the level asked for, where the exact ones are too cautious), the
    one-sided p values and the sample odds ratio ad/bc."""

    odds_ratio: Estimate
    mid: Estimate
    p_greater: float
    p_less: float
    sample_odds_ratio: float


def fisher(
    table: Sequence[Sequence[int]], level: float = 0.95, name: str = "odds ratio", root: Root | None = None
) -> Fisher:
    """Fisher's exact test with the conditional odds ratio; p sums all tables no likelier than the one seen.

    `root` replaces the root finder, for comparison with programs that solve less precisely.
    """
    counts = _counts(table)
    if counts.shape != (2, 2):
        raise ValueError(f"table of shape {counts.shape}: Fisher's odds ratio needs 2 x 2; use fisher_rxc")
    a, b, c, d = (int(v) for v in counts.ravel())
    law = Conditional([counts])
    method = "Fisher exact; conditional odds ratio"
    estimate, (low, high) = law.odds_ratio(root), law.interval(level, root)
    reason = "an empty row or column: every odds ratio fits" if law.carries_nothing else ""
    odds = Estimate(
        name, estimate, low, high, a + b + c + d, method, level, _cells(counts), law.two_sided(), reason=reason
    )
    low, high = law.interval(level, mid=True)
    mid = Estimate(
        name, odds.estimate, low, high, odds.n, "Fisher mid-p; conditional odds ratio", level, odds.n_by_cell,
        law.mid_p(), reason=reason,
    )  # fmt: skip
    sample = a * d / (b * c) if b * c else (math.inf if a * d else math.nan)
    return Fisher(odds, mid, law.upper(1.0), law.lower(1.0), sample)


def fisher_rxc(
    table: Sequence[Sequence[int]], name: str = "independence", resamples: int = 100_000, seed: int = 0
) -> HypothesisTest:
    """Exact test of an r x c table (Freeman-Halton); beyond the exact search's reach, seeded Monte Carlo, and said so.

    The Monte Carlo p is (1 + tables no likelier) / (1 + resamples) over tables drawn with the margins fixed.
    """
    counts = _counts(table)
    n = int(counts.sum())
    if n == 0:
        return untested(name, "no cases", 0, "Fisher-Freeman-Halton exact")
    p = fisher_rxc_p(counts)
    if p is not None:
        return HypothesisTest(name, math.nan, p, n, "Fisher-Freeman-Halton exact", n_by_cell=_cells(counts))
    kept = counts[counts.sum(1) > 0][:, counts.sum(0) > 0]
    law = stats.random_table(kept.sum(1), kept.sum(0), seed=np.random.default_rng(seed))
    drawn = law.rvs(resamples)
    extreme = int(np.sum(law.logpmf(drawn) <= law.logpmf(kept) + 1e-7))
    return HypothesisTest(
        name,
        math.nan,
        (1 + extreme) / (1 + resamples),
        n,
        f"Fisher-Freeman-Halton by {resamples} random tables, seed {seed}",
        n_by_cell=_cells(counts),
        notes=("too many tables to list: p by Monte Carlo",),
    )


@dataclass(frozen=True)
class ChiSquare:
    """Pearson's test with and without Yates' correction (2 x 2 alone), expected counts, Pearson and standardised
    residuals (r x c arrays) and Cramer's V (uncorrected statistic)."""

    pearson: HypothesisTest
    yates: HypothesisTest
    expected: np.ndarray
    residuals: np.ndarray
    standardised: np.ndarray
    cramers_v: float


def chi_square(table: Sequence[Sequence[int]], name: str = "independence", drop_empty: bool = False) -> ChiSquare:
    """Pearson's chi-square test of independence; an empty row or column makes it undefined unless `drop_empty`."""
    counts = _counts(table)
    if drop_empty:
        counts = counts[counts.sum(1) > 0][:, counts.sum(0) > 0]
    n, (n_rows, n_columns) = int(counts.sum()), counts.shape
    rows, columns = counts.sum(1, keepdims=True), counts.sum(0, keepdims=True)
    with np.errstate(all="ignore"):
        expected = rows * columns / n
        residuals = (counts - expected) / np.sqrt(expected)
        standardised = (counts - expected) / np.sqrt(expected * (1 - rows / n) * (1 - columns / n))
        statistic = float((residuals**2).sum())
        shift = min(0.5, float(np.abs(counts - expected).min())) if (n_rows, n_columns) == (2, 2) else 0.0
        corrected = float(((np.abs(counts - expected) - shift) ** 2 / expected).sum())
    df = (n_rows - 1) * (n_columns - 1)
    notes = ("an expected count is below 5: prefer the exact test",) if np.any(expected < 5) else ()
    reason = ""
    if math.isnan(statistic):
        reason = "an empty row or column" if n else "no cases"
    elif df < 1:
        reason = "fewer than two rows or columns"

    def test(value: float, method: str) -> HypothesisTest:
        p = float(stats.chi2.sf(value, df)) if not reason else math.nan
        return HypothesisTest(name, value, p, n, method, df, _cells(counts), notes=notes, reason=reason)

    smaller = min(n_rows, n_columns) - 1
    v = math.sqrt(statistic / (n * smaller)) if not reason else math.nan
    return ChiSquare(
        test(statistic, "Pearson chi-square"),
        test(corrected, "Pearson chi-square with Yates' correction"),
        expected,
        residuals,
        standardised,
        v,
    )


@dataclass(frozen=True)
class McNemar:
    """Paired yes/no: `difference` of the two shares with a paired interval and the mid-p value, and the other tests."""

    difference: Estimate
    chi_square: HypothesisTest
    corrected: HypothesisTest
    exact: HypothesisTest
    mid_p: HypothesisTest


def mcnemar(table: Sequence[Sequence[int]], level: float = 0.95, name: str = "paired difference") -> McNemar:
    """McNemar's test of a 2 x 2 table of pairs (rows: first yes/no, columns: second yes/no); b, c are the discordant.

    The p of the difference is the mid-p of Fagerland, Lydersen & Laake (2013): 1 - pmf(b)/2 at b = c. The interval of
    (b - c)/n is Newcombe's square-and-add for pairs (1998, method 10), with the phi term.
    """
    counts = _counts(table)
    if counts.shape != (2, 2):
        raise ValueError(f"table of shape {counts.shape}: McNemar's test needs 2 x 2; give the pairs as 2 x 2")
    a, b, c, d = (int(v) for v in counts.ravel())
    n, m, cells = a + b + c + d, b + c, _cells(counts)
    if m == 0:
        none = untested(name, "no discordant pair", n, "McNemar", cells)
        chi = corrected = exact = mid = none
    else:
        value, shifted = (b - c) ** 2 / m, max(abs(b - c) - 1, 0) ** 2 / m
        chi = HypothesisTest(name, value, float(stats.chi2.sf(value, 1)), n, "McNemar chi-square", 1, cells)
        corrected = HypothesisTest(
            name, shifted, float(stats.chi2.sf(shifted, 1)), n, "McNemar chi-square, continuity correction", 1, cells
        )
        k = min(b, c)
        two = min(1.0, 2 * float(stats.binom.cdf(k, m, 0.5)))
        exact = HypothesisTest(name, k, two, n, "McNemar exact", n_by_cell=cells)
        pmf = float(stats.binom.pmf(k, m, 0.5))
        half = 1 - pmf / 2 if b == c else 2 * float(stats.binom.cdf(k, m, 0.5)) - pmf
        mid = HypothesisTest(name, k, min(half, 1.0), n, "McNemar mid-p", n_by_cell=cells)
    return McNemar(_paired_difference(a, b, c, d, level, name, mid.p), chi, corrected, exact, mid)


def _paired_difference(a: int, b: int, c: int, d: int, level: float, name: str, p: float) -> Estimate:
    n, cells = a + b + c + d, {"both": a, "first only": b, "second only": c, "neither": d}
    method = "Newcombe paired; McNemar mid-p"
    if n == 0:
        return Estimate(name, math.nan, math.nan, math.nan, 0, method, level, cells, reason="no pairs")
    first, second = wilson(a + b, n, level), wilson(a + c, n, level)
    margins = (a + b) * (c + d) * (a + c) * (b + d)
    phi = 0.0
    if margins:
        top = a * d - b * c
        # Newcombe's correction keeps a small positive phi from shortening the interval too much
        top = max(top - n / 2, 0) if top > 0 else top
        phi = top / math.sqrt(margins)
    dl1, du1 = first.estimate - first.low, first.high - first.estimate
    dl2, du2 = second.estimate - second.low, second.high - second.estimate
    gap = (b - c) / n
    low = gap - math.sqrt(max(dl1**2 - 2 * phi * dl1 * du2 + du2**2, 0))
    high = gap + math.sqrt(max(du1**2 - 2 * phi * du1 * dl2 + dl2**2, 0))
    return Estimate(name, gap, low, high, n, method, level, cells, p)


def cochran_armitage(
    successes: Sequence[int], totals: Sequence[int], scores: Sequence[float] | None = None, name: str = "trend"
) -> HypothesisTest:
    """Trend of shares over ordered groups (Cochran 1954, Armitage 1955); statistic is z, positive where shares rise.

    `scores` default to 0, 1, 2 ...; the variance is the binomial one with N in the denominator, as R's prop.trend.test.
    """
    x, n = np.asarray(successes, dtype=float), np.asarray(totals, dtype=float)
    if np.any(x < 0) or np.any(x > n):
        raise ValueError("successes: a count lies between 0 and its total; count the cases again")
    t = np.arange(len(n), dtype=float) if scores is None else np.asarray(scores, dtype=float)
    cells = {f"group {i}": int(v) for i, v in enumerate(n)}
    total = n.sum()
    if np.sum(n > 0) < 2:
        return untested(name, "fewer than two groups with cases", int(total), "Cochran-Armitage", cells)
    share = x.sum() / total
    if share in (0.0, 1.0):
        return untested(name, "every case has the same outcome", int(total), "Cochran-Armitage", cells)
    centre = (n * t).sum() / total
    spread = share * (1 - share) * (n * (t - centre) ** 2).sum()
    z = float((x * (t - centre)).sum() / math.sqrt(spread))
    return HypothesisTest(name, z, float(2 * stats.norm.sf(abs(z))), int(total), "Cochran-Armitage", n_by_cell=cells)
