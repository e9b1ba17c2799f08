"""CuTe DSL: compile y = 2x + 1 for Hopper, and run it where a GPU is."""

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass.cute.runtime import from_dlpack, make_fake_compact_tensor

N = 256


@cute.kernel
def probe(x: cute.Tensor, y: cute.Tensor):
    t, _, _ = cute.arch.thread_idx()
    y[t] = x[t] * cutlass.Float32(2.0) + cutlass.Float32(1.0)


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor):
    probe(x, y).launch(grid=[1, 1, 1], block=[N, 1, 1])


def build(device: str) -> Any:
    """The compiled kernel, one array in and one out."""
    line = make_fake_compact_tensor(cutlass.Float32, (N,))
    return cute.compile(launch, line, line)


def call(kernel: Any, x: Any, y: Any) -> None:
    kernel(from_dlpack(x), from_dlpack(y))
