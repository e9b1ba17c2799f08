"""One device of this machine that takes one evaluation at a time, and the grading process behind it."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner import walls
from runner.arrays import n_gpus, open_arrays
from runner.catalogue import Problem
from runner.channel import Garbled, Gone, Late, Lines
from runner.device_lock import DeviceLock
from runner.errors import UserError
from runner.grader import problem_line
from runner.jail import die_with_parent
from runner.records import Verdict

START_S = 180.0
GRACE_S = 60.0  # what ending a child may take beyond the evaluation's own limit


class Lost(Exception):
    """The grading process died or hung in mid-evaluation; the kernel may be graded again, elsewhere too."""


class Unusable(Exception):
    """The grading process could not begin: its device does not answer."""


@dataclass(frozen=True)
class Unit:
    """One device: what it is called, how its place is locked, and the environment in which it is the only one."""

    device: str
    described: str
    lock: DeviceLock
    environment: dict[str, str] = field(default_factory=dict)


def units(device: str, per_device: int = 1) -> list[Unit]:
    """Every unit of this machine: each visible GPU, or `per_device` slots on the processor.

    Raises:
        UserError: more than one evaluation on a GPU is asked for, or the visible GPUs are of several kinds.
    """
    if device == "cpu":
        described = open_arrays("cpu").describe()
        return [Unit("cpu", described, DeviceLock("cpu", per_device, slot)) for slot in range(per_device)]
    if per_device != 1:
        raise UserError(
            f"--per-device {per_device}: a GPU takes one evaluation at a time, or its times would lie; leave it out"
        )
    found = [_gpu(i) for i in range(n_gpus())]
    if len(kinds := sorted({u.described for u in found})) > 1:
        raise UserError(
            f"GPUs of several kinds ({', '.join(kinds)}): their times do not compare; set CUDA_VISIBLE_DEVICES to one kind"
        )
    return found


def _gpu(index: int) -> Unit:
    import cupy

    facts = cupy.cuda.runtime.getDeviceProperties(index)
    name = facts["name"].decode() if isinstance(facts["name"], bytes) else str(facts["name"])
    shown = [t.strip() for t in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if t.strip()]
    token = shown[index] if index < len(shown) else str(index)
    raw = facts.get("uuid") or b""
    unique = f"GPU-{bytes(raw).hex()}" if any(raw) else f"cuda-{token.replace('/', '-')}"
    return Unit("cuda", name, DeviceLock(unique), {"CUDA_VISIBLE_DEVICES": token})


class GradingProcess:
    """A unit's process: started by its first kernel, replaced after a fault. One thread at a time asks it.

    It ends with the thread that started it, and with this process, however that ends.
    """

    def __init__(self, unit: Unit, timeout_s: float):
        self.unit, self.timeout_s = unit, timeout_s
        self.last_dsl: str | None = None
        self._process: subprocess.Popen | None = None
        self._lines: Lines | None = None
        self._folder: Path | None = None
        self._guard, self._closed = threading.Lock(), False

    def grade(self, problem: Problem, dsl: str, kernel: str) -> tuple[Verdict, float]:
        """The verdict on a kernel's text, and `time.monotonic()` of the moment from which the device was held for it.

        Raises:
            Lost, Unusable: the process or its device failed; it is ended, and the next call begins a new one.
            UserError: the DSL or the problem cannot be used on this machine.
        """
        try:
            if self._process is None or self._process.poll() is not None:
                self._start()
            file = self._folder / "kernel.py"
            # What is not text reaches evaluation as it is, which says so in its verdict.
            file.write_bytes(kernel.encode("utf-8", "surrogatepass"))
            self._lines.send({"problem": problem_line(problem), "dsl": dsl, "kernel": str(file)})
            first = self._answer(None)
            held_at = time.monotonic()
            told = first if "mistake" in first else self._answer(held_at + self.timeout_s + GRACE_S)
        except (Gone, Garbled, Late, OSError) as fault:
            why = self._words(fault)
            self.end()
            raise Lost(why) from None
        if "mistake" in told:
            raise UserError(told["mistake"])
        self.last_dsl = dsl
        verdict = Verdict.model_validate(told["verdict"])
        if getattr(verdict, "infrastructure", False):
            self.end()  # what broke there may stay broken there (a CUDA context does)
        return verdict, held_at

    def _answer(self, deadline: float | None) -> dict[str, Any]:
        return self._lines.receive(deadline)

    def _start(self) -> None:
        self.end()
        ours, theirs = socket.socketpair()
        lock = self.unit.lock
        kept = {k: v for k, v in os.environ.items() if k != "OPENAI_API_KEY"}
        command = [sys.executable, "-P", "-m", "runner.grader", str(theirs.fileno()), self.unit.device, lock.name]
        with self._guard:
            if self._closed:
                ours.close()
                theirs.close()
                raise Lost("the fleet is closed")
            self._folder = Path(tempfile.mkdtemp(prefix="mkb-grader-"))
            with open(self._folder / "stderr", "wb") as stderr:
                self._process = subprocess.Popen(
                    [*command, str(lock.n_slots), str(lock.slot), str(self.timeout_s)],
                    env={**kept, "PYTHONPATH": walls.python_path(), **self.unit.environment},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,  # a Ctrl-C is for us, who then end it
                    preexec_fn=die_with_parent,
                )
            theirs.close()
            self._lines = Lines(ours)
        try:
            ready = self._lines.receive(time.monotonic() + START_S)
        except (Gone, Garbled, Late, OSError) as fault:
            ready = {"fault": self._words(fault)}
        if not ready.get("ready"):
            self.end()
            raise Unusable(str(ready.get("fault")))

    def _words(self, fault: Exception) -> str:
        said = ""
        if self._folder is not None:
            with contextlib.suppress(OSError):
                said = (self._folder / "stderr").read_text("utf-8", "replace").strip()[-300:]
        return " ".join(f"the grading process of {self.unit.lock.name} is lost ({fault}) {said}".split())

    def end(self) -> None:
        """End the process and forget its folder; the next kernel begins a new one."""
        with self._guard:
            process, lines, folder = self._process, self._lines, self._folder
            self._process = self._lines = self._folder = None
        if process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):  # a driver that hangs may keep it for good
                process.wait(timeout=10)
        if lines is not None:
            lines.close()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def pid(self) -> int | None:
        """The process's id while it lives."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def close(self) -> None:
        """End the process at once, from any thread; no new one begins."""
        with self._guard:
            self._closed = True
            process = self._process
        if process is not None and process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
