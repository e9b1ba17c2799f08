"""Persistent, warp-per-row, no block barrier: each of 7 warps of a block has its own 2-deep ring of 16 KB slots (a row of
x and of residual) filled by cp.async.bulk; the row then sits in registers, the sum is warp shuffles, stores are direct. 
Host path as s5: bare addresses."""
import functools

import tvm
from tvm.ir.type import PointerType, PrimType
from tvm.script import tirx as T

HID = 4096
EPS = 1e-5
FULL = 0xFFFFFFFF
BF16_PTR = PointerType(PrimType("bfloat16"), "global")
F32_PTR = PointerType(PrimType("float32"), "global")
WARPS = 7
THREADS = WARPS * 32
GRID = 132
STEP = GRID * WARPS
NV = HID // 256
BULK = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"


def make_kernel(n_tokens):
    @T.prim_func
    def add_rmsnorm(X_: T.uint64, R_: T.uint64,
                    W_: T.uint64, Y_: T.uint64,
                    N_: T.uint64):
        T.device_entry()
        bx = T.cta_id([GRID])
        tx = T.thread_id([THREADS])
        Wp: T.let[T.Var(name="Wp", ty=BF16_PTR)] = T.reinterpret(BF16_PTR, W_)
        W = T.decl_buffer((HID,), "bfloat16", data=Wp)
        Xp: T.let[T.Var(name="Xp", ty=BF16_PTR)] = T.reinterpret(BF16_PTR, X_)
        X = T.decl_buffer((n_tokens * HID,), "bfloat16", data=Xp)
        Rp: T.let[T.Var(name="Rp", ty=BF16_PTR)] = T.reinterpret(BF16_PTR, R_)
        R = T.decl_buffer((n_tokens * HID,), "bfloat16", data=Rp)
        Yp: T.let[T.Var(name="Yp", ty=BF16_PTR)] = T.reinterpret(BF16_PTR, Y_)
        Y = T.decl_buffer((n_tokens * HID,), "bfloat16", data=Yp)
        Np: T.let[T.Var(name="Np", ty=BF16_PTR)] = T.reinterpret(BF16_PTR, N_)
        N = T.decl_buffer((n_tokens * HID,), "bfloat16", data=Np)
        ring = T.alloc_buffer((WARPS * 2 * 2 * HID,), "bfloat16", scope="shared.dyn")
        full = T.alloc_shared((WARPS * 2,), "uint64")
        warp: T.let = tx // 32
        lane: T.let = tx % 32
        xr = T.alloc_local((8,), "bfloat16")
        rr = T.alloc_local((8,), "bfloat16")
        h = T.alloc_local((NV * 8,), "float32")
        wr = T.alloc_local((NV * 8,), "bfloat16")
        p4 = T.alloc_local((4,), "float32")
        row: T.int32 = bx + warp * GRID
        slot: T.int32 = 0
        phase: T.int32 = 0
        if lane == 0:
            for i in T.unroll(2):
                T.ptx.mbarrier.init.shared.b64(full.ptr_to([warp * 2 + i]), T.uint32(1))
            T.ptx["fence.mbarrier_init.release.cluster"]()
            for i in T.unroll(2):
                if row + i * STEP < n_tokens:
                    T.ptx.mbarrier.arrive.expect_tx.shared.b64(full.ptr_to([warp * 2 + i]), T.uint32(HID * 4))
                    T.ptx[BULK](ring.ptr_to([(warp * 2 + i) * 2 * HID]), X.ptr_to([(row + i * STEP) * HID]),
                                T.uint32(HID * 2), full.ptr_to([warp * 2 + i]))
                    T.ptx[BULK](ring.ptr_to([(warp * 2 + i) * 2 * HID + HID]), R.ptr_to([(row + i * STEP) * HID]),
                                T.uint32(HID * 2), full.ptr_to([warp * 2 + i]))
        for j in T.unroll(NV):
            wr.vstore([j * 8], W.vload([j * 256 + lane * 8], dtype="bfloat16x8"))
        T.cuda.warp_sync()
        while row < n_tokens:
            T.cuda.mbarrier_wait(full.ptr_to([warp * 2 + slot]), phase)
            for i in T.unroll(4):
                p4[i] = T.float32(0)
            for j in T.unroll(NV):
                xr.vstore([0], ring.vload([(warp * 2 + slot) * 2 * HID + j * 256 + lane * 8], dtype="bfloat16x8"))
                rr.vstore([0], ring.vload([(warp * 2 + slot) * 2 * HID + HID + j * 256 + lane * 8],
                                          dtype="bfloat16x8"))
                for i in T.unroll(8):
                    h[j * 8 + i] = T.cast(xr[i], "float32") + T.cast(rr[i], "float32")
                    p4[i % 4] = p4[i % 4] + h[j * 8 + i] * h[j * 8 + i]
            ss: T.float32 = (p4[0] + p4[1]) + (p4[2] + p4[3])
            for i in T.unroll(5):
                ss = ss + T.tvm_warp_shuffle_xor(T.uint32(FULL), ss, 16 >> i, 32, 32)
            T.cuda.warp_sync()
            # All lanes hold the row in registers: the slot may be filled again.
            if lane == 0:
                if row + 2 * STEP < n_tokens:
                    T.ptx.mbarrier.arrive.expect_tx.shared.b64(full.ptr_to([warp * 2 + slot]), T.uint32(HID * 4))
                    T.ptx[BULK](ring.ptr_to([(warp * 2 + slot) * 2 * HID]), X.ptr_to([(row + 2 * STEP) * HID]),
                                T.uint32(HID * 2), full.ptr_to([warp * 2 + slot]))
                    T.ptx[BULK](ring.ptr_to([(warp * 2 + slot) * 2 * HID + HID]), R.ptr_to([(row + 2 * STEP) * HID]),
                                T.uint32(HID * 2), full.ptr_to([warp * 2 + slot]))
            inv: T.float32 = T.float32(1) / T.sqrt(ss * T.float32(1.0 / HID) + T.float32(EPS))
            for j in T.unroll(NV):
                for i in T.unroll(8):
                    xr[i] = T.cast(h[j * 8 + i], "bfloat16")
                N.vstore([row * HID + j * 256 + lane * 8], xr.vload([0], dtype="bfloat16x8"))
                for i in T.unroll(8):
                    xr[i] = T.cast(h[j * 8 + i] * inv * T.cast(wr[j * 8 + i], "float32"), "bfloat16")
                Y.vstore([row * HID + j * 256 + lane * 8], xr.vload([0], dtype="bfloat16x8"))
            row += STEP
            slot += 1
            if slot == 2:
                slot = 0
                phase = 1 - phase

    return add_rmsnorm


@functools.lru_cache(maxsize=None)
def compiled(n_tokens):
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})
    return tvm.compile(tvm.IRModule({"main": make_kernel(n_tokens)}), target=target, tir_pipeline="tirx")


def build():
    return compiled(16384)


@functools.lru_cache(maxsize=None)
def launcher(n_tokens):
    # The executable's own call walks its import tree every time; its function does not.
    return compiled(n_tokens).jit()["main"]


def solve(x, residual, weight):
    import cupy

    y = cupy.empty(x.shape, x.dtype)
    new = cupy.empty(x.shape, x.dtype)
    launcher(x.shape[0])(x.data.ptr, residual.data.ptr, weight.data.ptr, y.data.ptr, new.data.ptr)
    return y, new
