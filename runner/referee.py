"""The process in which a problem of another set runs: it draws, computes what is due, times the baseline, in PyTorch.

It lives behind the same walls as a submission's child and is a process of its own, so that neither a submission nor the
evaluator shares memory with code that came with a problem set.
"""

import contextlib
import copy
import importlib.util
import itertools
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any

from runner.channel import CONTROL_BYTES, Gone, Lines, SharedMemory
from runner.confine import confine

# Names of torch types that travel, and the contract's format of an output of that type.
TYPES = {
    "float32": "f32", "bfloat16": "bf16", "float16": "f16", "float64": "f64", "int32": "i32", "int64": "i64",
    "uint8": "u8", "bool": "bool", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "int8": None, "int16": None,
}  # fmt: skip
CODES = ("float8_e4m3fn", "float8_e5m2")
WIDENED = ("float32", "bfloat16", "float16")
SAME_SHARE = 1e-2
_FLUSH_BYTES = {"cuda": 256 << 20, "cpu": 32 << 20}


def main(arguments: list[str]) -> int:
    lines = Lines(socket.socket(fileno=int(arguments[0])))
    try:
        confine(arguments[2], int(arguments[3]))
        referee = Referee(arguments[2])
    except BaseException as fault:
        lines.send({"ready": False, "fault": _words(fault)})
        return 1
    lines.send({"ready": True, "torch": referee.torch.__version__})
    with contextlib.suppress(Gone):
        referee.serve(lines)
    return 0


