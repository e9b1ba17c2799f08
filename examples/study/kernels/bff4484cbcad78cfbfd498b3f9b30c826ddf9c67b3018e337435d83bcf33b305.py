"""Persistent blocks (one an SM): the 64 KB state of a head, contiguous, arrives by one cp.async.bulk into a 3-deep shared
ring while earlier heads are computed; state then in registers as in s1, S' stored straight from registers. 
Host path as s5: bare addresses."""
import functools

import tvm
from tvm.ir.type import PointerType, PrimType
from tvm.script import tirx as T

HQ, HV, D = 16, 32, 128
FULL = 0xFFFFFFFF
BF16_PTR = PointerType(PrimType("bfloat16"), "global")
F32_PTR = PointerType(PrimType("float32"), "global")
THREADS = 256
GRID = 132
STAGES = 3
NG = THREADS // 32
NR = D // NG
BULK = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"


def make_kernel(n_seqs):
    N = n_seqs * HV

    @T.prim_func
    def gdn(Q_: T.uint64, K_: T.uint64,
            V_: T.uint64, G_: T.uint64,
            B_: T.uint64, S_: T.uint64,
            O_: T.uint64, SN_: T.uint64):
        T.device_entry()
        bx = T.cta_id([GRID])
        tx = T.thread_id([THREADS])
        Qp: T.let[T.Var(name="Qp", ty=BF16_PTR)] = T.reinterpret(BF16_PTR, Q_)
        Q = T.decl_buffer((n_seqs * HQ * D,), "bfloat16", data=Qp)
        Kp: T.let[T.Var(name="Kp", ty=BF16_PTR)] = T.reinterpret(BF16_PTR, K_)
        K = T.decl_buffer((n_seqs * HQ * D,), "bfloat16", data=Kp)
        Vp: T.let[T.Var(name="Vp", ty=BF16_PTR)] = T.reinterpret(BF16_PTR, V_)
        V = T.decl_buffer((N * D,), "bfloat16", data=Vp)
        Gp: T.let[T.Var(name="Gp", ty=F32_PTR)] = T.reinterpret(F32_PTR, G_)
        G = T.decl_buffer((N,), "float32", data=Gp)
        Bp: T.let[T.Var(name="Bp", ty=F32_PTR)] = T.reinterpret(F32_PTR, B_)
        B = T.decl_buffer((N,), "float32", data=Bp)
        Sp: T.let[T.Var(name="Sp", ty=F32_PTR)] = T.reinterpret(F32_PTR, S_)
        S = T.decl_buffer((N * D * D,), "float32", data=Sp)
        Op: T.let[T.Var(name="Op", ty=BF16_PTR)] = T.reinterpret(BF16_PTR, O_)
        O = T.decl_buffer((N * D,), "bfloat16", data=Op)
        SNp: T.let[T.Var(name="SNp", ty=F32_PTR)] = T.reinterpret(F32_PTR, SN_)
        SN = T.decl_buffer((N * D * D,), "float32", data=SNp)
        grp: T.let = tx // 32
        lane: T.let = tx % 32
        ring = T.alloc_buffer((STAGES * D * D,), "float32", scope="shared.dyn")
        full = T.alloc_shared((STAGES,), "uint64")
        sk = T.alloc_shared((2 * D,), "float32")
        sq = T.alloc_shared((2 * D,), "float32")
        red = T.alloc_shared((NG * 2 * D,), "float32")
        st = T.alloc_local((NR * 4,), "float32")
        a = T.alloc_local((8,), "float32")
        b = T.alloc_local((8,), "float32")
        u = T.alloc_local((4,), "float32")
        o4 = T.alloc_local((4,), "float32")
        kr = T.alloc_local((4,), "bfloat16")
        qr = T.alloc_local((4,), "bfloat16")
        vr = T.alloc_local((4,), "bfloat16")
        vn = T.alloc_local((4,), "bfloat16")
        n = T.alloc_local((3,), "float32")
        if tx == 0:
            for i in T.unroll(STAGES):
                T.ptx.mbarrier.init.shared.b64(full.ptr_to([i]), T.uint32(1))
            T.ptx["fence.mbarrier_init.release.cluster"]()
            for i in T.unroll(STAGES):
                if bx + i * GRID < N:
                    T.ptx.mbarrier.arrive.expect_tx.shared.b64(full.ptr_to([i]), T.uint32(D * D * 4))
                    T.ptx[BULK](ring.ptr_to([i * D * D]), S.ptr_to([(bx + i * GRID) * D * D]), T.uint32(D * D * 4),
                                full.ptr_to([i]))
        T.cuda.cta_sync()
        head: T.int32 = bx
        stage: T.int32 = 0
        phase: T.int32 = 0
        par: T.int32 = 0
        kq: T.float32 = 0.0
        nh: T.int32 = T.min(bx, N - 1)
        kr.vstore([0], K.vload([(nh // 2) * D + lane * 4], dtype="bfloat16x4"))
        qr.vstore([0], Q.vload([(nh // 2) * D + lane * 4], dtype="bfloat16x4"))
        vn.vstore([0], V.vload([nh * D + lane * 4], dtype="bfloat16x4"))
        beta_n: T.float32 = B[nh]
        decay_n: T.float32 = G[nh]
        while head < N:
            if tx < 32:
                for i in T.unroll(3):
                    n[i] = T.float32(0)
                for i in T.unroll(4):
                    kf: T.float32 = T.cast(kr[i], "float32")
                    qf: T.float32 = T.cast(qr[i], "float32")
                    n[0] = n[0] + kf * kf
                    n[1] = n[1] + qf * qf
                    n[2] = n[2] + kf * qf
                for i in T.unroll(5):
                    for j in T.unroll(3):
                        n[j] = n[j] + T.tvm_warp_shuffle_xor(T.uint32(FULL), n[j], 16 >> i, 32, 32)
                rk: T.float32 = T.float32(1) / T.sqrt(n[0] + T.float32(1e-6))
                rq: T.float32 = T.float32(128 ** -0.5) / T.sqrt(n[1] + T.float32(1e-6))
                kq = n[2] * rk * rq
                for i in T.unroll(4):
                    sk[par + lane * 4 + i] = T.cast(kr[i], "float32") * rk
                    sq[par + lane * 4 + i] = T.cast(qr[i], "float32") * rq
            beta: T.float32 = beta_n
            decay: T.float32 = T.exp(decay_n)
            for i in T.unroll(4):
                vr[i] = vn[i]
            nh = T.min(head + GRID, N - 1)
            kr.vstore([0], K.vload([(nh // 2) * D + lane * 4], dtype="bfloat16x4"))
            qr.vstore([0], Q.vload([(nh // 2) * D + lane * 4], dtype="bfloat16x4"))
            vn.vstore([0], V.vload([nh * D + lane * 4], dtype="bfloat16x4"))
            beta_n = B[nh]
            decay_n = G[nh]
            T.cuda.mbarrier_wait(full.ptr_to([stage]), phase)
            for r in T.unroll(NR):
                st.vstore([r * 4], ring.vload([stage * D * D + (r * NG + grp) * D + lane * 4], dtype="float32x4"))
            T.cuda.cta_sync()
            for i in T.unroll(8):
                a[i] = T.float32(0)
            for r in T.unroll(NR):
                ki: T.float32 = sk[par + r * NG + grp]
                qi: T.float32 = sq[par + r * NG + grp]
                for i in T.unroll(4):
                    st[r * 4 + i] = st[r * 4 + i] * decay
                    a[i] = a[i] + ki * st[r * 4 + i]
                    a[4 + i] = a[4 + i] + qi * st[r * 4 + i]
            red.vstore([grp * 2 * D + lane * 4], a.vload([0], dtype="float32x4"))
            red.vstore([grp * 2 * D + D + lane * 4], a.vload([4], dtype="float32x4"))
            T.cuda.cta_sync()
            # Every thread holds its part of the state in registers: the slot may be filled again.
            if tx == 0:
                if head + STAGES * GRID < N:
                    T.ptx.mbarrier.arrive.expect_tx.shared.b64(full.ptr_to([stage]), T.uint32(D * D * 4))
                    T.ptx[BULK](ring.ptr_to([stage * D * D]), S.ptr_to([(head + STAGES * GRID) * D * D]),
                                T.uint32(D * D * 4), full.ptr_to([stage]))
            for i in T.unroll(8):
                a[i] = T.float32(0)
            for w in T.unroll(NG):
                b.vstore([0], red.vload([w * 2 * D + lane * 4], dtype="float32x4"))
                b.vstore([4], red.vload([w * 2 * D + D + lane * 4], dtype="float32x4"))
                for i in T.unroll(8):
                    a[i] = a[i] + b[i]
            for i in T.unroll(4):
                u[i] = beta * (T.cast(vr[i], "float32") - a[i])
            for r in T.unroll(NR):
                kj: T.float32 = sk[par + r * NG + grp]
                for i in T.unroll(4):
                    o4[i] = st[r * 4 + i] + kj * u[i]
                SN.vstore([head * D * D + (r * NG + grp) * D + lane * 4], o4.vload([0], dtype="float32x4"))
            if tx < 32:
                for i in T.unroll(4):
                    vr[i] = T.cast(a[4 + i] + kq * u[i], "bfloat16")
                O.vstore([head * D + lane * 4], vr.vload([0], dtype="bfloat16x4"))
            par = D - par
            head += GRID
            stage += 1
            if stage == STAGES:
                stage = 0
                phase = 1 - phase

    return gdn


@functools.lru_cache(maxsize=None)
def compiled(n_seqs):
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})
    return tvm.compile(tvm.IRModule({"main": make_kernel(n_seqs)}), target=target, tir_pipeline="tirx")


def build():
    return compiled(96)


@functools.lru_cache(maxsize=None)
def launcher(n_seqs):
    # The executable's own call walks its import tree every time; its function does not.
    return compiled(n_seqs).jit()["main"]


def solve(q, k, v, log_decay, beta, state):
    import cupy

    out = cupy.empty(v.shape, v.dtype)
    new = cupy.empty(state.shape, state.dtype)
    launcher(v.shape[0])(q.data.ptr, k.data.ptr, v.data.ptr, log_decay.data.ptr, beta.data.ptr, state.data.ptr,
                         out.data.ptr, new.data.ptr)
    return out, new
