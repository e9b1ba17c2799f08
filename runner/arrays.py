"""NumPy or CuPy behind one name: draw, synchronise, time one call, cold caches, raw memory."""

import time
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from runner.errors import UserError

DEVICES = ("cuda", "cpu")
_DTYPES = {"bfloat16": np.dtype(ml_dtypes.bfloat16)}
_HOST_CACHE_BYTES = 32 << 20
_L2_FLUSH_BYTES = 256 << 20


def dtype_of(name: str) -> np.dtype:
    """The array type of a type's name, `bfloat16` included."""
    return _DTYPES.get(name) or np.dtype(name)


def is_array(value: Any) -> bool:
    """Whether an input travels as memory (anything else travels as a plain number)."""
    return hasattr(value, "shape") and hasattr(value, "dtype") and hasattr(value, "nbytes")


class HostArrays:
    """NumPy on the processor; its clock is `perf_counter_ns`, its cold cache a buffer larger than the caches."""

    device = "cpu"

    def __init__(self) -> None:
        self.xp = np
        self._flush = np.zeros(_HOST_CACHE_BYTES // 8)

    def describe(self) -> str:
        """The processor's name, as the operating system tells it."""
        try:
            with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as stream:
                for line in stream:
                    if line.startswith("model name"):
                        return line.split(":", 1)[1].strip()
        except OSError:
            pass
        return "cpu"

    def generator(self, seed: int) -> Any:
        return np.random.default_rng(seed)

    def synchronise(self) -> None:
        """Nothing runs behind the processor's back."""

    def flush_cache(self) -> None:
        """Read and write more than the caches hold."""
        self._flush += 1.0

    def touch(self) -> None:
        """Have the clock's own code warm when it counts."""
        self.timed(_nothing)

    def timed(self, call: Callable[[], Any]) -> tuple[float, Any]:
        """Milliseconds of one call, and what it returned."""
        started = time.perf_counter_ns()
        result = call()
        return (time.perf_counter_ns() - started) / 1e6, result

    def release(self) -> None:
        """NumPy keeps no pool."""

    def to_host(self, array: Any) -> np.ndarray:
        return np.asarray(array)


class CudaArrays:
    """CuPy on the first visible GPU; its clock is a pair of events around the call and a whole-device synchronise."""

    device = "cuda"

    def __init__(self) -> None:
        import cupy

        self.xp = cupy
        self.runtime = cupy.cuda.runtime
        self.runtime.setDevice(0)
        self._start = cupy.cuda.Event()
        self._stop = cupy.cuda.Event()
        self._flush_at: int | None = None
        self._touched: Any = None
        self._round = 0

    def describe(self) -> str:
        name = self.runtime.getDeviceProperties(0)["name"]
        return name.decode() if isinstance(name, bytes) else str(name)

    def generator(self, seed: int) -> Any:
        return self.xp.random.default_rng(seed)

    def synchronise(self) -> None:
        self.runtime.deviceSynchronize()

    def flush_cache(self) -> None:
        """Write more than the L2 cache holds, and wait for it."""
        if self._flush_at is None:
            self._flush_at = self.runtime.malloc(_L2_FLUSH_BYTES)
        self._round = (self._round + 1) % 256
        self.runtime.memset(self._flush_at, self._round, _L2_FLUSH_BYTES)
        self.runtime.deviceSynchronize()

    def touch(self) -> None:
        """Run one small kernel, so that the device's switch to this process is over before a clock starts.

        Filling memory would not do: a copy engine can do that, while the compute units still belong to somebody else.
        """
        if self._touched is None:
            self._touched = self.xp.zeros(32, self.xp.float32)
        self.xp.add(self._touched, 1.0, out=self._touched)
        self.timed(_nothing)  # the clock's own code is warm, too, when it counts

    def clear(self, arrays: tuple) -> None:
        """Start to fill arrays with zeros: some work for the device that is no kernel."""
        for array in arrays:
            if array.nbytes:
                self.runtime.memsetAsync(array.data.ptr, 0, array.nbytes, 0)

    def timed(self, call: Callable[[], Any]) -> tuple[float, Any]:
        self.runtime.deviceSynchronize()
        self._start.record()
        result = call()
        self.runtime.deviceSynchronize()
        self._stop.record()
        self._stop.synchronize()
        return self.xp.cuda.get_elapsed_time(self._start, self._stop), result

    def release(self) -> None:
        """Give the pool's unused memory back to the device, where the child needs it."""
        self.xp.get_default_memory_pool().free_all_blocks()

    def to_host(self, array: Any) -> np.ndarray:
        return self.xp.asnumpy(array)


def _nothing() -> None:
    return None


Arrays = HostArrays | CudaArrays
_opened: dict[str, Arrays] = {}


def n_gpus() -> int:
    """How many GPUs this process can use; 0 without CuPy or a driver."""
    return _count_gpus()[0]


def _count_gpus() -> tuple[int, str]:
    try:
        import cupy

        return int(cupy.cuda.runtime.getDeviceCount()), ""
    except Exception as fault:  # an absent package, driver or device all mean the same here, and CuPy's errors vary
        return 0, f" ({type(fault).__name__}: {str(fault)[:200]})"


def open_arrays(device: str) -> Arrays:
    """The arrays of a device, opened once in this process.

    Raises:
        UserError: the device is unknown, or no GPU can be used.
    """
    if device not in DEVICES:
        raise UserError(f"{device!r}: a device is cuda or cpu")
    if device not in _opened:
        if device == "cuda" and not n_gpus():
            raise UserError(
                f"cuda: no GPU that CuPy can use{_count_gpus()[1]}; install the extra `gpu` on a machine with one, "
                "or say --device cpu"
            )
        _opened[device] = CudaArrays() if device == "cuda" else HostArrays()
    return _opened[device]
