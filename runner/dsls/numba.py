"""Numba: compiled Python functions on the processor, so that a pair of DSLs runs for real with no GPU."""

import importlib.util
from typing import Any

from runner.dsls import installed

NAME = "numba"
PACKAGE = "numba"
devices = ("cpu",)
MAPPED = ("llvmlite",)
COMPILE_FRAMES = ("_compile_for_args", "compile")
LOADS_OBJECTS = False


def versions() -> dict[str, str]:
    return installed(PACKAGE, "numba", "llvmlite")


def missing() -> str | None:
    """What to do when the DSL cannot be used, None when it can."""
    return None if importlib.util.find_spec(PACKAGE) else "pip install numba (extra `dsl`)"


def environment(device: str) -> dict[str, str]:
    return {"NUMBA_DISABLE_CUDA": "1", "NUMBA_THREADING_LAYER": "workqueue"}


def owns(kernel_name: str) -> bool:
    return False  # nothing of it runs on a GPU here


def load() -> None:
    """Import the DSL, so that a waiting child has it ready."""
    import numba  # noqa: F401


def install_hooks(tally: Any) -> None:
    """Count and hold back calls from Python of compiled functions and lazily compiled ufuncs."""
    from numba.core.registry import CPUDispatcher
    from numba.np.ufunc.dufunc import DUFunc
    from numba.np.ufunc.gufunc import GUFunc

    for kind in (CPUDispatcher, DUFunc, GUFunc):
        kind.__call__ = _method(tally, kind.__call__)


def _method(tally: Any, original: Any) -> Any:
    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        tally.n_calls += 1
        return None if tally.held else original(self, *args, **kwargs)

    return counted
