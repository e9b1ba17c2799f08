"""Persistent blocks: 512 x 256 threads, each strides over rows, keeps the gain in registers and loads the next row
before the current row's reduction, so that loads are in flight all the time; one barrier a row (two sum slots)."""
import functools

import tvm
from tvm.script import tirx as T

HID = 4096
EPS = 1e-5
FULL = 0xFFFFFFFF
THREADS = 256
NV = HID // (8 * THREADS)
NW = THREADS // 32
GRID = 512


def make_kernel(n_tokens):
    @T.prim_func
    def add_rmsnorm(X: T.Buffer((n_tokens * HID,), "bfloat16"), R: T.Buffer((n_tokens * HID,), "bfloat16"),
                    W: T.Buffer((HID,), "bfloat16"), Y: T.Buffer((n_tokens * HID,), "bfloat16"),
                    N: T.Buffer((n_tokens * HID,), "bfloat16")):
        T.device_entry()
        T.attr({"tirx.launch_bounds_min_blocks_per_sm": 4})
        bx = T.cta_id([GRID])
        tx = T.thread_id([THREADS])
        part = T.alloc_shared((2 * NW,), "float32")
        xr = T.alloc_local((NV * 8,), "bfloat16")
        rr = T.alloc_local((NV * 8,), "bfloat16")
        wr = T.alloc_local((NV * 8,), "bfloat16")
        o8 = T.alloc_local((8,), "bfloat16")
        h = T.alloc_local((NV * 8,), "float32")
        row: T.int32 = bx
        slot: T.int32 = 0
        if row < n_tokens:
            for j in T.unroll(NV):
                xr.vstore([j * 8], X.vload([row * HID + j * THREADS * 8 + tx * 8], dtype="bfloat16x8"))
                rr.vstore([j * 8], R.vload([row * HID + j * THREADS * 8 + tx * 8], dtype="bfloat16x8"))
        for j in T.unroll(NV):
            wr.vstore([j * 8], W.vload([j * THREADS * 8 + tx * 8], dtype="bfloat16x8"))
        while row < n_tokens:
            nxt: T.int32 = T.min(row + GRID, n_tokens - 1)
            ss: T.float32 = 0.0
            for i in T.unroll(NV * 8):
                h[i] = T.cast(xr[i], "float32") + T.cast(rr[i], "float32")
                ss = ss + h[i] * h[i]
            for j in T.unroll(NV):
                xr.vstore([j * 8], X.vload([nxt * HID + j * THREADS * 8 + tx * 8], dtype="bfloat16x8"))
                rr.vstore([j * 8], R.vload([nxt * HID + j * THREADS * 8 + tx * 8], dtype="bfloat16x8"))
            for i in T.unroll(5):
                ss = ss + T.tvm_warp_shuffle_xor(T.uint32(FULL), ss, 16 >> i, 32, 32)
            if tx % 32 == 0:
                part[slot + tx // 32] = ss
            for j in T.unroll(NV):
                for i in T.unroll(8):
                    o8[i] = T.cast(h[j * 8 + i], "bfloat16")
                N.vstore([row * HID + j * THREADS * 8 + tx * 8], o8.vload([0], dtype="bfloat16x8"))
            T.cuda.cta_sync()
            tot: T.float32 = 0.0
            for i in T.unroll(NW):
                tot = tot + part[slot + i]
            inv: T.float32 = T.float32(1) / T.sqrt(tot * T.float32(1.0 / HID) + T.float32(EPS))
            for j in T.unroll(NV):
                for i in T.unroll(8):
                    o8[i] = T.cast(h[j * 8 + i] * inv * T.cast(wr[j * 8 + i], "float32"), "bfloat16")
                Y.vstore([row * HID + j * THREADS * 8 + tx * 8], o8.vload([0], dtype="bfloat16x8"))
            slot = NW - slot
            row += GRID

    return add_rmsnorm


@functools.lru_cache(maxsize=None)
def compiled(n_tokens):
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})
    return tvm.compile(tvm.IRModule({"main": make_kernel(n_tokens)}), target=target, tir_pipeline="tirx")


def build():
    return compiled(16384)


def solve(x, residual, weight):
    import cupy

    y = cupy.empty(x.shape, x.dtype)
    new = cupy.empty(x.shape, x.dtype)
    compiled(x.shape[0])(x.reshape(-1), residual.reshape(-1), weight, y.reshape(-1), new.reshape(-1))
    return y, new
