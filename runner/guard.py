"""What a submission may not do, judged from what the parent itself measured wherever that is possible."""

import os
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from runner import dsls
from runner.calls import Call, Overhead
from runner.records import DeviceKernels

# Room for honest jitter, in milliseconds and as shares; docs/evaluation.md says how they were chosen.
CLOCK_SLACK_MS = {"cuda": 0.005, "cpu": 0.05}
CLOCK_SLACK_SHARE = 0.08
FORGED_MS = {"cuda": 0.03, "cpu": 1.0}
FORGED_SHARE = 0.25
LATE_MS = {"cuda": 0.04, "cpu": 1.0}
LATE_SHARE = 0.25
IDLE_MS = {"cuda": 0.05, "cpu": 0.3}
USUAL_FACTOR = 1.5
ARRAY_LIBRARY = ("cupy_",)


def kernel_ms_samples(calls: Sequence[Call], overhead: Overhead, device: str) -> list[float]:
    """What each timed call took: the child's figure, but never less than the parent's clock allows.

    The child's clock sits nearer to the work, so it is the finer one; the parent's, less the cost of the handshake,
    is the floor under it. Forging the child's clock therefore gains nothing beyond the slack.
    """
    samples = []
    for call in calls:
        floor = trusted_ms(call, overhead, device)
        slack = max(CLOCK_SLACK_MS[device], CLOCK_SLACK_SHARE * call.parent_ms)
        claimed = min(call.child_ms if call.child_ms is not None else call.parent_ms, call.parent_ms)
        samples.append(max(claimed if claimed >= floor - slack else floor, 1e-6))
    return samples


def trusted_ms(call: Call, overhead: Overhead, device: str) -> float:
    """Least time of one call by the parent's measurements alone, the handshake taken off.

    On the processor a busy machine stretches the wall clock; a call takes no less than its processor time spread over
    its threads, so that the smaller of the two is what can be held against it.
    """
    wall = call.parent_ms - overhead.clock_ms
    if device == "cpu" and call.used_cpu_ms is not None and overhead.used_cpu_ms is not None:
        return min(wall, call.used_cpu_ms - overhead.used_cpu_ms)
    return wall


def forged_clock(calls: Sequence[Call], overhead: Overhead, device: str) -> str | None:
    """Why the child's clock is taken for a forgery: it tells less than the parent's by far more than the handshake."""
    gap = statistics.median(trusted_ms(c, overhead, device) - (c.child_ms or 0.0) for c in calls)
    seen = statistics.median(c.parent_ms for c in calls)
    allowed = max(FORGED_MS[device], FORGED_SHARE * seen)
    if gap > allowed:
        return f"forged clock: the child tells {gap:.3f} ms less than the trusted clock, {allowed:.3f} ms can be chance"
    return None


def work_outside_the_clock(calls: Sequence[Call], overhead: Overhead, device: str) -> str | None:
    """Whether the child worked before the clock started or after it stopped, as a median over the timed calls."""
    kernel = statistics.median(c.parent_ms for c in calls)
    room = LATE_MS[device] + LATE_SHARE * kernel
    late = _excess([c.delivered_ms for c in calls], overhead.delivered_ms)
    early = _excess([c.armed_ms for c in calls], overhead.armed_ms)
    if device == "cpu" and overhead.delivered_cpu_ms is not None:
        # On the processor work is processor time, which a busy machine does not stretch as it does the wall clock.
        late = _excess([c.delivered_cpu_ms for c in calls], overhead.delivered_cpu_ms)
    if late > room:
        return (
            f"work after the clock stopped: delivery takes {late:.3f} ms more than it did before the submission was "
            "loaded"
        )
    if early > room:
        return (
            f"work before the clock started: getting ready takes {early:.3f} ms more than it did before the submission "
            "was loaded"
        )
    n_busy = sum(c.n_running > 0 for c in calls)
    if 2 * n_busy > len(calls):
        return (
            f"work before the clock started: threads of the child run in {n_busy} of {len(calls)} calls while it "
            "should sleep"
        )
    idle = [c.idle_cpu_ms for c in calls if c.idle_cpu_ms is not None]
    if idle and statistics.median(idle) > IDLE_MS[device]:
        return (
            f"work before the clock started: threads of the child run {statistics.median(idle):.3f} ms while it "
            "should sleep"
        )
    return None


def _excess(values: Sequence[float | None], usual: float) -> float:
    known = [value for value in values if value is not None]
    return statistics.median(known) - USUAL_FACTOR * usual if known else 0.0


