"""TIRx (Apache TVM): kernels for CUDA, and for LLVM on a machine with no GPU."""

import importlib.util
from typing import Any

from runner.dsls import installed

NAME = "tirx"
PACKAGE = "tvm"
devices = ("cuda", "cpu")
MAPPED = ("/tvm/", "libtvm")
COMPILE_FRAMES = ("compile", "build", "parse", "prim_func")
LOADS_OBJECTS = True  # an executable for the target `c` is linked to a shared object and loaded
CUDA_TARGET = {"kind": "cuda", "arch": "sm_90a"}


def versions() -> dict[str, str]:
    return installed(PACKAGE, "apache-tvm", "apache-tvm-ffi")


def missing() -> str | None:
    """What to do when the DSL cannot be used, None when it can."""
    return None if importlib.util.find_spec(PACKAGE) else "pip install apache-tvm==0.27.0.post1 (extra `dsl`)"


def environment(device: str) -> dict[str, str]:
    return {"TVM_NUM_THREADS": "1"} if device == "cpu" else {}


def owns(kernel_name: str) -> bool:
    """TVM names a device function after its host function: `<function>_kernel`, `<function>_kernel_1` …"""
    head, _, number = kernel_name.rpartition("_kernel")
    return (
        bool(head)
        and (not number or number.lstrip("_").isdigit())
        and not kernel_name.startswith(("cupy_", "kernel_cutlass_"))
    )


def load() -> None:
    """Import the DSL, so that a waiting child has it ready."""
    import tvm  # noqa: F401
    from tvm.script import tirx  # noqa: F401


def install_hooks(tally: Any) -> None:
    """Count and hold back every function that is taken out of a compiled module."""
    from tvm_ffi.module import Module

    take = Module.get_function

    def get_function(self: Any, name: str, query_imports: bool = False) -> Any:
        return tally.around(take(self, name, query_imports))

    Module.get_function = get_function
