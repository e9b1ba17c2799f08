"""As s4 (address-sorted pages, bulk gather ring, mma), and a block whose range holds two sequences works on both at once,
tile by tile in proportion (two sets of accumulators), so that every block sweeps the cache once and in step."""
import functools

import tvm
from tvm.script import tirx as T

H, HK, D, GRP = 32, 8, 128, 4
N_CTA = 132
THREADS = 288
TILE = 16
STAGES = 3
NB = 256
KS = 1056
VS = 1032
BULK = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
SCALE_LOG2 = 128 ** -0.5 * 1.4426950408889634
LN2 = 0.6931471805599453
FULL = 0xFFFFFFFF
MMA = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"


def make_kernels(n_seqs, n_tokens, n_pages):
    L = -(-n_tokens // N_CTA)
    SLOTS = N_CTA + n_seqs
    BW = -(-n_pages // NB)
    NCHK = -(-n_seqs // 32)

    @T.prim_func
    def attn(Q: T.Buffer((n_seqs, H, D), "bfloat16"), K: T.Buffer((n_pages, 1, HK, D), "bfloat16"),
             V: T.Buffer((n_pages, 1, HK, D), "bfloat16"), PTR: T.Buffer((n_seqs + 1,), "int32"),
             IDX: T.Buffer((n_tokens,), "int32"), PO: T.Buffer((SLOTS * H * D,), "float32"),
             PM: T.Buffer((SLOTS * H,), "float32"), PL: T.Buffer((SLOTS * H,), "float32")):
        T.device_entry()
        bx = T.cta_id([N_CTA])
        tx = T.thread_id([THREADS])
        Q32 = T.decl_buffer((n_seqs * H * D // 2,), "uint32", data=Q.data)
        K1 = T.decl_buffer((n_pages * HK * D,), "bfloat16", data=K.data)
        V1 = T.decl_buffer((n_pages * HK * D,), "bfloat16", data=V.data)
        arena = T.alloc_buffer((STAGES * TILE * (KS + VS),), "bfloat16", scope="shared.dyn")
        A32 = T.decl_buffer((STAGES * TILE * (KS + VS) // 2,), "uint32", data=arena.data, scope="shared.dyn")
        full = T.alloc_shared((STAGES,), "uint64")
        empty = T.alloc_shared((STAGES,), "uint64")
        sidx = T.alloc_shared((L,), "int32")
        hist = T.alloc_shared((NB,), "int32")
        cnt = T.alloc_local((8,), "int32")
        warp: T.let = tx // 32
        lane: T.let = tx % 32
        r: T.let = (tx % 32) // 4
        c: T.let = tx % 4
        q = T.alloc_local((32,), "uint32")
        m = T.alloc_local((2,), "float32")
        l = T.alloc_local((2,), "float32")
        seg = T.alloc_local((2,), "int32")
        beg = T.alloc_local((2,), "int32")
        end = T.alloc_local((2,), "int32")
        it = T.alloc_local((2,), "int32")
        nt = T.alloc_local((2,), "int32")
        kr = T.alloc_local((32,), "uint32")
        vr = T.alloc_local((32,), "uint32")
        acc = T.alloc_local((64,), "float32")
        sc = T.alloc_local((4,), "float32")
        p = T.alloc_local((2,), "uint32")
        w = T.alloc_local((4,), "uint32")
        dz = T.alloc_local((2,), "float32")
        t: T.int32 = bx * L
        t1: T.int32 = T.min(bx * L + L, n_tokens)
        s: T.int32 = 0
        stage: T.int32 = 0
        phase: T.int32 = 0
        for i in T.unroll(NCHK):
            if i * 32 + lane < n_seqs:
                if PTR[i * 32 + lane + 1] <= t:
                    s += 1
        for i in T.unroll(5):
            s += T.tvm_warp_shuffle_xor(T.uint32(FULL), s, 16 >> i, 32, 32)
        if tx == 0:
            for i in T.unroll(STAGES):
                T.ptx.mbarrier.init.shared.b64(full.ptr_to([i]), T.uint32(1))
                T.ptx.mbarrier.init.shared.b64(empty.ptr_to([i]), T.uint32(8))
            T.ptx["fence.mbarrier_init.release.cluster"]()
        T.cuda.cta_sync()
        # Bucket sort of each segment's pages by address (softmax does not mind the order): blocks then sweep the cache
        # together, which keeps address translation local.
        ts: T.int32 = t
        s2: T.int32 = s
        while ts < t1:
            es: T.int32 = T.min(PTR[s2 + 1], t1)
            if es > ts:
                if tx < NB:
                    hist[tx] = 0
                T.cuda.cta_sync()
                i0: T.int32 = ts + tx
                while i0 < es:
                    T.evaluate(T.cuda.atomic_add(hist.ptr_to([IDX[i0] // BW]), 1))
                    i0 += THREADS
                T.cuda.cta_sync()
                if tx < 32:
                    own: T.int32 = 0
                    for i in T.unroll(8):
                        cnt[i] = hist[tx * 8 + i]
                        own += cnt[i]
                    inc: T.int32 = own
                    for i in T.unroll(5):
                        up: T.int32 = T.tvm_warp_shuffle_up(T.uint32(FULL), inc, 1 << i, 32, 32)
                        if lane >= (1 << i):
                            inc += up
                    inc = inc - own
                    for i in T.unroll(8):
                        hist[tx * 8 + i] = inc
                        inc += cnt[i]
                T.cuda.cta_sync()
                i1: T.int32 = ts + tx
                while i1 < es:
                    pg: T.int32 = IDX[i1]
                    at: T.int32 = T.cuda.atomic_add(hist.ptr_to([pg // BW]), 1)
                    sidx[ts - bx * L + at] = pg
                    i1 += THREADS
                T.cuda.cta_sync()
            ts = es
            s2 += 1
        while t < t1:
            while PTR[s + 1] <= t:
                s += 1
            for g in T.unroll(2):
                seg[g] = s
                beg[g] = t
                end[g] = t
                it[g] = 0
                if t < t1:
                    while PTR[s + 1] <= t:
                        s += 1
                    seg[g] = s
                    end[g] = T.min(PTR[s + 1], t1)
                    t = end[g]
                nt[g] = (end[g] - beg[g] + TILE - 1) // TILE
            if warp < 8:
                for g in T.unroll(2):
                    for v in T.unroll(4):
                        if r < 4:
                            q.vstore([g * 16 + v * 4],
                                     Q32.vload([(seg[g] * H + warp * 4 + r) * 64 + v * 16 + c * 4], dtype="uint32x4"))
                        else:
                            for i in T.unroll(4):
                                q[g * 16 + v * 4 + i] = T.uint32(0)
                    m[g] = T.float32(-1e30)
                    l[g] = T.float32(0)
                for i in T.unroll(64):
                    acc[i] = T.float32(0)
            while it[0] + it[1] < nt[0] + nt[1]:
                # Both segments advance in proportion, so that each sweeps the addresses at the blocks' common pace.
                pick: T.int32 = 0
                if it[1] < nt[1]:
                    if it[0] >= nt[0]:
                        pick = 1
                    if it[1] * nt[0] < it[0] * nt[1]:
                        pick = 1
                b: T.int32 = beg[0] + it[0] * TILE
                e: T.int32 = end[0]
                if pick == 1:
                    b = beg[1] + it[1] * TILE
                    e = end[1]
                    it[1] = it[1] + 1
                else:
                    it[0] = it[0] + 1
                if warp == 8:
                    page: T.int32 = sidx[T.min(b + lane % 16, e - 1) - bx * L]
                    T.cuda.mbarrier_wait(empty.ptr_to([stage]), 1 - phase)
                    if lane == 0:
                        T.ptx.mbarrier.arrive.expect_tx.shared.b64(full.ptr_to([stage]), T.uint32(TILE * 4096))
                    T.cuda.warp_sync()
                    if lane < 16:
                        T.ptx[BULK](arena.ptr_to([stage * TILE * (KS + VS) + lane * KS]), K1.ptr_to([page * 1024]),
                                    T.uint32(2048), full.ptr_to([stage]))
                    else:
                        T.ptx[BULK](arena.ptr_to([stage * TILE * (KS + VS) + TILE * KS + (lane - 16) * VS]),
                                    V1.ptr_to([page * 1024]), T.uint32(2048), full.ptr_to([stage]))
                else:
                    T.cuda.mbarrier_wait(full.ptr_to([stage]), phase)
                    kb: T.int32 = stage * (TILE * (KS + VS) // 8) + warp * (D // 8)
                    for x in T.unroll(2):
                        for v in T.unroll(4):
                            kr.vstore([x * 16 + v * 4], A32.vload(
                                [kb * 4 + (x * 8 + r) * (KS // 2) + v * 16 + c * 4], dtype="uint32x4"))
                    for x in T.unroll(4):
                        for v in T.unroll(2):
                            vr.vstore([x * 8 + v * 4], A32.vload(
                                [kb * 4 + TILE * KS // 2 + ((x // 2) * 8 + c * 2 + x % 2) * (VS // 2) + v * 32 + r * 4],
                                dtype="uint32x4"))
                    for g in T.unroll(2):
                        if pick == g:
                            for i in T.unroll(4):
                                sc[i] = T.float32(0)
                            for k in T.unroll(8):
                                for x in T.unroll(2):
                                    T.ptx[MMA](sc[x * 2], sc[x * 2 + 1], dz[0], dz[1],
                                               q[g * 16 + k * 2], T.uint32(0), q[g * 16 + k * 2 + 1], T.uint32(0),
                                               kr[x * 16 + k * 2], kr[x * 16 + k * 2 + 1],
                                               sc[x * 2], sc[x * 2 + 1], T.float32(0), T.float32(0))
                            for x in T.unroll(4):
                                sc[x] = sc[x] * T.float32(SCALE_LOG2)
                                if b + (x // 2) * 8 + c * 2 + x % 2 >= e:
                                    sc[x] = T.float32(-1e30)
                            mn: T.float32 = T.max(T.max(sc[0], sc[1]), T.max(sc[2], sc[3]))
                            mn = T.max(mn, T.tvm_warp_shuffle_xor(T.uint32(FULL), mn, 1, 32, 32))
                            mn = T.max(mn, T.tvm_warp_shuffle_xor(T.uint32(FULL), mn, 2, 32, 32))
                            mn = T.max(mn, m[g])
                            a: T.float32 = T.exp2(m[g] - mn)
                            m[g] = mn
                            for x in T.unroll(4):
                                sc[x] = T.exp2(sc[x] - mn)
                            l[g] = l[g] * a + ((sc[0] + sc[1]) + (sc[2] + sc[3]))
                            p[0] = T.cuda.float22bfloat162_rn(sc[0], sc[1])
                            p[1] = T.cuda.float22bfloat162_rn(sc[2], sc[3])
                            for i in T.unroll(32):
                                acc[g * 32 + i] = acc[g * 32 + i] * a
                            for v in T.unroll(2):
                                for i in T.unroll(4):
                                    for x in T.unroll(2):
                                        T.ptx["prmt.b32"](w[x], vr[x * 16 + v * 4 + i], vr[x * 16 + 8 + v * 4 + i],
                                                          T.uint32(0x5410))
                                        T.ptx["prmt.b32"](w[2 + x], vr[x * 16 + v * 4 + i],
                                                          vr[x * 16 + 8 + v * 4 + i], T.uint32(0x7632))
                                    for j in T.unroll(2):
                                        T.ptx[MMA](acc[g * 32 + v * 16 + i * 2 + j], acc[g * 32 + v * 16 + 8 + i * 2 + j],
                                                   dz[0], dz[1], p[0], T.uint32(0), p[1], T.uint32(0),
                                                   w[j * 2], w[j * 2 + 1],
                                                   acc[g * 32 + v * 16 + i * 2 + j],
                                                   acc[g * 32 + v * 16 + 8 + i * 2 + j], T.float32(0), T.float32(0))
                    T.cuda.warp_sync()
                    if lane == 0:
                        T.ptx.mbarrier.arrive.shared.b64(empty.ptr_to([stage]), T.uint32(1))
                stage += 1
                if stage == STAGES:
                    stage = 0
                    phase = 1 - phase
            if warp < 8:
                for g in T.unroll(2):
                    if nt[g] > 0:
                        l[g] = l[g] + T.tvm_warp_shuffle_xor(T.uint32(FULL), l[g], 1, 32, 32)
                        l[g] = l[g] + T.tvm_warp_shuffle_xor(T.uint32(FULL), l[g], 2, 32, 32)
                        if r < 4:
                            for v in T.unroll(2):
                                for i in T.unroll(4):
                                    PO.vstore([((bx + seg[g]) * H + warp * 4 + r) * D + v * 64 + c * 16 + i * 4],
                                              acc.vload([g * 32 + v * 16 + i * 4], dtype="float32x4"))
                            if c == 0:
                                PM[(bx + seg[g]) * H + warp * 4 + r] = m[g]
                                PL[(bx + seg[g]) * H + warp * 4 + r] = l[g]

    @T.prim_func
    def combine(PO: T.Buffer((SLOTS * H * D,), "float32"), PM: T.Buffer((SLOTS * H,), "float32"),
                PL: T.Buffer((SLOTS * H,), "float32"), PTR: T.Buffer((n_seqs + 1,), "int32"),
                O_: T.Buffer((n_seqs, H, D), "bfloat16"), LSE_: T.Buffer((n_seqs, H), "float32")):
        T.device_entry()
        bx = T.cta_id([n_seqs * HK])
        tx = T.thread_id([128])
        O = T.decl_buffer((n_seqs * H * D,), "bfloat16", data=O_.data)
        LSE = T.decl_buffer((n_seqs * H,), "float32", data=LSE_.data)
        s: T.let = bx // HK
        h: T.let = (bx % HK) * 4 + tx // 32
        d: T.let = (tx % 32) * 4
        acc = T.alloc_local((4,), "float32")
        v = T.alloc_local((4,), "float32")
        o4 = T.alloc_local((4,), "bfloat16")
        m: T.float32 = -1e30
        l: T.float32 = 0.0
        for i in T.unroll(4):
            acc[i] = T.float32(0)
        p0: T.int32 = PTR[s]
        p1: T.int32 = PTR[s + 1]
        if p1 > p0:
            g: T.int32 = p0 // L
            g1: T.int32 = (p1 - 1) // L
            while g <= g1:
                mi: T.float32 = PM[(g + s) * H + h]
                li: T.float32 = PL[(g + s) * H + h]
                v.vstore([0], PO.vload([((g + s) * H + h) * D + d], dtype="float32x4"))
                mn: T.float32 = T.max(m, mi)
                a: T.float32 = T.exp2(m - mn)
                b: T.float32 = T.exp2(mi - mn)
                m = mn
                l = l * a + li * b
                for i in T.unroll(4):
                    acc[i] = acc[i] * a + v[i] * b
                g += 1
            r: T.float32 = T.float32(1) / l
            for i in T.unroll(4):
                acc[i] = acc[i] * r
        for i in T.unroll(4):
            o4[i] = T.cast(acc[i], "bfloat16")
        O.vstore([(s * H + h) * D + d], o4.vload([0], dtype="bfloat16x4"))
        if tx % 32 == 0:
            if p1 > p0:
                LSE[s * H + h] = (m + T.log2(l)) * T.float32(LN2)
            else:
                LSE[s * H + h] = T.float32(float("-inf"))

    return attn, combine


@functools.lru_cache(maxsize=None)
def compiled(n_seqs, n_tokens, n_pages):
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})
    return tuple(tvm.compile(tvm.IRModule({"main": f}), target=target, tir_pipeline="tirx")
                 for f in make_kernels(n_seqs, n_tokens, n_pages))


def build():
    return compiled(64, 131072, 147456)


@functools.lru_cache(maxsize=None)
def launchers(n_seqs, n_tokens, n_pages):
    # The executable's own call walks its import tree every time; its function does not.
    return tuple(e.jit()["main"] for e in compiled(n_seqs, n_tokens, n_pages))


_scratch = {}


def solve(q, k_cache, v_cache, kv_indptr, kv_indices):
    import cupy

    n_seqs, n_tokens, n_pages = q.shape[0], kv_indices.shape[0], k_cache.shape[0]
    attn, combine = launchers(n_seqs, n_tokens, n_pages)
    slots = N_CTA + n_seqs
    if n_seqs not in _scratch:
        _scratch[n_seqs] = (cupy.empty(slots * H * D, cupy.float32), cupy.empty(slots * H, cupy.float32),
                            cupy.empty(slots * H, cupy.float32))
    po, pm, pl = _scratch[n_seqs]
    out = cupy.empty((n_seqs, H, D), q.dtype)
    lse = cupy.empty((n_seqs, H), cupy.float32)
    attn(q, k_cache, v_cache, kv_indptr, kv_indices, po, pm, pl)
    combine(po, pm, pl, kv_indptr, out, lse)
    return out, lse
