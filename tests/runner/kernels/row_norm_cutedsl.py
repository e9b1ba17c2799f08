"""Row norm in CuTe DSL: one warp a row, sums by shuffles."""

import functools

import cutlass
import cutlass.cute as cute
from cutlass.cute.runtime import from_dlpack, make_fake_compact_tensor

WARPS = 4


@cute.kernel
def row_norm(x: cute.Tensor, w: cute.Tensor, y: cute.Tensor, n_columns: cutlass.Constexpr):
    t, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    lane = t % 32
    row = block * WARPS + t // 32
    total = cutlass.Float32(0.0)
    for j in cutlass.range_constexpr(n_columns // 32):
        value = x[row, j * 32 + lane]
        total += value * value
    total = cute.arch.warp_reduction_sum(total)
    scale = cute.math.rsqrt(total / n_columns + 1e-5)
    for j in cutlass.range_constexpr(n_columns // 32):
        y[row, j * 32 + lane] = x[row, j * 32 + lane] * scale * w[j * 32 + lane]


@cute.jit
def launch(x: cute.Tensor, w: cute.Tensor, y: cute.Tensor, n_rows: cutlass.Constexpr, n_columns: cutlass.Constexpr):
    row_norm(x, w, y, n_columns).launch(grid=[n_rows // WARPS, 1, 1], block=[32 * WARPS, 1, 1])


@functools.cache
def kernel(n_rows, n_columns):
    f32 = cutlass.Float32
    matrix = functools.partial(make_fake_compact_tensor, f32, (n_rows, n_columns), stride_order=(1, 0))
    return cute.compile(launch, matrix(), make_fake_compact_tensor(f32, (n_columns,)), matrix(), n_rows, n_columns)


def build():
    return [kernel(256, 512)]


def solve(x, w):
    import cupy

    y = cupy.empty_like(x)
    kernel(*x.shape)(from_dlpack(x), from_dlpack(w), from_dlpack(y))
    return y
