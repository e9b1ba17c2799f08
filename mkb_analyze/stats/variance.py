"""Where the variance of the log paired ratio comes from: problem, model, note, attempt, timing."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mkb_analyze.stats.estimate import Estimate, undefined

REST = "rest"
TIMING = "timing"


def _projected(values: np.ndarray, codes: list[np.ndarray], sizes: list[int]) -> np.ndarray:
    """(K + 1, B) quadratic forms of (N, B) centred values: squared factor sums for each factor, then the squares."""
    forms = []
    for code, size in zip(codes, sizes, strict=True):
        sums = np.zeros((size, values.shape[1]))
        np.add.at(sums, code, values)
        forms.append((sums**2).sum(0))
    return np.stack([*forms, (values**2).sum(0)])


def _expectations(codes: list[np.ndarray], sizes: list[int]) -> np.ndarray:
    """(K + 1, K + 1): what one unit of each variance (columns; the last is the rest) adds to each quadratic form."""
    n, k = len(codes[0]), len(codes)
    counts = [np.bincount(c, minlength=s).astype(float) for c, s in zip(codes, sizes, strict=True)]
    out = np.empty((k + 1, k + 1))
    for i in range(k):
        for j in range(i, k):
            cross = np.zeros((sizes[i], sizes[j]))
            np.add.at(cross, (codes[i], codes[j]), 1.0)
            centred = cross - np.outer(counts[i], counts[j]) / n
            out[i, j] = out[j, i] = (centred**2).sum()
        out[i, k] = out[k, i] = n - (counts[i] ** 2).sum() / n
    out[k, k] = n - 1
    return out


def variance_parts(
    values: Sequence[float],
    factors: Mapping[str, Sequence[Any]],
    timing_variance: float = 0.0,
    resamples: int = 2000,
    rng: np.random.Generator | int = 0,
    level: float = 0.95,
) -> tuple[Estimate, ...]:
    """Variance of `values` owed to each factor, to timing, and to the rest, in squared units of the values.

    Random effects of crossed or nested `factors` (problem, model, attempt, note: one label a value) by the method of
    moments, MINQUE(0) (Rao 1971): each factor's squared sums are set equal to what the variances make of them.
    `timing_variance` is that of one value by repeated verdicts, taken out of the rest and listed as itself. Negative
    parts are 0 and say so. Intervals are a parametric bootstrap: values drawn anew from the fitted normal parts.
    """
    y = np.array([math.nan if v is None else v for v in values], dtype=float)
    known = ~np.isnan(y)
    y, n = y[known], int(known.sum())
    names = list(factors)
    encoded = [np.unique(np.asarray(factors[name])[known], return_inverse=True) for name in names]
    codes, sizes = [code for _, code in encoded], [len(labels) for labels, _ in encoded]
    cells = dict(zip(names, sizes, strict=True))
    method = "variance components, MINQUE(0); parametric bootstrap"
    listed = [*names, *([TIMING] if timing_variance else []), REST]
    single = [name for name, size in cells.items() if size < 2]
    reason = ""
    if n < 3 or single:
        reason = f"{single[0]} has one level: its variance cannot be seen" if single else "fewer than three values"
    else:
        expected = _expectations(codes, sizes)
        if np.linalg.cond(expected / np.sqrt(np.outer(np.diag(expected), np.diag(expected)))) > 1e10:
            reason = "two factors coincide: their variances cannot be told apart"
    if reason:
        return tuple(undefined(f"variance: {name}", reason, n, method, level, cells) for name in listed)
    inverse = np.linalg.inv(expected)
    raw = (inverse @ _projected((y - y.mean())[:, None], codes, sizes))[:, 0]
    parts = np.maximum(raw, 0.0)
    rng = np.random.default_rng(rng)
    drawn = math.sqrt(parts[-1]) * rng.standard_normal((n, resamples))
    for code, size, part in zip(codes, sizes, parts[:-1], strict=True):
        drawn += math.sqrt(part) * rng.standard_normal((size, resamples))[code]
    again = np.maximum(inverse @ _projected(drawn - drawn.mean(0), codes, sizes), 0.0)
    low, high = np.quantile(again, [(1 - level) / 2, (1 + level) / 2], axis=1)
    out = []
    for j, name in enumerate([*names, REST]):
        value, below, above = parts[j], low[j], high[j]
        notes = ("below zero by the moments, set to 0",) if raw[j] < 0 else ()
        if name == REST and timing_variance:
            out.append(
                Estimate(
                    f"variance: {TIMING}", timing_variance, timing_variance, timing_variance, n, "repeated verdicts",
                    level, cells, notes=("given, not estimated here",),
                )
            )  # fmt: skip
            value, below, above = (max(v - timing_variance, 0.0) for v in (value, below, above))
        out.append(Estimate(f"variance: {name}", value, below, above, n, method, level, cells, notes=notes))
    return tuple(out)
