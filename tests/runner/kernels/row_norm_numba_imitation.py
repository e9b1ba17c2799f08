"""Row norm in Numba over arrays of the imitated GPU library, for trying the evaluator's GPU branches with no GPU."""

import numba
import numpy as np


@numba.njit
def _norm(x, w, y):
    for i in range(x.shape[0]):
        total = 0.0
        for j in range(x.shape[1]):
            total += np.float64(x[i, j]) * np.float64(x[i, j])
        scale = 1.0 / np.sqrt(total / x.shape[1] + 1e-5)
        for j in range(x.shape[1]):
            y[i, j] = np.float32(x[i, j] * scale * w[j])


def solve(x, w):
    import cupy

    y = cupy.empty_like(x)
    _norm(cupy.asnumpy(x), cupy.asnumpy(w), cupy.asnumpy(y))
    return y
