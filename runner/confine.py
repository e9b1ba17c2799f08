"""The child's first act: limits that it cannot lift again and an account that owns nothing."""

import ctypes
import os
import resource
import signal
import sys

FILE_BYTES = 64 << 20
N_PROCESSES = 512
ADDRESS_BYTES = 24 << 30
_LIBC = ctypes.CDLL(None, use_errno=True)
_SET_PDEATHSIG, _SET_KEEPCAPS, _SET_NO_NEW_PRIVS = 1, 8, 38
_CAPABILITY_VERSION = 0x20080522
# Lets the account read a Python that lies in somebody's home folder; it lets it write nothing.
_DAC_READ_SEARCH_NUMBER = 2
_DAC_READ_SEARCH = 1 << _DAC_READ_SEARCH_NUMBER
_CAP_AMBIENT, _CAP_AMBIENT_RAISE = 47, 2


def confine(device: str, uid: int) -> None:
    """Limit this process for good; with `uid` it also changes to that account and gives up root's powers.

    Args:
        device: `cuda` leaves the address space unlimited, since CUDA reserves far more addresses than memory.
        uid: an account of its own, 0 to stay what it is (the process limit is counted by account and needs one).
    """
    limits = [(resource.RLIMIT_FSIZE, FILE_BYTES), (resource.RLIMIT_CORE, 0)]
    if uid:
        limits.append((resource.RLIMIT_NPROC, N_PROCESSES))
    if device != "cuda":
        limits.append((resource.RLIMIT_AS, ADDRESS_BYTES))
    for kind, wanted in limits:
        hard = resource.getrlimit(kind)[1]
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(kind, (value, value))
    if uid:
        _LIBC.prctl(_SET_KEEPCAPS, 1, 0, 0, 0)
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        _keep_only(_DAC_READ_SEARCH)
    _LIBC.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _LIBC.prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # changing the account cleared it


def _keep_only(capabilities: int) -> None:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)(capabilities, capabilities, capabilities, 0, 0, 0)
    if _LIBC.capset(header, sets):
        raise OSError(ctypes.get_errno(), "the child's powers could not be given up")
    # A compiler that the child starts reads the same headers; where this is refused it does without.
    _LIBC.prctl(_CAP_AMBIENT, _CAP_AMBIENT_RAISE, _DAC_READ_SEARCH_NUMBER, 0, 0)


def _try_gpu(handle: str) -> int:
    """Exit status of a trial behind walls: 0 the GPU works and the handle opens, 3 only the former, 1 neither."""
    import cupy

    cupy.cuda.runtime.setDevice(0)
    cupy.cuda.runtime.free(cupy.cuda.runtime.malloc(256))
    if not handle:
        return 3
    try:
        cupy.cuda.runtime.ipcOpenMemHandle(bytes.fromhex(handle))
    except Exception:  # refused for whatever reason: the copies through the host take over
        return 3
    return 0


if __name__ == "__main__":
    confine(sys.argv[1], int(sys.argv[2]))
    sys.exit(_try_gpu(sys.argv[3]))
