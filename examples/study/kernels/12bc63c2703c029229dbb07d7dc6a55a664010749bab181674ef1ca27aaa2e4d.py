"""Residual add + RMSNorm: one block of 256 threads a row, 16 values a thread (2 x 16-byte vectors), f32 sum kept in registers."""
import tvm
from tvm.script import tirx as T

THREADS = 256
NV = 4096 // (8 * THREADS)      # 16-byte vectors a thread
NW = THREADS // 32


@T.prim_func
def resnorm(x_ptr: T.handle, r_ptr: T.handle, w_ptr: T.handle, y_ptr: T.handle, h_ptr: T.handle):
    n = T.int32()
    x = T.match_buffer(x_ptr, (n, 4096), "bfloat16", align=16)
    r = T.match_buffer(r_ptr, (n, 4096), "bfloat16", align=16)
    w = T.match_buffer(w_ptr, (4096,), "bfloat16", align=16)
    y = T.match_buffer(y_ptr, (n, 4096), "bfloat16", align=16)
    h = T.match_buffer(h_ptr, (n, 4096), "bfloat16", align=16)
    T.device_entry()
    bx = T.cta_id([n])
    tx = T.thread_id([THREADS])
    xw = T.decl_buffer((n, 2048), "uint32", data=x.data)
    rw = T.decl_buffer((n, 2048), "uint32", data=r.data)
    ww = T.decl_buffer((2048,), "uint32", data=w.data)
    yw = T.decl_buffer((n, 2048), "uint32", data=y.data)
    hw = T.decl_buffer((n, 2048), "uint32", data=h.data)
    part = T.alloc_shared((NW,), "float32")
    a = T.alloc_local((4 * NV,), "uint32")
    b = T.alloc_local((4 * NV,), "uint32")
    g = T.alloc_local((4 * NV,), "uint32")
    f = T.alloc_local((8 * NV,), "float32")
    s = T.alloc_local((2,), "float32")
    for i in T.unroll(NV):
        for j in T.vectorized(4):
            a[i * 4 + j] = xw[bx, i * (4 * THREADS) + tx * 4 + j]
    for i in T.unroll(NV):
        for j in T.vectorized(4):
            b[i * 4 + j] = rw[bx, i * (4 * THREADS) + tx * 4 + j]
    for i in T.unroll(NV):
        for j in T.vectorized(4):
            g[i * 4 + j] = ww[i * (4 * THREADS) + tx * 4 + j]
    s[0] = T.float32(0)
    for i in T.unroll(4 * NV):
        f[2 * i] = T.cuda.uint_as_float(a[i] << T.uint32(16)) + T.cuda.uint_as_float(b[i] << T.uint32(16))
        f[2 * i + 1] = (T.cuda.uint_as_float(a[i] & T.uint32(0xFFFF0000))
                        + T.cuda.uint_as_float(b[i] & T.uint32(0xFFFF0000)))
        a[i] = T.cuda.float22bfloat162_rn(f[2 * i], f[2 * i + 1])
        s[0] = s[0] + f[2 * i] * f[2 * i]
        s[0] = s[0] + f[2 * i + 1] * f[2 * i + 1]
    for i in T.unroll(NV):
        for j in T.vectorized(4):
            hw[bx, i * (4 * THREADS) + tx * 4 + j] = a[i * 4 + j]
    s[1] = T.cuda.warp_sum(s[0])
    if tx % 32 == 0:
        part[tx // 32] = s[1]
    T.cuda.cta_sync()
    s[0] = T.float32(0)
    for i in T.unroll(NW):
        s[0] = s[0] + part[i]
    s[1] = T.float32(1) / T.sqrt(s[0] * T.float32(1.0 / 4096) + T.float32(1e-5))
    for i in T.unroll(4 * NV):
        b[i] = T.cuda.float22bfloat162_rn(
            f[2 * i] * s[1] * T.cuda.uint_as_float(g[i] << T.uint32(16)),
            f[2 * i + 1] * s[1] * T.cuda.uint_as_float(g[i] & T.uint32(0xFFFF0000)))
    for i in T.unroll(NV):
        for j in T.vectorized(4):
            yw[bx, i * (4 * THREADS) + tx * 4 + j] = b[i * 4 + j]


_exe = None
_run = None
_empty = None


def build():
    global _exe
    if _exe is None:
        _exe = tvm.compile(tvm.IRModule({"main": resnorm}),
                           target=tvm.target.Target({"kind": "cuda", "arch": "sm_90a"}), tir_pipeline="tirx")
    return _exe


def solve(x, residual, weight):
    global _run, _empty
    if _run is None:
        import cupy
        _run, _empty = build()["main"], cupy.empty
    y = _empty(x.shape, x.dtype)
    new = _empty(x.shape, x.dtype)
    _run(x, residual, weight, y, new)
    return y, new