def not_the_dsl(calls: Iterable[Call], dsl: str) -> str | None:
    """Whether some call got by without any kernel of the required DSL."""
    n_without = n_calls = 0
    for call in calls:
        n_calls += 1
        n_without += call.n_dsl_calls < 1
    return f"no kernel of {dsl} was called in {n_without} of {n_calls} calls" if n_without else None


def claims_fault(claims: Sequence[Any], due: Sequence[Any], array_type: str) -> str | None:
    """What is wrong with the returned containers, types and shapes, as the child reports them.

    A lie here gains nothing: the parent reads the mailbox as what is due, whatever the child says lies in it.
    """
    if len(claims) != len(due):
        return f"{len(claims)} outputs returned, {len(due)} are due"
    for index, (claim, array) in enumerate(zip(claims, due, strict=False)):
        if not isinstance(claim, list) or len(claim) != 3:
            return f"output {index}: the child's answer is garbled"
        kind, shape, dtype = claim
        if kind != array_type:
            return f"output {index}: a {str(kind)[:80]} was returned, a plain {array_type} is due"
        if shape != list(array.shape):
            return f"output {index}: shape {str(shape)[:80]}, {list(array.shape)} is due"
        if dtype != array.dtype.name:
            return f"output {index}: type {str(dtype)[:40]}, {array.dtype.name} is due"
    return None


def owners(kernels: Sequence[Any], dsl: str) -> DeviceKernels:
    """Sort the device kernels of one call by owner and add up their time."""
    required = dsls.plugin(dsl)
    others = [dsls.plugin(name) for name in dsls.names() if name not in (dsl, "triton")]
    n_required = n_other = n_library = 0
    required_ns = total_ns = 0
    names: dict[str, None] = {}
    for entry in kernels:
        if not (isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str) and type(entry[1]) is int):
            continue
        name, n_ns = entry
        names[name[:120]] = None
        total_ns += n_ns
        if required.owns(name):
            n_required += 1
            required_ns += n_ns
        elif not name.startswith(ARRAY_LIBRARY) and any(other.owns(name) for other in others):
            n_other += 1
        else:
            n_library += 1
    return DeviceKernels(
        n_required=n_required,
        n_other_dsl=n_other,
        n_array_library=n_library,
        required_ms=required_ns / 1e6,
        total_ms=total_ns / 1e6,
        names=tuple(list(names)[:40]),
    )


def kernels_fault(kernels: DeviceKernels, dsl: str) -> str | None:
    if not kernels.n_required:
        return f"no device kernel of {dsl} ran: {', '.join(kernels.names[:5]) or 'none at all'}"
    if kernels.n_other_dsl:
        return f"{kernels.n_other_dsl} device kernels of another DSL ran: {', '.join(kernels.names[:5])}"
    return None


def foreign_code(before: set[str], after: set[str], dsl: str, scratch: str) -> str | None:
    """Machine code that came into the child after the submission was loaded and that the DSL does not account for."""
    required = dsls.plugin(dsl)
    new = sorted(after - before)
    for path in new:
        for name in dsls.names():
            marks = dsls.plugin(name).MAPPED
            if (
                name != dsl
                and any(mark in path for mark in marks)
                and not any(mark in path for mark in required.MAPPED)
            ):
                return f"another DSL ({name}) was loaded: {os.path.basename(path)}"
    if not required.LOADS_OBJECTS:
        packages = tuple(os.path.abspath(p) + os.sep for p in (sys.prefix, *sys.path) if p)
        own = [
            path
            for path in new
            if path.startswith(scratch)
            or "(deleted)" in path
            or path.startswith(("/tmp/", "/dev/shm/"))
            and not path.startswith(packages)
        ]
        if own:
            return f"machine code of its own was loaded: {os.path.basename(own[0])}"
    return None


def seal(roots: Iterable[Path]) -> dict[str, tuple[int, int]]:
    """Size and time of every source file under the roots: what a submission must leave as it is."""
    found = {}
    for root in roots:
        for folder, folders, files in os.walk(root):
            folders[:] = [name for name in folders if name != "__pycache__"]
            for name in files:
                if name.endswith((".py", ".pth", ".so")):
                    path = os.path.join(folder, name)
                    try:
                        state = os.stat(path)
                    except OSError:
                        continue
                    found[path] = (state.st_size, state.st_mtime_ns)
    return found


def broken_seal(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> str | None:
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    return f"files of the evaluator were changed: {', '.join(map(os.path.basename, changed[:3]))}" if changed else None


def changed_flags(before: dict[str, Any], after: Any) -> list[str]:
    """Findings about global settings of the array library that the submission changed in its own process."""
    if not isinstance(after, dict):
        return []
    return [f"setting changed in the child: {str(name)[:60]}" for name in before if after.get(name) != before[name]]
