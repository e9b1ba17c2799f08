"""CuTe DSL (NVIDIA CUTLASS): kernels for CUDA; without a GPU it compiles for the architecture named."""

import importlib.util
import os
from pathlib import Path
from typing import Any

from runner.dsls import installed

NAME = "cutedsl"
PACKAGE = "cutlass"
DOCS_PACKAGE = "nvidia_cutlass_dsl"
devices = ("cuda",)
MAPPED = ("nvidia_cutlass_dsl",)
COMPILE_FRAMES = ("compile", "_compile", "generate_mlir", "compile_and_cache")
LOADS_OBJECTS = False
ARCH = "sm_90a"


def _packages_folder() -> str | None:
    # A wheel installed with `pip --target` has its .pth file ignored; the folder it names is then found by hand.
    spec = importlib.util.find_spec("nvidia_cutlass_dsl")
    for root in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(root) / "dsl_packages"
        if folder.is_dir():
            return str(folder)
    return None


def versions() -> dict[str, str]:
    return installed("nvidia_cutlass_dsl", "nvidia-cutlass-dsl")


def missing() -> str | None:
    """What to do when the DSL cannot be used, None when it can."""
    return None if _packages_folder() else "pip install nvidia-cutlass-dsl==4.8.1 (extra `dsl`)"


def environment(device: str) -> dict[str, str]:
    found = {"PYTHONPATH": folder} if (folder := _packages_folder()) else {}
    if device != "cuda":
        found["CUTE_DSL_ARCH"] = ARCH
    return {**found, "CUTE_DSL_CACHE_DIR": os.path.join(".", "cute-cache")}


def owns(kernel_name: str) -> bool:
    return kernel_name.startswith("kernel_cutlass_")


def load() -> None:
    """Import the DSL, so that a waiting child has it ready."""
    import cutlass  # noqa: F401
    import cutlass.cute  # noqa: F401


def install_hooks(tally: Any) -> None:
    """Count and hold back every run of a compiled function: the executor's one entry, and TVM FFI's two."""
    from cutlass.base_dsl.jit_executor import JitExecutor

    JitExecutor.run_compiled_program = _method(tally, JitExecutor.run_compiled_program)
    try:
        from cutlass.cutlass_dsl import tvm_ffi_provider as provider
    except ImportError:
        return
    for name in ("TVMFFIJitCompiledFunction", "TVMFFIJitCompiledFunctionWithKwargs"):
        kind = getattr(provider, name, None)
        if kind is not None:
            kind.__call__ = _method(tally, kind.__call__)


def _method(tally: Any, original: Any) -> Any:
    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        tally.n_calls += 1
        return 0 if tally.held else original(self, *args, **kwargs)

    return counted
