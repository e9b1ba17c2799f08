"""Rows divided by their root mean square in Numba; bfloat16 is widened and narrowed by NumPy."""

import numba
import numpy as np


@numba.njit
def _scale(x, weight, counts, y, counted):
    for i in range(x.shape[0]):
        total = 0.0
        for j in range(x.shape[1]):
            total += np.float64(x[i, j]) * np.float64(x[i, j])
        scale = 1.0 / np.sqrt(total / x.shape[1] + 1e-6)
        for j in range(x.shape[1]):
            y[i, j] = np.float32(x[i, j] * scale * weight[j])
        counted[i] = counts[i] + 1


def solve(x, weight, counts):
    y, counted = np.empty(x.shape, np.float32), np.empty_like(counts)
    _scale(x.astype(np.float32), weight, counts, y, counted)
    return y.astype(x.dtype), counted
