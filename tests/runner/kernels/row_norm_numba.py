"""Row norm in Numba, one output buffer kept between calls."""

import numba
import numpy as np

_kept = {}


@numba.njit
def _norm(x, w, y):
    for i in range(x.shape[0]):
        total = 0.0
        for j in range(x.shape[1]):
            total += np.float64(x[i, j]) * np.float64(x[i, j])
        scale = 1.0 / np.sqrt(total / x.shape[1] + 1e-5)
        for j in range(x.shape[1]):
            y[i, j] = np.float32(x[i, j] * scale * w[j])


def build():
    f32 = numba.float32
    _norm.compile((f32[:, ::1], f32[::1], f32[:, ::1]))
    return [_norm]


def solve(x, w):
    y = _kept.setdefault(x.shape, np.empty_like(x))
    _norm(x, w, y)
    return y
