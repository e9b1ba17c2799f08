"""GQA paged decode, split-KV, CUDA-core version: 264 blocks take equal token ranges (balanced whatever the lengths),
warp = KV head, half-warp = one token row of 16-byte loads, float32 dot products; a second small kernel merges."""
import functools

import tvm
from tvm.script import tirx as T

H, HK, D, GRP = 32, 8, 128, 4
N_CTA = 264
SCALE_LOG2 = 128 ** -0.5 * 1.4426950408889634
LN2 = 0.6931471805599453
FULL = 0xFFFFFFFF


def make_kernels(n_seqs, n_tokens, n_pages):
    L = -(-n_tokens // N_CTA)
    SLOTS = N_CTA + n_seqs
    NCHK = -(-n_seqs // 32)

    @T.prim_func
    def attn(Q: T.Buffer((n_seqs * H * D,), "bfloat16"), K: T.Buffer((n_pages * HK * D,), "bfloat16"),
             V: T.Buffer((n_pages * HK * D,), "bfloat16"), PTR: T.Buffer((n_seqs + 1,), "int32"),
             IDX: T.Buffer((n_tokens,), "int32"), PO: T.Buffer((SLOTS * H * D,), "float32"),
             PM: T.Buffer((SLOTS * H,), "float32"), PL: T.Buffer((SLOTS * H,), "float32")):
        T.device_entry()
        T.attr({"tirx.launch_bounds_min_blocks_per_sm": 2})
        bx = T.cta_id([N_CTA])
        tx = T.thread_id([256])
        kvh: T.let = tx // 32
        lane: T.let = tx % 32
        half: T.let = (tx % 32) // 16
        c: T.let = tx % 16
        qf = T.alloc_local((32,), "float32")
        acc = T.alloc_local((32,), "float32")
        m = T.alloc_local((4,), "float32")
        l = T.alloc_local((4,), "float32")
        sc = T.alloc_local((16,), "float32")
        kr = T.alloc_local((32,), "bfloat16")
        vr = T.alloc_local((32,), "bfloat16")
        q8 = T.alloc_local((8,), "bfloat16")
        ix = T.alloc_local((4,), "int32")
        t: T.int32 = bx * L
        t1: T.int32 = T.min(bx * L + L, n_tokens)
        s: T.int32 = 0
        for i in T.unroll(NCHK):
            if i * 32 + lane < n_seqs:
                if PTR[i * 32 + lane + 1] <= t:
                    s += 1
        for i in T.unroll(5):
            s += T.tvm_warp_shuffle_xor(T.uint32(FULL), s, 16 >> i, 32, 32)
        while t < t1:
            e: T.int32 = T.min(PTR[s + 1], t1)
            if e > t:
                for h in T.unroll(4):
                    q8.vstore([0], Q.vload([((s * H) + kvh * 4 + h) * D + c * 8], dtype="bfloat16x8"))
                    for i in T.unroll(8):
                        qf[h * 8 + i] = T.cast(q8[i], "float32") * T.float32(SCALE_LOG2)
                        acc[h * 8 + i] = T.float32(0)
                    m[h] = T.float32(-1e30)
                    l[h] = T.float32(0)
                for j in T.unroll(4):
                    ix[j] = IDX[T.min(t + 2 * j + half, e - 1)]
                b: T.int32 = t
                while b < e:
                    for j in T.unroll(4):
                        kr.vstore([j * 8], K.vload([(ix[j] * HK + kvh) * D + c * 8], dtype="bfloat16x8"))
                    for j in T.unroll(4):
                        vr.vstore([j * 8], V.vload([(ix[j] * HK + kvh) * D + c * 8], dtype="bfloat16x8"))
                    for j in T.unroll(4):
                        ix[j] = IDX[T.min(b + 8 + 2 * j + half, e - 1)]
                    for j in T.unroll(4):
                        for h in T.unroll(4):
                            sc[j * 4 + h] = T.float32(0)
                        for i in T.unroll(8):
                            kf: T.float32 = T.cast(kr[j * 8 + i], "float32")
                            for h in T.unroll(4):
                                sc[j * 4 + h] = sc[j * 4 + h] + kf * qf[h * 8 + i]
                    for st in T.unroll(4):
                        for j in T.unroll(16):
                            sc[j] = sc[j] + T.tvm_warp_shuffle_xor(T.uint32(FULL), sc[j], 8 >> st, 32, 32)
                    for j in T.unroll(4):
                        if b + 2 * j + half >= e:
                            for h in T.unroll(4):
                                sc[j * 4 + h] = T.float32(-1e30)
                    for h in T.unroll(4):
                        mn: T.float32 = T.max(T.max(m[h], T.max(sc[h], sc[4 + h])), T.max(sc[8 + h], sc[12 + h]))
                        # A floor keeps exp2(masked - max) at zero while a half-warp has seen no token yet.
                        mn = T.max(mn, T.float32(-1e29))
                        a: T.float32 = T.exp2(m[h] - mn)
                        m[h] = mn
                        for j in T.unroll(4):
                            sc[j * 4 + h] = T.exp2(sc[j * 4 + h] - mn)
                        l[h] = l[h] * a + ((sc[h] + sc[4 + h]) + (sc[8 + h] + sc[12 + h]))
                        for i in T.unroll(8):
                            acc[h * 8 + i] = acc[h * 8 + i] * a
                    for j in T.unroll(4):
                        for i in T.unroll(8):
                            vf: T.float32 = T.cast(vr[j * 8 + i], "float32")
                            for h in T.unroll(4):
                                acc[h * 8 + i] = acc[h * 8 + i] + sc[j * 4 + h] * vf
                    b += 8
                for h in T.unroll(4):
                    mo: T.float32 = T.max(m[h], T.tvm_warp_shuffle_xor(T.uint32(FULL), m[h], 16, 32, 32))
                    f: T.float32 = T.exp2(m[h] - mo)
                    m[h] = mo
                    l[h] = l[h] * f
                    l[h] = l[h] + T.tvm_warp_shuffle_xor(T.uint32(FULL), l[h], 16, 32, 32)
                    for i in T.unroll(8):
                        acc[h * 8 + i] = acc[h * 8 + i] * f
                        acc[h * 8 + i] = acc[h * 8 + i] + T.tvm_warp_shuffle_xor(
                            T.uint32(FULL), acc[h * 8 + i], 16, 32, 32)
                if half == 0:
                    for h in T.unroll(4):
                        for i in T.unroll(2):
                            PO.vstore([((bx + s) * H + kvh * 4 + h) * D + c * 8 + i * 4],
                                      acc.vload([h * 8 + i * 4], dtype="float32x4"))
                    if c == 0:
                        for h in T.unroll(4):
                            PM[(bx + s) * H + kvh * 4 + h] = m[h]
                            PL[(bx + s) * H + kvh * 4 + h] = l[h]
            t = e
            s += 1

    @T.prim_func
    def combine(PO: T.Buffer((SLOTS * H * D,), "float32"), PM: T.Buffer((SLOTS * H,), "float32"),
                PL: T.Buffer((SLOTS * H,), "float32"), PTR: T.Buffer((n_seqs + 1,), "int32"),
                O: T.Buffer((n_seqs * H * D,), "bfloat16"), LSE: T.Buffer((n_seqs * H,), "float32")):
        T.device_entry()
        bx = T.cta_id([n_seqs * HK])
        tx = T.thread_id([128])
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


_scratch = {}


def solve(q, k_cache, v_cache, kv_indptr, kv_indices):
    import cupy

    n_seqs, n_tokens, n_pages = q.shape[0], kv_indices.shape[0], k_cache.shape[0]
    attn, combine = compiled(n_seqs, n_tokens, n_pages)
    slots = N_CTA + n_seqs
    if n_seqs not in _scratch:
        _scratch[n_seqs] = (cupy.empty(slots * H * D, cupy.float32), cupy.empty(slots * H, cupy.float32),
                            cupy.empty(slots * H, cupy.float32))
    po, pm, pl = _scratch[n_seqs]
    out = cupy.empty((n_seqs, H, D), q.dtype)
    lse = cupy.empty((n_seqs, H), cupy.float32)
    attn(q.reshape(-1), k_cache.reshape(-1), v_cache.reshape(-1), kv_indptr, kv_indices, po, pm, pl)
    combine(po, pm, pl, kv_indptr, out.reshape(-1), lse.reshape(-1))
    return out, lse