class Referee:
    """One problem, the draw that was asked for last, and the memory in which arrays go to the parent."""

    def __init__(self, device: str):
        import torch

        self.torch, self.device = torch, device
        if device == "cuda":
            torch.cuda.init()
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        torch.set_float32_matmul_precision("highest")
        self.flush = torch.zeros(_FLUSH_BYTES[device], dtype=torch.uint8, device=device)
        self.module: Any = None
        self.model: Any = None
        self.kind, self.seed, self.inputs, self.n_given = "", None, [], 0
        self.timed_call: Any = None
        self.memory: SharedMemory | None = None

    def serve(self, lines: Lines) -> None:
        """Answer until the parent leaves; what the problem raises is an answer, too."""
        while True:
            message, fds = lines.receive_with_fds()
            try:
                answer = self._answer(message, fds)
            except Exception as fault:
                answer = {"fault": _words(fault)}
            lines.send(answer)

    def _answer(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        op, seed = message["op"], message.get("seed")
        self.kind = message.get("kind", self.kind)
        if op == "memory":
            self.memory = SharedMemory(fd=fds[0])
            return {"ok": True}
        with self._numerics():
            if op == "open":
                return self._open(message["path"], message["compiled"], seed)
            self._draw(seed)
            ms = None
            if op == "inputs":
                values = self.inputs
            elif op == "anchor":
                values = self._anchor()
            elif op == "timed":
                ms, values = self._timed()
            else:
                values = self._own()
        return {"arrays": self._put(values, message["offsets"]), "plain": _plain(values), "ms": ms}

    def _open(self, path: str, compiled: bool, seed: int) -> dict[str, Any]:
        spec = importlib.util.spec_from_file_location("problem", path)
        self.module = importlib.util.module_from_spec(spec)
        sys.modules["problem"] = self.module
        spec.loader.exec_module(self.module)
        self._draw(seed)
        own = self._own()
        self._same(own, self._again())
        call = self.model if self.kind == "kernelbench" else self.module.reference
        if compiled:
            from torch._inductor import config

            config.cpp_cache_precompile_headers = False  # such a file is larger than any this process may write
        self.timed_call = self.torch.compile(call) if compiled else call
        self._timed()
        return {"inputs": [self._form(v) for v in self.inputs], "outputs": [self._form(v) for v in own]}

    def _draw(self, seed: int) -> None:
        if seed == self.seed:
            return
        torch = self.torch
        torch.manual_seed(seed)
        with torch.device(self.device):
            if self.kind == "published":
                given, weights = list(self.module.make_inputs()), []
            else:
                fresh = self._model()
                if self.model is None:
                    self.model = fresh
                self._move(fresh, self.model)
                given, weights = list(self.module.get_inputs()), self._weights()
        values = [*given, *weights]
        self.inputs = [v.to(self.device) if isinstance(v, torch.Tensor) else v for v in values]
        self.n_given, self.seed = len(given), seed

    def _model(self) -> Any:
        return self.module.Model(*self.module.get_init_inputs()).to(self.device)

    def _move(self, source: Any, target: Any) -> None:
        theirs = itertools.chain(source.parameters(), source.buffers())
        with self.torch.no_grad():
            for new, old in zip(theirs, itertools.chain(target.parameters(), target.buffers()), strict=True):
                if new is not old:
                    old.copy_(new)

    def _weights(self) -> list[Any]:
        held = [*self.model.parameters(), *(b for b in self.model.buffers() if b.ndim)]
        return [w.detach().clone() for w in held]

    def _own(self) -> list[Any]:
        return self._run(self.model if self.kind == "kernelbench" else self.module.reference)

    def _run(self, call: Any, widen: bool = False) -> list[Any]:
        """Outputs of `call` on copies of the inputs, since a reference may write on what it is given."""
        if self.kind == "kernelbench":
            call = copy.deepcopy(call) if widen or any(True for _ in self.model.buffers()) else call
            call = call.double() if widen else call
        given = [self._copy(v, widen) for v in self.inputs[: self.n_given]]
        with self.torch.no_grad():
            return _flat(call(*given))

    def _again(self) -> list[Any]:
        # Another model with the same weights, at another place of the random numbers: the answer must be the same.
        torch = self.torch
        torch.manual_seed(self.seed ^ 1)
        if self.kind == "published":
            return self._own()
        with torch.device(self.device):
            other = self._model()
        self._move(self.model, other)
        return self._run(other)

    def _same(self, one: list[Any], other: list[Any]) -> None:
        for index, (a, b) in enumerate(zip(one, other, strict=True)):
            if isinstance(a, self.torch.Tensor):
                a, b = a.double(), b.double()
                near = (a - b).abs() <= SAME_SHARE * a.abs().max()
                if not bool((near | (a == b) | (a.isnan() & b.isnan())).all()):
                    raise ValueError(
                        f"output {index} depends on more than the inputs and weights (random numbers within): "
                        "no kernel could give it"
                    )

    def _anchor(self) -> list[Any]:
        torch = self.torch
        if self.kind == "published":
            return self._run(self.module.reference, widen=True)
        torch.set_default_dtype(torch.float64)
        try:
            return self._run(self.model, widen=True)
        finally:
            torch.set_default_dtype(torch.float32)

    def _timed(self) -> tuple[float, list[Any]]:
        torch = self.torch
        given = [self._copy(v) for v in self.inputs[: self.n_given]]
        self.flush.add_(1)
        with torch.no_grad():
            if self.device != "cuda":
                started = time.perf_counter_ns()
                outputs = self.timed_call(*given)
                return (time.perf_counter_ns() - started) / 1e6, _flat(outputs)
            start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda.synchronize()
            start.record()
            outputs = self.timed_call(*given)
            torch.cuda.synchronize()
            stop.record()
            torch.cuda.synchronize()
            return start.elapsed_time(stop), _flat(outputs)

    def _copy(self, value: Any, widen: bool = False) -> Any:
        if not isinstance(value, self.torch.Tensor):
            return value
        return value.double() if widen and _name(value) in WIDENED else value.clone()

    @contextlib.contextmanager
    def _numerics(self) -> Iterator[None]:
        # The published set names the GPU in its text: on the processor that name means the processor.
        if self.device == "cuda" or self.kind == "kernelbench":
            yield
            return
        with _on_the_processor(self.torch):
            yield

    def _form(self, value: Any) -> list | None:
        """Shape, type as it travels, and the contract's format; None for a plain number."""
        if isinstance(value, self.torch.Tensor):
            name = _name(value)
            if name not in TYPES:
                raise TypeError(f"a {name} tensor: the contract knows {', '.join(TYPES)}")
            return [list(value.shape), "uint8" if name in CODES else name, TYPES[name]]
        if isinstance(value, (bool, int, float)):
            return None
        raise TypeError(f"a {type(value).__name__} where a tensor or a plain number is due")

    def _put(self, values: list[Any], offsets: list[int]) -> list[list | None]:
        """Write the arrays where the parent looks for them; say shape and type of each."""
        forms = [self._form(v) for v in values]
        for value, offset in zip(values, offsets, strict=True):
            if isinstance(value, self.torch.Tensor) and value.numel():
                data = value.detach().contiguous().reshape(-1).view(self.torch.uint8).cpu().numpy()
                start = CONTROL_BYTES + offset
                if start + data.nbytes > self.memory.n_bytes:
                    raise ValueError("a draw is larger than the one before it; shapes may not change between draws")
                self.memory.map[start : start + data.nbytes] = data.data
        return forms


def _on_the_processor(torch: Any) -> Any:
    from torch.overrides import TorchFunctionMode

    class OnTheProcessor(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
            kwargs = dict(kwargs or {})
            if kwargs.get("device") is not None and torch.device(kwargs["device"]).type == "cuda":
                kwargs["device"] = torch.device("cpu")
            return function(*args, **kwargs)

    return OnTheProcessor()


def _flat(outputs: Any) -> list[Any]:
    if isinstance(outputs, (tuple, list)):
        return [value for part in outputs for value in _flat(part)]
    return [outputs]


def _plain(values: list[Any]) -> list[Any]:
    return [value if isinstance(value, (bool, int, float)) else None for value in values]


def _name(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _words(fault: BaseException) -> str:
    lines = [line.strip() for line in str(fault).splitlines() if line.strip()] or [""]
    ends = lines[0][:400] if len(lines) == 1 else f"{lines[0][:300]} … {lines[-1][:300]}"
    return f"{type(fault).__name__}: {ends}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
