"""Residual + RMSNorm: s4 with 512 threads a row, 8 values each: shorter blocks, all loads of a thread at once."""
import os

os.environ.setdefault("CUTE_DSL_ARCH", "sm_90a")
import ctypes

import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Float32, Int32
from cutlass.cute.runtime import make_ptr

HIDDEN = 4096
THREADS = 512
VECS = HIDDEN // (8 * THREADS)     # vectors of 8 a thread
WARPS = THREADS // 32
EPS = 1e-5


@cute.kernel
def norm_kernel(x: cute.Pointer, r: cute.Pointer, w: cute.Pointer, y: cute.Pointer, n: cute.Pointer):
    tid, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    lane = tid % 32
    warp = cute.arch.make_warp_uniform(tid // 32)
    rows = cute.make_layout((8, HIDDEN // 8, 1 << 16), stride=(1, 8, HIDDEN))
    gx = cute.make_tensor(x, rows)
    gr = cute.make_tensor(r, rows)
    gw = cute.make_tensor(w, rows)
    gy = cute.make_tensor(y, rows)
    gn = cute.make_tensor(n, rows)
    xv = cute.make_rmem_tensor(cute.make_layout((8, VECS), stride=(1, 8)), BFloat16)
    rv = cute.make_rmem_tensor(cute.make_layout((8, VECS), stride=(1, 8)), BFloat16)
    wv = cute.make_rmem_tensor(cute.make_layout((8, VECS), stride=(1, 8)), BFloat16)
    once = cute.make_copy_atom(cute.nvgpu.CopyG2ROp(), BFloat16, num_bits_per_copy=128,
                               l1c_evict_priority=cute.nvgpu.CacheEvictionPriority.NO_ALLOCATE)
    h = cute.make_rmem_tensor(cute.make_layout((8, VECS), stride=(1, 8)), Float32)
    for i in cutlass.range_constexpr(VECS):
        cute.copy(once, gx[None, tid + i * THREADS, row], xv[None, i])
        cute.copy(once, gr[None, tid + i * THREADS, row], rv[None, i])
    for i in cutlass.range_constexpr(VECS):
        wv[None, i].store(gw[None, tid + i * THREADS, 0].load())
    total = Float32(0.0)
    for i in cutlass.range_constexpr(VECS):
        hv = xv[None, i].load().to(Float32) + rv[None, i].load().to(Float32)
        h[None, i].store(hv)
        cute.arch.store(gn[None, tid + i * THREADS, row].iterator, hv.to(BFloat16).ir_value(), cop="cs")
        total += (hv * hv).reduce(cute.ReductionOp.ADD, Float32(0.0), 0)
    total = cute.arch.warp_reduction_sum(total)
    smem = cutlass.memory.SmemAllocator()
    red = cute.make_tensor(smem.allocate_array(Float32, WARPS, byte_alignment=16), cute.make_layout(WARPS))
    if lane == 0:
        red[warp] = total
    cute.arch.sync_threads()
    square = red.load().reduce(cute.ReductionOp.ADD, Float32(0.0), 0)
    inv = cute.math.rsqrt(square * (1.0 / HIDDEN) + EPS)
    for i in cutlass.range_constexpr(VECS):
        yv = h[None, i].load() * inv * wv[None, i].load().to(Float32)
        cute.arch.store(gy[None, tid + i * THREADS, row].iterator, yv.to(BFloat16).ir_value(), cop="cs")


@cute.jit
def launch(x: cute.Pointer, r: cute.Pointer, w: cute.Pointer, y: cute.Pointer, n: cute.Pointer, n_rows: Int32):
    norm_kernel(x, r, w, y, n).launch(grid=(n_rows, 1, 1), block=(THREADS, 1, 1))


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
