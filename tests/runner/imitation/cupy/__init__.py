"""An imitation of the few CuPy calls of the evaluator, over shared host memory, to try its GPU branches with no GPU."""

import atexit
import ctypes
import mmap
import os
import time

import numpy as np
from numpy import *  # noqa: F403
from numpy import float32, float64, isfinite, isnan  # noqa: F401


class _Pointer:
    def __init__(self, address):
        self.ptr = address


class ndarray(np.ndarray):
    """NumPy's array with CuPy's constructor and `data.ptr`."""

    def __new__(cls, shape, dtype=float, memptr=None):
        if memptr is None:
            return np.empty(shape, dtype).view(cls)
        n_bytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        raw = (ctypes.c_char * (n_bytes or 1)).from_address(memptr.ptr)
        return np.frombuffer(raw, dtype, int(np.prod(shape, dtype=np.int64))).reshape(shape).view(cls)

    @property
    def data(self):
        return _Pointer(self.ctypes.data)

    def get(self):
        return np.array(self).view(np.ndarray)


def _ours(function):
    def made(*args, **kwargs):
        return np.asarray(function(*args, **kwargs)).view(ndarray)

    return made


array, zeros, ones, empty, full, where, zeros_like, empty_like, ascontiguousarray, asarray, abs, sqrt = map(
    _ours,
    (
        np.array,
        np.zeros,
        np.ones,
        np.empty,
        np.full,
        np.where,
        np.zeros_like,
        np.empty_like,
        np.ascontiguousarray,
        np.asarray,
        np.abs,
        np.sqrt,
    ),
)


def asnumpy(value):
    return np.asarray(value).view(np.ndarray)


class _Generator:
    def __init__(self, seed):
        self._rng = np.random.default_rng(seed)

    def __getattr__(self, name):
        return _ours(getattr(self._rng, name))


class random:
    default_rng = staticmethod(_Generator)


class _Runtime:
    """Device memory as files in shared memory; a handle is the file's name."""

    def __init__(self):
        self._blocks = {}
        atexit.register(self._unlink_all)

    def _unlink_all(self):
        for _, path in self._blocks.values():
            if path and os.path.exists(path):
                os.unlink(path)

    def setDevice(self, number):
        pass

    def getDeviceCount(self):
        return 1

    def getDeviceProperties(self, number):
        return {"name": b"imitation", "l2CacheSize": 1 << 20}

    def deviceSynchronize(self):
        pass

    def malloc(self, n_bytes):
        path = f"/dev/shm/imitation-{os.getpid()}-{time.perf_counter_ns()}"
        fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        os.fchmod(fd, 0o666)
        os.ftruncate(fd, n_bytes)
        return self._map(fd, n_bytes, path)

    def _map(self, fd, n_bytes, path):
        block = mmap.mmap(fd, n_bytes)
        os.close(fd)
        address = ctypes.addressof(ctypes.c_char.from_buffer(block))
        self._blocks[address] = (block, path)
        return address

    def free(self, address):
        _, path = self._blocks.pop(address)
        os.unlink(path)

    def ipcGetMemHandle(self, address):
        return self._blocks[address][1].encode()

    def ipcOpenMemHandle(self, handle):
        fd = os.open(handle.decode(), os.O_RDWR)
        return self._map(fd, os.fstat(fd).st_size, None)

    def memcpy(self, target, source, n_bytes, kind):
        ctypes.memmove(target, source, n_bytes)

    def memset(self, target, value, n_bytes):
        ctypes.memset(target, value, n_bytes)

    def memsetAsync(self, target, value, n_bytes, stream):
        ctypes.memset(target, value, n_bytes)


class _Event:
    def record(self):
        self.at = time.perf_counter_ns()

    def synchronize(self):
        pass


class _Pool:
    def free_all_blocks(self):
        pass


class cuda:
    runtime = _Runtime()
    Event = _Event

    @staticmethod
    def get_elapsed_time(start, stop):
        return (stop.at - start.at) / 1e6

    @staticmethod
    def UnownedMemory(address, n_bytes, owner, device):
        return _Pointer(address)

    @staticmethod
    def MemoryPointer(memory, offset):
        return _Pointer(memory.ptr + offset)


def get_default_memory_pool():
    return _Pool()


class _core:
    get_routine_accelerators = staticmethod(lambda: [])
    get_reduction_accelerators = staticmethod(lambda: [])
