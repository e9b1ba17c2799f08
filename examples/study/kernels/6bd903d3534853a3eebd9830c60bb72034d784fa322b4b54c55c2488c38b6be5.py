"""One block of 128 threads a row, everything in registers (4 x 16-byte loads of each input a thread), one barrier.
Launch path: raw pointers (make_ptr) whose address is rewritten in place; the compiled object is called with them."""

import cutlass
import cutlass.cute as cute
from cutlass.cute.runtime import make_ptr

N_COLS, THREADS, VEC = 4096, 128, 8
CHUNKS = N_COLS // (THREADS * VEC)
N_WARPS = THREADS // 32
EPS = 1e-5
BF16, F32 = cutlass.BFloat16, cutlass.Float32
_cache = {}


@cute.kernel
def _rmsnorm(gx: cute.Tensor, gr: cute.Tensor, gw: cute.Tensor, gy: cute.Tensor, gn: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    shared = cute.make_tensor(cute.arch.alloc_smem(F32, N_WARPS, 16), cute.make_layout(N_WARPS))
    # [vec, thread, chunk, row]
    fx = cute.make_rmem_tensor(cute.make_layout((VEC, CHUNKS)), BF16)
    fr = cute.make_rmem_tensor(cute.make_layout((VEC, CHUNKS)), BF16)
    fw = cute.make_rmem_tensor(cute.make_layout((VEC, CHUNKS)), BF16)
    for c in cutlass.range_constexpr(CHUNKS):
        cute.autovec_copy(gx[None, tid, c, row], fx[None, c])
        cute.autovec_copy(gr[None, tid, c, row], fr[None, c])
    for c in cutlass.range_constexpr(CHUNKS):
        cute.autovec_copy(gw[None, tid, c], fw[None, c])
    h = fx.load().to(F32) + fr.load().to(F32)
    total = (h * h).reduce(cute.ReductionOp.ADD, F32(0.0), 0)
    fn = cute.make_rmem_tensor(cute.make_layout((VEC, CHUNKS)), BF16)
    fn.store(h.to(BF16))
    for c in cutlass.range_constexpr(CHUNKS):
        cute.autovec_copy(fn[None, c], gn[None, tid, c, row])
    for s in cutlass.range_constexpr(5):
        total = total + cute.arch.shuffle_sync_bfly(total, offset=16 >> s)
    if tid % 32 == 0:
        shared[tid // 32] = total
    cute.arch.sync_threads()
    total = shared[0]
    for i in cutlass.range_constexpr(1, N_WARPS):
        total = total + shared[i]
    scale = F32(1.0) / cute.math.sqrt(total * F32(1.0 / N_COLS) + F32(EPS))
    fy = cute.make_rmem_tensor(cute.make_layout((VEC, CHUNKS)), BF16)
    fy.store((h * scale * fw.load().to(F32)).to(BF16))
    for c in cutlass.range_constexpr(CHUNKS):
        cute.autovec_copy(fy[None, c], gy[None, tid, c, row])


@cute.jit
def _launch(x: cute.Pointer, r: cute.Pointer, w: cute.Pointer, y: cute.Pointer, n: cute.Pointer,
            n_rows: cutlass.Int32):
    layout = cute.make_layout((VEC, THREADS, CHUNKS, n_rows), stride=(1, VEC, VEC * THREADS, N_COLS))
    gx, gr, gy, gn = [cute.make_tensor(p, layout) for p in (x, r, y, n)]
    gw = cute.make_tensor(w, cute.make_layout((VEC, THREADS, CHUNKS)))
    _rmsnorm(gx, gr, gw, gy, gn).launch(grid=(n_rows, 1, 1), block=(THREADS, 1, 1))


def build():
    if "fn" not in _cache:
        ptrs = [make_ptr(BF16, 0, cute.AddressSpace.gmem, assumed_align=16) for _ in range(5)]
        _cache["fn"] = cute.compile(_launch, *ptrs, cutlass.Int32(16384), options="--gpu-arch sm_90a")
    return _cache["fn"]


def solve(x, residual, weight):
    import cupy
    if "ptrs" not in _cache:
        _cache["ptrs"] = [make_ptr(BF16, 0, cute.AddressSpace.gmem, assumed_align=16) for _ in range(5)]
        _cache["rows"] = cutlass.Int32(x.shape[0])
    y = cupy.empty(x.shape, x.dtype)
    new = cupy.empty(x.shape, x.dtype)
    fn, ptrs = build(), _cache["ptrs"]
    for p, a in zip(ptrs, (x, residual, weight, y, new)):
        p._desc.value = a.data.ptr
    fn(*ptrs, x.shape[0])
    return y, new
