"""The hostile side: load one submission and call it when told; nothing that this process says is believed unchecked."""

import ast
import contextlib
import gc
import importlib.util
import signal
import socket
import sys
import traceback
from typing import Any

from runner import dsls, kernel_watch, tripwires
from runner.channel import ACK, ARMED, DELIVERED, DONE, FINISHED, GO, PREPARED, STATES, Gone, Lines, SharedMemory
from runner.confine import confine
from runner.dsls._hooks import Tally

_MAX_TEXT = 3000


def main(arguments: list[str]) -> int:
    fd, dsl, device, uid = int(arguments[0]), arguments[1], arguments[2], int(arguments[3])
    lines = Lines(socket.socket(fileno=fd))
    try:
        confine(device, uid)
        worker = Worker(lines, dsl, device)
    except BaseException as fault:
        lines.send({"ready": False, "fault": _words(fault)})
        return 1
    lines.send({"ready": True, "flags": worker.flags()})
    with contextlib.suppress(Gone):
        worker.serve()
    return 0


class Worker:
    """One child's state: the array library, the DSL with its hooks, the borrowed memory, the submission."""

    def __init__(self, lines: Lines, dsl: str, device: str):
        self.lines, self.device = lines, device
        self.plugin = dsls.plugin(dsl)
        self.tally = Tally()
        self.arrays: Any = None
        self.boxes: Any = None
        self.memory: SharedMemory | None = None
        self.solve: Any = None
        self.module: Any = None
        self.kernels: Any = None
        self.blanks: tuple = ()
        self.watched = False
        if device in ("cpu", "cuda"):
            from runner.arrays import open_arrays

            self.arrays = open_arrays(device)
            self.arrays.touch()
            self.arrays.synchronise()
        self.plugin.load()
        self.plugin.install_hooks(self.tally)
        gc.collect()
        gc.freeze()  # a collection amid a timed call has only the submission's own objects to look at

    def serve(self) -> None:
        """Answer one command after the other until the parent leaves."""
        while True:
            message, fds = self.lines.receive_with_fds()
            op = message.get("op")
            if op == "call":
                self._call(message)
            elif op == "configure":
                self._configure(message, fds)
            elif op == "load":
                self._load(message)
            elif op == "build":
                self._build()
            elif op == "watch":
                self._watch(message)
            elif op == "bye":
                return

    def flags(self) -> dict[str, Any]:
        """Settings of the array library that change results or speed everywhere."""
        if self.arrays is None:
            return {}
        import numpy as np

        found = {"numpy errors": dict(np.geterr()), "numpy buffer": np.getbufsize()}
        if self.device == "cuda":
            import cupy

            found["accelerators"] = [str(a) for a in cupy._core.get_routine_accelerators()]
            found["reductions"] = [str(a) for a in cupy._core.get_reduction_accelerators()]
        return found

    def _configure(self, message: dict[str, Any], fds: list[int]) -> None:
        from runner.boxes import BorrowedBoxes

        self.memory = SharedMemory(fd=fds[0])
        self.boxes = BorrowedBoxes(self.arrays, message["layout"], self.memory)
        self.blanks = self.boxes.blanks()
        self.lines.send({"ipc": self.boxes.ipc, "ipc_fault": self.boxes.ipc_fault})

    def _load(self, message: dict[str, Any]) -> None:
        path = message["path"]
        self.blanks = ()
        with open(path, encoding="utf-8") as stream:
            text = stream.read()
        try:
            findings = tripwires.findings(ast.parse(text), self.plugin.NAME)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as fault:
            self.lines.send({"ok": False, "stage": "load", "fault": f"import error: {_words(fault, brief=True)}"})
            return
        try:
            spec = importlib.util.spec_from_file_location("kernel", path)
            self.module = importlib.util.module_from_spec(spec)
            sys.modules["kernel"] = self.module
            spec.loader.exec_module(self.module)
        except BaseException as fault:
            self.lines.send(
                {
                    "ok": False,
                    "stage": self._stage_of(fault, "load"),
                    "findings": findings,
                    "fault": f"import error: {_words(fault)}",
                }
            )
            return
        self.solve = getattr(self.module, "solve", None)
        ok = callable(self.solve)
        self.lines.send(
            {
                "ok": ok,
                "stage": "load",
                "findings": findings,
                "build": callable(getattr(self.module, "build", None)),
                "fault": None if ok else "no `solve`: the file must define solve(*inputs)",
            }
        )

    def _build(self) -> None:
        try:
            self.kernels = self.module.build()
            built = self.kernels if isinstance(self.kernels, (list, tuple, dict)) else [self.kernels]
            n_kernels = len(built)
        except BaseException as fault:
            self.lines.send({"ok": False, "stage": "compile", "fault": f"compile error: {_words(fault)}"})
            return
        self.lines.send(
            {
                "ok": n_kernels > 0,
                "stage": "compile",
                "n_kernels": n_kernels,
                "fault": None if n_kernels else "compile error: build() returned no kernel",
            }
        )

    def _call(self, message: dict[str, Any]) -> None:
        n, words, arrays = int(message["n"]), self.memory.words, self.arrays
        solve = self._nothing if message.get("nothing") else self.solve
        inputs = self.boxes.arguments(message["scalars"])
        fault, outputs, child_ms = None, (), None
        base = STATES * n
        if message.get("rehearse"):
            self._rehearse(solve, inputs)
        self.tally.held, before = bool(message.get("held")), self.tally.n_calls
        # Whatever earlier code hung into the interpreter must not run between the data's arrival and the clock's start.
        sys.settrace(None)
        sys.setprofile(None)
        arrays.synchronise()
        sock, hot, fetch = self.lines.sock, self.device == "cuda", self.boxes.fetch
        touch = _nothing if self.watched else arrays.touch
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        words[ACK] = base + PREPARED
        sock.recv(1)
        fetch()
        touch()
        if hot:
            words[ACK] = base + ARMED
            while words[GO] != n:
                pass
        try:
            child_ms, outputs = arrays.timed(lambda: solve(*inputs))
        except BaseException as caught:
            fault = caught
        words[ACK] = base + DONE
        if not hot:
            sock.send(FINISHED)
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)
        answer: dict[str, Any] = {"n": n, "child_ms": child_ms}
        if fault is None:
            try:
                outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
                answer["claims"] = self.boxes.deliver(tuple(outputs))
            except BaseException as caught:
                fault = caught
        words[ACK] = base + DELIVERED
        answer["n_dsl_calls"] = self.tally.n_calls - before
        self.tally.held = False
        if fault is not None:
            answer["fault"] = _words(fault)
            answer["stage"] = self._stage_of(fault, "correctness")
        if message.get("flags"):
            answer["flags"] = self.flags()
        self.lines.send(answer)

    def _rehearse(self, solve: Any, inputs: list) -> None:
        # Code that has rested is slow code: one call on the draw that still lies here, whose result nobody looks at.
        with contextlib.suppress(BaseException):
            solve(*inputs)
            self.arrays.synchronise()

    def _nothing(self, *inputs: Any) -> tuple:
        # What the handshake and a delivery cost is measured with this in the submission's place.
        if self.device == "cuda":
            self.arrays.clear(self.blanks)
        return self.blanks

    def _watch(self, message: dict[str, Any]) -> None:
        try:
            self.watched = bool(message.get("on"))
            answer = kernel_watch.start() if self.watched else {"kernels": kernel_watch.stop()}
        except BaseException as fault:
            answer = {"fault": _words(fault, brief=True)}
        self.lines.send(answer)

    def _stage_of(self, fault: BaseException, otherwise: str) -> str:
        # A DSL compiles at decoration, in build() or at the first call: wherever it was, the fault is the compiler's.
        package = f"/{self.plugin.PACKAGE}/"
        for frame in traceback.extract_tb(fault.__traceback__):
            if package in frame.filename and frame.name in self.plugin.COMPILE_FRAMES:
                return "compile"
        return otherwise


def _nothing() -> None:
    return None


def _words(fault: BaseException, brief: bool = False) -> str:
    try:
        lines = str(fault).strip().splitlines() or [""]
        first = f"{type(fault).__name__}: {lines[0][:400]}"
        return (
            first if brief else f"{first}\n{''.join(traceback.format_exception(fault, limit=-4)).strip()}"[:_MAX_TEXT]
        )
    except BaseException:  # an exception may carry its own __str__, which is hostile code too
        return f"{type(fault).__name__} (its text could not be read)"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
