"""The least time in which a device can move a problem's bytes and do its operations: what is faster cannot be."""

import os
import time
from dataclasses import dataclass
from functools import cache
from typing import Any

from runner.arrays import Arrays

# Upper bounds, not expectations: the data sheet's densest rates for an H200 (SXM), TF32 and int8 tensor units included.
CUDA_OPERATIONS_PER_S = {"bf16": 9.9e14, "f16": 9.9e14, "f32": 4.95e14, "fp8": 1.98e15, "int": 1.98e15}
CPU_OPERATIONS_PER_CORE_S = 3.2e11  # two 512-bit fused multiply-adds a cycle in float32, at 5 GHz
IMPOSSIBLE_SHARE = 0.8
_COPY_BYTES = {"cuda": 1 << 30, "cpu": 64 << 20}
_HEADROOM = {
    "cuda": 1.15,
    "cpu": 4.0,
}  # what is read alone moves faster than a copy; a processor's caches, faster still


@dataclass(frozen=True)
class Roof:
    """A device's measured copy rate in bytes a second, its cache in bytes, its operation rates a second by unit."""

    bytes_per_s: float
    cache_bytes: int
    operations_per_s: dict[str, float]

    def floor_ms(self, work: dict[str, Any]) -> float:
        """Least time of `work` (`n_bytes`, `n_operations`, `unit`), in milliseconds.

        Results may stay in the cache when the clock stops, so that many bytes are given away.
        """
        n_bytes = max(0.0, work["n_bytes"] - self.cache_bytes)
        rate = self.operations_per_s.get(work.get("unit"), max(self.operations_per_s.values()))
        return 1e3 * max(n_bytes / self.bytes_per_s, work.get("n_operations", 0) / rate)


@cache
def measure(arrays: Arrays) -> Roof:
    """Measure the device's copy rate once in this process (about 50 ms)."""
    xp, n_bytes = arrays.xp, _COPY_BYTES[arrays.device]
    source, target = xp.ones(n_bytes // 4, xp.float32), xp.empty(n_bytes // 4, xp.float32)
    best_s = min(_copy_s(arrays, source, target) for _ in range(5))
    rate = 2 * n_bytes / best_s * _HEADROOM[arrays.device]
    del source, target
    arrays.release()
    if arrays.device == "cuda":
        cache_bytes = int(arrays.runtime.getDeviceProperties(0).get("l2CacheSize", 60 << 20))
        return Roof(rate, cache_bytes, CUDA_OPERATIONS_PER_S)
    n_cores = os.cpu_count() or 1
    return Roof(rate, 64 << 20, dict.fromkeys(CUDA_OPERATIONS_PER_S, CPU_OPERATIONS_PER_CORE_S * n_cores))


def _copy_s(arrays: Arrays, source: Any, target: Any) -> float:
    arrays.synchronise()
    started = time.perf_counter()
    target[...] = source
    arrays.synchronise()
    return time.perf_counter() - started


def impossible(kernel_ms: float, floor_ms: float) -> str | None:
    """Why a time is refused: it lies below what the device could do at its very best."""
    if kernel_ms < IMPOSSIBLE_SHARE * floor_ms:
        return f"impossible time: {kernel_ms:.4f} ms, the device needs {floor_ms:.4f} ms at the very least"
    return None
