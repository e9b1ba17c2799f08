"""Triton: kernels for CUDA, launched on CuPy arrays through a pointer wrapper that the submission brings."""

import importlib.util
from typing import Any

from runner.dsls import installed

NAME = "triton"
PACKAGE = "triton"
devices = ("cuda",)
MAPPED = ("/triton/",)
COMPILE_FRAMES = ("compile", "_do_compile", "make_ir")
LOADS_OBJECTS = True  # its launcher is a small extension module built at first use


def versions() -> dict[str, str]:
    return installed(PACKAGE, "triton")


def missing() -> str | None:
    """What to do when the DSL cannot be used, None when it can."""
    return None if importlib.util.find_spec(PACKAGE) else "pip install triton (extra `torch`)"


def environment(device: str) -> dict[str, str]:
    return {}


def owns(kernel_name: str) -> bool:
    # A Triton kernel bears its Python function's own name: what no library claims is taken to be one.
    return not kernel_name.startswith(("cupy_", "kernel_cutlass_", "void ", "nvjet", "sm90_", "cutlass"))


def load() -> None:
    """Import the DSL, so that a waiting child has it ready."""
    import triton  # noqa: F401


def install_hooks(tally: Any) -> None:
    """Count and hold back every launch of a jitted function."""
    from triton.runtime.jit import JITFunction

    original = JITFunction.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        tally.n_calls += 1
        return None if tally.held else original(self, *args, **kwargs)

    JITFunction.run = run
