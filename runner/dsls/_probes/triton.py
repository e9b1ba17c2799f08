"""Triton: compile y = 2x + 1 for Hopper, and run it where a GPU is."""

from typing import Any

import triton
import triton.language as tl

N = 256


@triton.jit
def probe(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y + i, 2.0 * tl.load(x + i) + 1.0)


class Pointer:
    """What Triton asks of an argument that is an address: the type of its elements and the address."""

    def __init__(self, array: Any):
        self.dtype = array.dtype
        self._address = array.data.ptr

    def data_ptr(self) -> int:
        return self._address


def build(device: str) -> Any:
    """The compiled kernel; with no GPU it is compiled for Hopper and cannot be called."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    source = ASTSource(fn=probe, signature={"x": "*fp32", "y": "*fp32", "N": "constexpr"}, constexprs={(2,): N})
    return triton.compile(source, target=GPUTarget("cuda", 90, 32))


def call(kernel: Any, x: Any, y: Any) -> None:
    probe[(1,)](Pointer(x), Pointer(y), N)
