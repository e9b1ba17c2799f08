"""One child under the parent's clock: configure, calibrate, load, and call after call with what each one showed."""

import math
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runner import dsls
from runner.arrays import Arrays, is_array
from runner.boxes import Boxes
from runner.calls import (
    Broken,
    Call,
    Fault,
    Overhead,
    claims_of,
    count_of,
    median_known,
    milliseconds_of,
    ms_between,
    plain_of,
    stage_of,
)
from runner.channel import ACK, ARMED, DELIVERED, DONE, FINISHED, GO, PREPARED, STATES, WAKE, Garbled, Gone, Late
from runner.jail import Child

N_CALIBRATION_CALLS = 12
REHEARSED_MS = 10.0
_POLL_S = 0.00002
_SPIN_S = 0.02
_N_CORES = os.cpu_count() or 1


class Session:
    """A child from start to end; every wait in it ends at `deadline` (on `time.monotonic`)."""

    def __init__(self, dsl: str, device: str, deadline: float, child: Child | None = None):
        self.deadline, self.device = deadline, device
        self.plugin = dsls.plugin(dsl)
        self.child = child or start(dsl, device)
        self.boxes: Boxes | None = None
        self.arrays: Arrays | None = None
        self.ipc_fault: str | None = None
        self._n = 0
        self._last_ms = math.inf
        self._loaded = False
        self.stage = "load"

    def ready(self) -> dict[str, Any]:
        """Wait until the child has imported the array library and the DSL."""
        answer = self._receive()
        self.child.settle()
        if not answer.get("ready"):
            raise Broken(f"the child could not start: {str(answer.get('fault'))[:600]}")
        return answer.get("flags") or {}

    def configure(self, arrays: Arrays, inputs: tuple, outputs: tuple) -> None:
        """Set up the memory in which draws travel; falls back to copies through the host where IPC is refused."""
        self.arrays = arrays
        self.boxes = Boxes(arrays, inputs, outputs)
        self._send({"op": "configure", "layout": self.boxes.layout()}, (self.boxes.memory.fd,))
        answer = self._receive()
        self.boxes.shared_by_ipc = bool(answer.get("ipc")) and arrays.device == "cuda"
        self.ipc_fault = answer.get("ipc_fault")

    def calibrate(self, fresh_inputs: Callable[[], tuple]) -> Overhead:
        """Run the handshake with nothing in the submission's place, before any of its code is loaded.

        `fresh_inputs` does between two calls what the timed phase does there: a child that slept while the parent used
        the device takes longer to get ready, and that is no work of a submission.
        """
        calls = [self.call(fresh_inputs(), nothing=True, rehearse=True) for _ in range(N_CALIBRATION_CALLS)][2:]
        return Overhead(
            clock_ms=statistics.median(c.parent_ms - (c.child_ms or 0.0) for c in calls),
            armed_ms=statistics.median(c.armed_ms for c in calls),
            delivered_ms=statistics.median(c.delivered_ms for c in calls),
            used_cpu_ms=median_known(
                None if c.used_cpu_ms is None else c.used_cpu_ms - (c.child_ms or 0.0) for c in calls
            ),
            delivered_cpu_ms=median_known(c.delivered_cpu_ms for c in calls),
        )

    def load(self, kernel_text: str) -> dict[str, Any]:
        """Import the submission in the child; returns its findings and whether it has a `build`.

        Raises:
            Fault: it cannot be imported or has no `solve`.
        """
        path = Path(self.child.scratch) / "kernel.py"
        path.write_text(kernel_text, "utf-8")
        path.chmod(0o444)
        self._loaded = True
        self._send({"op": "load", "path": "kernel.py"})
        answer = self._receive()
        if not answer.get("ok"):
            raise Fault(stage_of(answer.get("stage"), "load"), str(answer.get("fault") or "import error"))
        return answer

    def build(self) -> int:
        """Call the submission's `build()`; returns how many kernels it compiled."""
        self.stage = "compile"
        self._send({"op": "build"})
        answer = self._receive()
        if not answer.get("ok"):
            raise Fault("compile", str(answer.get("fault") or "compile error"))
        return count_of(answer.get("n_kernels"))

    def watch(self, on: bool) -> dict[str, Any]:
        """Begin or end the record of device kernels."""
        self._send({"op": "watch", "on": on})
        return self._receive()

    def call(
        self,
        inputs: tuple,
        held: bool = False,
        nothing: bool = False,
        keep: bool = True,
        flags: bool = False,
        cold: bool = True,
        rehearse: bool = False,
    ) -> Call:
        """One call of `solve` on one draw, under the parent's clock.

        The child first makes everything ready and goes to sleep; only then does the draw reach its memory, and the
        caches are made cold. Then it is woken, touches the device and the clock (and on the GPU waits awake for a
        word), so that what is timed begins on a warm path. `held` holds the DSL's kernels back; `keep` copies the
        outputs out; `rehearse` has the child call `solve` once on the draw before this one, ere it falls asleep, so
        that the submission's code and its DSL's are warm too (left out where a call takes so long that this is
        nothing).
        """
        self._n += 1
        n, boxes, arrays, words = self._n, self.boxes, self.arrays, self.boxes.memory.words
        base = STATES * n
        scalars = {str(i): plain_of(v) for i, v in enumerate(inputs) if not is_array(v)}
        boxes.poison()
        order = {"op": "call", "n": n, "held": held, "nothing": nothing, "flags": flags, "scalars": scalars}
        self._send({**order, "rehearse": rehearse and self._last_ms < REHEARSED_MS})
        self._spin(words, base + PREPARED)
        idle_from = self.child.asleep_ns()
        boxes.write(inputs)
        if cold:
            arrays.flush_cache()
        arrays.synchronise()
        idle_to = self.child.cpu_ns()
        n_running = self.child.n_running()
        asked = time.perf_counter_ns()
        self._wake()
        if self.device == "cuda":
            # The GPU's calls are too short for a wake-up: both sides watch a word, the child being awake before.
            self._spin(words, base + ARMED)
            go = time.perf_counter_ns()
            words[GO] = n
            self._spin(words, base + DONE)
        else:
            go = asked
            self._finished()
        done = time.perf_counter_ns()
        done_cpu = self.child.cpu_ns()
        self._spin(words, base + DELIVERED)
        delivered = time.perf_counter_ns()
        delivered_cpu = self.child.cpu_ns()
        # Copied out before the child's words are heard: what is not in the mailbox by now was not delivered.
        outputs = boxes.read() if keep and not nothing else ()
        answer = self._receive()
        if answer.get("n") != n:
            raise Fault("guard", "forged answer: the child answered another call than the one it was given")
        call = Call(
            parent_ms=(done - go) / 1e6,
            armed_ms=(go - asked) / 1e6,
            delivered_ms=(delivered - done) / 1e6,
            child_ms=milliseconds_of(answer.get("child_ms")),
            claims=claims_of(answer.get("claims")),
            idle_cpu_ms=ms_between(idle_from, idle_to),
            used_cpu_ms=ms_between(idle_to, done_cpu),
            delivered_cpu_ms=ms_between(done_cpu, delivered_cpu),
            n_running=n_running,
            n_dsl_calls=count_of(answer.get("n_dsl_calls")),
            flags=answer.get("flags"),
        )
        if answer.get("fault"):
            call.fault = (stage_of(answer.get("stage"), "correctness"), str(answer["fault"]))
        else:
            call.outputs = outputs
        self._last_ms = call.parent_ms
        if not nothing:
            call.changed_input = boxes.first_changed(inputs)
        return call

    def close(self) -> None:
        self.child.close()
        if self.boxes:
            self.boxes.close()

    def _spin(self, words: memoryview, target: int) -> None:
        # The GPU's pair is watched without a pause; on the processor a pause leaves the core to the child.
        clock, hot = time.perf_counter, self.device == "cuda" and _N_CORES > 2
        begun = clock()
        while words[ACK] < target:
            waited = clock() - begun
            if waited > _SPIN_S or not hot:
                time.sleep(_POLL_S if waited < 0.1 else 0.0005 if waited < 5 else 0.01)
            if waited > 0.2:
                self._look()

    def _look(self) -> None:
        self.child.look()
        if self.child.process.poll() is not None:
            raise self._gone()
        if time.monotonic() > self.deadline:
            raise Fault(self.stage, "hang: the time limit of one evaluation has passed")

    def _send(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        try:
            self.child.lines.send(message, fds)
        except Gone:
            raise self._gone() from None

    def _wake(self) -> None:
        try:
            self.child.lines.sock.sendall(WAKE)
        except OSError:
            raise self._gone() from None

    def _finished(self) -> None:
        try:
            if self.child.lines.receive_byte(self.deadline, self._look) != FINISHED:
                raise Garbled("another byte than the one that was due")
        except Late:
            raise Fault(self.stage, "hang: the time limit of one evaluation has passed") from None
        except Gone:
            raise self._gone() from None
        except Garbled as fault:
            raise Fault("guard", f"forged answer: {fault}") from None

    def _receive(self) -> dict[str, Any]:
        try:
            return self.child.lines.receive(self.deadline, self._look)
        except Late:
            raise Fault(self.stage, "hang: the time limit of one evaluation has passed") from None
        except Gone:
            raise self._gone() from None
        except Garbled as fault:
            raise Fault("guard", f"forged answer: {fault}") from None

    def _gone(self) -> Exception:
        if not self._loaded:
            return Broken(
                f"the child was lost before the submission was loaded: it {self.child.exit_words()}: "
                f"{self.child.tail()[-600:]}"
            )
        return Fault(self.stage, f"the child is gone: it {self.child.exit_words()}")


def start(dsl: str, device: str) -> Child:
    """Start a child that imports the array library and the DSL at once; it waits until it is spoken to."""
    plugin = dsls.plugin(dsl)
    return Child(dsl, device, plugin.environment(device))
