"""Residual + RMSNorm, a warp a row: bulk copies into a private two-row ring of shared memory, no block barrier.

The row is summed and kept in registers, so that the ring slot is refilled before the row is normalised and stored.
"""
import os

os.environ.setdefault("CUTE_DSL_ARCH", "sm_90a")
import ctypes

import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Float32, Int32
from cutlass.cute.runtime import make_ptr

HIDDEN = 4096
WARPS = 6
SLOTS = 2                          # rows in flight a warp
THREADS = 32 * WARPS
VECS = HIDDEN // (8 * 32)          # vectors of 8 a lane
BLOCKS = 132
EPS = 1e-5


@cute.kernel
def norm_kernel(x: cute.Pointer, r: cute.Pointer, w: cute.Pointer, y: cute.Pointer, n: cute.Pointer, n_rows: Int32):
    tid, _, _ = cute.arch.thread_idx()
    bid, _, _ = cute.arch.block_idx()
    lane = tid % 32
    warp = cute.arch.make_warp_uniform(tid // 32)
    rows = cute.make_layout((8, HIDDEN // 8, 1 << 16), stride=(1, 8, HIDDEN))
    gw = cute.make_tensor(w, rows)
    gy = cute.make_tensor(y, rows)
    gn = cute.make_tensor(n, rows)
    whole = cute.make_layout((HIDDEN, 1 << 16), stride=(1, HIDDEN))
    bx = cute.make_tensor(x, whole)
    br = cute.make_tensor(r, whole)
    smem = cutlass.memory.SmemAllocator()
    data = smem.allocate_array(BFloat16, WARPS * SLOTS * 2 * HIDDEN, byte_alignment=128)
    gain = smem.allocate_array(BFloat16, HIDDEN, byte_alignment=128)
    bars = smem.allocate_array(cutlass.Int64, WARPS * SLOTS, byte_alignment=8)
    s8 = cute.make_tensor(data, cute.make_layout((8, HIDDEN // 8, 2, SLOTS, WARPS),
                                                 stride=(1, 8, HIDDEN, 2 * HIDDEN, 2 * HIDDEN * SLOTS)))
    sb = cute.make_tensor(data, cute.make_layout((HIDDEN, 2, SLOTS, WARPS),
                                                 stride=(1, HIDDEN, 2 * HIDDEN, 2 * HIDDEN * SLOTS)))
    sw = cute.make_tensor(gain, cute.make_layout((8, HIDDEN // 8), stride=(1, 8)))
    atom = cute.make_copy_atom(cute.nvgpu.cpasync.CopyBulkG2SOp(), BFloat16, num_bits_per_copy=HIDDEN * 16)
    if tid == 0:
        for i in cutlass.range_constexpr(WARPS * SLOTS):
            cute.arch.mbarrier_init(bars + i, 1)
    cute.arch.mbarrier_init_fence()
    for i in cutlass.range(tid, HIDDEN // 8, THREADS):
        sw[None, i].store(gw[None, i, 0].load())
    cute.arch.sync_threads()

    step = BLOCKS * WARPS
    row = warp * BLOCKS + bid
    if lane == 0:
        for i in cutlass.range_constexpr(SLOTS):
            ahead = row + i * step
            if ahead < n_rows:
                bar = bars + (warp * SLOTS + i)
                cute.arch.mbarrier_arrive_and_expect_tx(bar, 4 * HIDDEN)
                cute.copy(atom, bx[None, ahead], sb[None, 0, i, warp], mbar_ptr=bar)
                cute.copy(atom, br[None, ahead], sb[None, 1, i, warp], mbar_ptr=bar)
    h = cute.make_rmem_tensor(cute.make_layout((8, VECS), stride=(1, 8)), Float32)
    slot = Int32(0)
    phase = Int32(0)
    while row < n_rows:
        bar = bars + (warp * SLOTS + slot)
        cute.arch.mbarrier_wait(bar, phase)
        total = Float32(0.0)
        for i in cutlass.range_constexpr(VECS):
            hv = (s8[None, lane + 32 * i, 0, slot, warp].load().to(Float32)
                  + s8[None, lane + 32 * i, 1, slot, warp].load().to(Float32))
            h[None, i].store(hv)
            total += (hv * hv).reduce(cute.ReductionOp.ADD, Float32(0.0), 0)
        # The slot is free again: ask for the row two steps ahead before this row's sum and stores.
        cute.arch.fence_view_async_shared()
        cute.arch.sync_warp()
        ahead = row + SLOTS * step
        if ahead < n_rows:
            if lane == 0:
                cute.arch.mbarrier_arrive_and_expect_tx(bar, 4 * HIDDEN)
                cute.copy(atom, bx[None, ahead], sb[None, 0, slot, warp], mbar_ptr=bar)
                cute.copy(atom, br[None, ahead], sb[None, 1, slot, warp], mbar_ptr=bar)
        for i in cutlass.range_constexpr(VECS):
            gn[None, lane + 32 * i, row].store(h[None, i].load().to(BFloat16))
        square = cute.arch.warp_reduction_sum(total)
        inv = cute.math.rsqrt(square * (1.0 / HIDDEN) + EPS)
        for i in cutlass.range_constexpr(VECS):
            yv = h[None, i].load() * inv * sw[None, lane + 32 * i].load().to(Float32)
            gy[None, lane + 32 * i, row].store(yv.to(BFloat16))
        slot += 1
        if slot == SLOTS:
            slot = Int32(0)
            phase = phase ^ 1
        row += step


@cute.jit
def launch(x: cute.Pointer, r: cute.Pointer, w: cute.Pointer, y: cute.Pointer, n: cute.Pointer, n_rows: Int32):
    norm_kernel(x, r, w, y, n, n_rows).launch(grid=(BLOCKS, 1, 1), block=(THREADS, 1, 1))


_built = None


def build(options=""):
    """Compile the kernel for sm_90a, without a GPU."""
    global _built
    if _built is None:
        bf = make_ptr(BFloat16, 0, cute.AddressSpace.gmem, assumed_align=16)
        kw = {"options": options} if options else {}
        _built = cute.compile(launch, bf, bf, bf, bf, bf, Int32(1), **kw)
    return _built


class _Host:
    """Argument storage that lives as long as the compiled function: a call only rewrites addresses."""

    def __init__(self, n_pointers, n_ints):
        self.run = build().to()
        self.pointers = (ctypes.c_uint64 * n_pointers)()
        self.ints = (ctypes.c_int32 * n_ints)()
        base, ibase = ctypes.addressof(self.pointers), ctypes.addressof(self.ints)
        self.addresses = [base + 8 * i for i in range(n_pointers)] + [ibase + 4 * i for i in range(n_ints)]

    def __call__(self, *values):
        n = len(self.pointers)
        self.pointers[:] = values[:n]
        self.ints[:] = values[n:]
        self.run.run_compiled_program(self.addresses)


_host = None


def solve(x, residual, weight):
    global _host
    import cupy as cp
    if _host is None:
        _host = _Host(5, 1)
    y = cp.empty(x.shape, x.dtype)
    new = cp.empty(x.shape, x.dtype)
    _host(x.data.ptr, residual.data.ptr, weight.data.ptr, y.data.ptr, new.data.ptr, x.shape[0])
    return y, new
