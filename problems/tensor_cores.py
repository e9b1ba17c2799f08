"""Half-precision matrix products on a GPU's tensor cores whose float32 sums are handed back unrounded."""

from typing import Any

import numpy as np

# cuBLAS names its types and modes by these numbers (library_types.h, cublas_api.h).
_FLOAT32, _KIND = 0, {"bfloat16": 14, "float16": 2}
_SUM_IN_FLOAT32, _ANY_ALGORITHM = 68, -1
_AS_IT_IS, _TRANSPOSED = 0, 1


def matmul(xp: Any, a: Any, b: Any) -> Any:
    """CuPy arrays `a` [..., m, k] and `b` [..., k, n] of one half type -> float32 [..., m, n].

    CuPy's own product of halves rounds its result to the half type, which a reference must not do.
    """
    from cupy.cuda import device
    from cupy_backends.cuda.libs import cublas

    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    (m, k), n = a.shape[-2:], b.shape[-1]
    out = xp.empty((*lead, m, n), np.float32)
    if out.size == 0 or k == 0:
        return xp.zeros_like(out)
    (a, op_a, ld_a, step_a), (b, op_b, ld_b, step_b) = (operand(xp, flat(xp, x, lead)) for x in (a, b))
    one, none, kind = np.ones(1, np.float32), np.zeros(1, np.float32), _KIND[a.dtype.name]
    # cuBLAS reads by columns: what is [r, c] by rows is [c, r] there, so the operands change places.
    cublas.gemmStridedBatchedEx(
        device.get_cublas_handle(), op_b, op_a, n, m, k, one.ctypes.data, b.data.ptr, kind, ld_b, step_b,
        a.data.ptr, kind, ld_a, step_a, none.ctypes.data, out.data.ptr, _FLOAT32, n, m * n,
        out.size // (m * n), _SUM_IN_FLOAT32, _ANY_ALGORITHM)
    return out


def flat(xp: Any, x: Any, lead: tuple[int, ...]) -> Any:
    """`x` [..., r, c] as [batch, r, c] with its leading axes widened to `lead`."""
    if x.shape[:-2] != lead:
        x = xp.broadcast_to(x, (*lead, *x.shape[-2:]))
    return x if x.ndim == 3 else x.reshape(-1, *x.shape[-2:])


def operand(xp: Any, x: Any) -> tuple[Any, int, int, int]:
    """How cuBLAS reads `x` [batch, r, c]: the array, the operation, the leading dimension, the step between matrices.

    A view whose rows or columns are dense is read where it lies; anything else is copied first.
    """
    rows, columns = x.shape[1:]
    step, by_row, by_column = (stride // x.itemsize for stride in x.strides)
    if by_column == 1 and (by_row >= columns or rows == 1):
        return x, _AS_IT_IS, max(by_row, columns), step
    if by_row == 1 and (by_column >= rows or columns == 1):
        return x, _TRANSPOSED, max(by_column, rows), step
    return xp.ascontiguousarray(x), _AS_IT_IS, columns, rows * columns
