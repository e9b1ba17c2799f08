"""TIRx: compile and run y = 2x + 1 for LLVM or CUDA."""

from typing import Any

import tvm
from tvm.script import tirx as T

N = 256


def build(device: str) -> Any:
    """The compiled kernel, one array in and one out."""
    if device == "cuda":

        @T.prim_func
        def probe(x: T.Buffer((N,), "float32"), y: T.Buffer((N,), "float32")):
            for i in T.thread_binding(N, thread="threadIdx.x"):
                y[i] = x[i] * T.float32(2) + T.float32(1)

        target = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})
    else:

        @T.prim_func
        def probe(x: T.Buffer((N,), "float32"), y: T.Buffer((N,), "float32")):
            for i in T.serial(N):
                y[i] = x[i] * T.float32(2) + T.float32(1)

        target = "llvm"
    return tvm.compile(tvm.IRModule({"main": probe}), target=target)


def call(kernel: Any, x: Any, y: Any) -> None:
    kernel(x, y)
