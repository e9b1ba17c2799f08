"""s1 with eight tokens in flight a warp, so that page look-ups and rows overlap; pages not sorted yet."""
import cutlass
import cutlass.cute as cute
from cutlass.cute.runtime import make_ptr

N_WARPS, U = 8, 8               # U tokens a warp has in flight
THREADS = 32 * N_WARPS
SCALE, LOW = 128 ** -0.5, -1.0e30
BF16, F32, I32 = cutlass.BFloat16, cutlass.Float32, cutlass.Int32
_cache = {}


@cute.jit
def _warp_sum(x):
    for k in cutlass.range_constexpr(5):
        x = x + cute.arch.shuffle_sync_bfly(x, offset=16 >> k)
    return x


@cute.kernel
def _decode(gq: cute.Tensor, gk: cute.Tensor, gv: cute.Tensor, gip: cute.Tensor, gix: cute.Tensor, gout: cute.Tensor,
            glse: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    g, seq, _ = cute.arch.block_idx()
    warp, lane = tid // 32, tid % 32
    sacc = cute.make_tensor(cute.arch.alloc_smem(F32, N_WARPS * 512, 16), cute.make_layout((4, 32, 4, N_WARPS)))
    sms = cute.make_tensor(cute.arch.alloc_smem(F32, N_WARPS * 8, 16), cute.make_layout((2, 4, N_WARPS)))
    fq = cute.make_rmem_tensor(cute.make_layout((4, 4)), BF16)
    fk = cute.make_rmem_tensor(cute.make_layout((4, U)), BF16)
    fv = cute.make_rmem_tensor(cute.make_layout((4, U)), BF16)
    acc = cute.make_rmem_tensor(cute.make_layout((4, 4)), F32)
    top = cute.make_rmem_tensor(cute.make_layout(4), F32)
    norm = cute.make_rmem_tensor(cute.make_layout(4), F32)
    for h in cutlass.range_constexpr(4):
        cute.autovec_copy(gq[None, lane, h, g, seq], fq[None, h])
        top[h] = F32(LOW)
        norm[h] = F32(0.0)
        for j in cutlass.range_constexpr(4):
            acc[j, h] = F32(0.0)
    begin = gip[seq]
    count = gip[seq + 1] - begin
    n_steps = (count + N_WARPS * U - 1) // (N_WARPS * U)
    for it in cutlass.range(n_steps):
        for u in cutlass.range_constexpr(U):
            place = (it * U + u) * N_WARPS + warp
            if place >= count:
                place = count - 1
            page = gix[begin + place]
            cute.autovec_copy(gk[None, lane, g, page], fk[None, u])
            cute.autovec_copy(gv[None, lane, g, page], fv[None, u])
        for u in cutlass.range_constexpr(U):
            if (it * U + u) * N_WARPS + warp < count:
                for h in cutlass.range_constexpr(4):
                    d = fq[0, h].to(F32) * fk[0, u].to(F32)
                    for j in cutlass.range_constexpr(1, 4):
                        d = d + fq[j, h].to(F32) * fk[j, u].to(F32)
                    d = _warp_sum(d) * F32(SCALE)
                    high = cute.arch.fmax(top[h], d)
                    old = cute.math.exp(top[h] - high)
                    p = cute.math.exp(d - high)
                    top[h] = high
                    norm[h] = norm[h] * old + p
                    for j in cutlass.range_constexpr(4):
                        acc[j, h] = acc[j, h] * old + p * fv[j, u].to(F32)
    for h in cutlass.range_constexpr(4):
        cute.autovec_copy(acc[None, h], sacc[None, lane, h, warp])
    if lane == 0:
        for h in cutlass.range_constexpr(4):
            sms[0, h, warp] = top[h]
            sms[1, h, warp] = norm[h]
    cute.arch.sync_threads()
    if warp < 4:
        high = F32(LOW)
        for w in cutlass.range_constexpr(N_WARPS):
            high = cute.arch.fmax(high, sms[0, warp, w])
        total = F32(0.0)
        mixed = cute.make_rmem_tensor(cute.make_layout(4), F32)
        for j in cutlass.range_constexpr(4):
            mixed[j] = F32(0.0)
        for w in cutlass.range_constexpr(N_WARPS):
            share = cute.math.exp(sms[0, warp, w] - high)
            total = total + sms[1, warp, w] * share
            for j in cutlass.range_constexpr(4):
                mixed[j] = mixed[j] + sacc[j, lane, warp, w] * share
        inverse = F32(1.0) / cute.arch.fmax(total, F32(1.0e-30))
        out = cute.make_rmem_tensor(cute.make_layout(4), BF16)
        for j in cutlass.range_constexpr(4):
            out[j] = (mixed[j] * inverse).to(BF16)
        cute.autovec_copy(out, gout[None, lane, warp, g, seq])
        if lane == 0:
            if count > 0:
                glse[warp, g, seq] = cute.math.log(total) + high
            else:
                glse[warp, g, seq] = -F32.inf


def _make_launch(n, pages, tokens):
    @cute.jit
    def _launch(q: cute.Pointer, k: cute.Pointer, v: cute.Pointer, ip: cute.Pointer, ix: cute.Pointer, out: cute.Pointer,
                lse: cute.Pointer):
        heads = cute.make_layout((4, 32, 4, 8, n))
        cache = cute.make_layout((4, 32, 8, pages))
        _decode(cute.make_tensor(q, heads), cute.make_tensor(k, cache), cute.make_tensor(v, cache),
                cute.make_tensor(ip, cute.make_layout(n + 1)), cute.make_tensor(ix, cute.make_layout(tokens)),
                cute.make_tensor(out, heads), cute.make_tensor(lse, cute.make_layout((4, 8, n)))).launch(
            grid=(8, n, 1), block=(THREADS, 1, 1))
    return _launch


def _pointers():
    kinds = (BF16, BF16, BF16, I32, I32, BF16, F32)
    return [make_ptr(kind, 0, cute.AddressSpace.gmem, assumed_align=16) for kind in kinds]


def build(n=64, pages=147456, tokens=131072):
    key = (n, pages, tokens)
    if key not in _cache:
        _cache[key] = cute.compile(_make_launch(*key), *_pointers(), options="--gpu-arch sm_90a")
    return _cache[key]


def solve(q, k_cache, v_cache, kv_indptr, kv_indices):
    import cupy
    if "ptrs" not in _cache:
        _cache["ptrs"] = _pointers()
    out = cupy.empty(q.shape, q.dtype)
    lse = cupy.empty(q.shape[:2], "float32")
    ptrs = _cache["ptrs"]
    for p, a in zip(ptrs, (q, k_cache, v_cache, kv_indptr, kv_indices, out, lse)):
        p._desc.value = a.data.ptr
    build(q.shape[0], k_cache.shape[0], kv_indices.shape[0])(*ptrs)
    return out, lse
