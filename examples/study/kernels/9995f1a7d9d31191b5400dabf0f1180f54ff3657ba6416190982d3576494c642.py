"""s1 with eight tokens in flight a warp, so that page look-ups and rows overlap; no sort of the pages yet."""
import tvm
from tvm.script import tirx as T

WARPS = 8
THREADS = 32 * WARPS
U = 8                        # tokens a warp has in flight
SCALE = 128 ** -0.5
LOW = -1.0e30


@T.prim_func
def decode(q_ptr: T.handle, k_ptr: T.handle, v_ptr: T.handle, p_ptr: T.handle, i_ptr: T.handle, o_ptr: T.handle,
           l_ptr: T.handle):
    n = T.int32()
    m1 = T.int32()
    pages = T.int32()
    tokens = T.int32()
    q = T.match_buffer(q_ptr, (n, 32, 128), "bfloat16", align=16)
    kc = T.match_buffer(k_ptr, (pages, 1, 8, 128), "bfloat16", align=16)
    vc = T.match_buffer(v_ptr, (pages, 1, 8, 128), "bfloat16", align=16)
    ip = T.match_buffer(p_ptr, (m1,), "int32")
    ix = T.match_buffer(i_ptr, (tokens,), "int32")
    o = T.match_buffer(o_ptr, (n, 32, 128), "bfloat16", align=16)
    ls = T.match_buffer(l_ptr, (n, 32), "float32")
    T.device_entry()
    bx = T.cta_id([n * 8])
    tx = T.thread_id([THREADS])
    qw = T.decl_buffer((n * 32, 64), "uint32", data=q.data)
    kw = T.decl_buffer((pages * 8, 64), "uint32", data=kc.data)
    vw = T.decl_buffer((pages * 8, 64), "uint32", data=vc.data)
    ow = T.decl_buffer((n * 32, 64), "uint32", data=o.data)
    lf = T.decl_buffer((n * 32,), "float32", data=ls.data)
    sacc = T.alloc_shared((WARPS, 4, 128), "float32")
    sms = T.alloc_shared((WARPS, 4, 2), "float32")
    seq: T.let = bx // 8
    g: T.let = bx % 8
    warp: T.let = tx // 32
    lane: T.let = tx % 32
    qr = T.alloc_local((8,), "uint32")
    qf = T.alloc_local((16,), "float32")
    kr = T.alloc_local((2 * U,), "uint32")
    vr = T.alloc_local((2 * U,), "uint32")
    kf = T.alloc_local((4,), "float32")
    vf = T.alloc_local((4,), "float32")
    acc = T.alloc_local((16,), "float32")
    mx = T.alloc_local((4,), "float32")
    sm = T.alloc_local((4,), "float32")
    t = T.alloc_local((4,), "float32")
    pg = T.alloc_local((U,), "int32")
    for h in T.unroll(4):
        for j in T.vectorized(2):
            qr[h * 2 + j] = qw[seq * 32 + g * 4 + h, lane * 2 + j]
    for h in T.unroll(4):
        for j in T.unroll(2):
            qf[h * 4 + 2 * j] = T.cuda.uint_as_float(qr[h * 2 + j] << T.uint32(16))
            qf[h * 4 + 2 * j + 1] = T.cuda.uint_as_float(qr[h * 2 + j] & T.uint32(0xFFFF0000))
        mx[h] = T.float32(LOW)
        sm[h] = T.float32(0)
        for j in T.unroll(4):
            acc[h * 4 + j] = T.float32(0)
    begin: T.let = ip[seq]
    count: T.let = ip[seq + 1] - begin
    for it in T.serial((count + WARPS * U - 1) // (WARPS * U)):
        for u in T.unroll(U):
            pg[u] = ix[T.min(begin + (it * U + u) * WARPS + warp, begin + count - 1)]
        for u in T.unroll(U):
            for j in T.vectorized(2):
                kr[u * 2 + j] = kw[pg[u] * 8 + g, lane * 2 + j]
        for u in T.unroll(U):
            for j in T.vectorized(2):
                vr[u * 2 + j] = vw[pg[u] * 8 + g, lane * 2 + j]
        for u in T.unroll(U):
            if (it * U + u) * WARPS + warp < count:
                for j in T.unroll(2):
                    kf[2 * j] = T.cuda.uint_as_float(kr[u * 2 + j] << T.uint32(16))
                    kf[2 * j + 1] = T.cuda.uint_as_float(kr[u * 2 + j] & T.uint32(0xFFFF0000))
                    vf[2 * j] = T.cuda.uint_as_float(vr[u * 2 + j] << T.uint32(16))
                    vf[2 * j + 1] = T.cuda.uint_as_float(vr[u * 2 + j] & T.uint32(0xFFFF0000))
                for h in T.unroll(4):
                    t[0] = qf[h * 4] * kf[0] + qf[h * 4 + 1] * kf[1] + qf[h * 4 + 2] * kf[2] + qf[h * 4 + 3] * kf[3]
                    t[0] = T.cuda.warp_sum(t[0]) * T.float32(SCALE)
                    t[1] = T.max(mx[h], t[0])
                    t[2] = T.exp(mx[h] - t[1])
                    t[3] = T.exp(t[0] - t[1])
                    mx[h] = t[1]
                    sm[h] = sm[h] * t[2] + t[3]
                    for j in T.unroll(4):
                        acc[h * 4 + j] = acc[h * 4 + j] * t[2] + t[3] * vf[j]
    for h in T.unroll(4):
        for j in T.vectorized(4):
            sacc[warp, h, lane * 4 + j] = acc[h * 4 + j]
    if lane == 0:
        for h in T.unroll(4):
            sms[warp, h, 0] = mx[h]
            sms[warp, h, 1] = sm[h]
    T.cuda.cta_sync()
    head: T.let = tx // 64
    pair: T.let = tx % 64
    t[0] = T.float32(LOW)
    for w in T.unroll(WARPS):
        t[0] = T.max(t[0], sms[w, head, 0])
    t[1] = T.float32(0)
    acc[0] = T.float32(0)
    acc[1] = T.float32(0)
    for w in T.unroll(WARPS):
        t[2] = T.exp(sms[w, head, 0] - t[0])
        t[1] = t[1] + sms[w, head, 1] * t[2]
        acc[0] = acc[0] + sacc[w, head, pair * 2] * t[2]
        acc[1] = acc[1] + sacc[w, head, pair * 2 + 1] * t[2]
    t[3] = T.float32(1) / T.max(t[1], T.float32(1.0e-30))
    ow[seq * 32 + g * 4 + head, pair] = T.cuda.float22bfloat162_rn(acc[0] * t[3], acc[1] * t[3])
    if pair == 0:
        if count > 0:
            lf[seq * 32 + g * 4 + head] = T.log(t[1]) + t[0]
        else:
            lf[seq * 32 + g * 4 + head] = T.cuda.uint_as_float(T.uint32(0xFF800000))


_exe = None
_run = None
_cp = None


def build():
    global _exe
    if _exe is None:
        _exe = tvm.compile(tvm.IRModule({"main": decode}),
                           target=tvm.target.Target({"kind": "cuda", "arch": "sm_90a"}), tir_pipeline="tirx")
    return _exe


def solve(q, k_cache, v_cache, kv_indptr, kv_indices):
    global _run, _cp
    if _run is None:
        import cupy
        _run, _cp = build()["main"], cupy
    out = _cp.empty(q.shape, q.dtype)
    lse = _cp.empty(q.shape[:2], "float32")
    _run(q, k_cache, v_cache, kv_indptr, kv_indices, out, lse)
    return out, lse
