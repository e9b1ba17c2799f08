"""What one call showed, and how the child's words about it are read: what is not as it should be counts as unsaid."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


class Fault(Exception):
    """What is wrong with a submission: the stage at which it showed, and the reason in one line."""

    def __init__(self, stage: str, reason: str):
        super().__init__(reason)
        self.stage, self.reason = stage, " ".join(reason.split("\n", 1)[0].split())[:600]
        self.detail = reason


@dataclass
class Call:
    """One call as the parent saw it; all times in milliseconds by the parent's clock but `child_ms`, a claim."""

    parent_ms: float
    armed_ms: float
    delivered_ms: float
    child_ms: float | None
    idle_cpu_ms: float | None
    used_cpu_ms: float | None = None
    delivered_cpu_ms: float | None = None
    claims: list = field(default_factory=list)
    outputs: tuple = ()
    n_dsl_calls: int = 0
    fault: tuple[str, str] | None = None
    changed_input: int | None = None
    n_processes: int = 1
    n_running: int = 0
    flags: dict | None = None


@dataclass(frozen=True)
class Overhead:
    """What the handshake costs with nothing in the submission's place: medians in milliseconds."""

    clock_ms: float
    armed_ms: float
    delivered_ms: float
    used_cpu_ms: float | None
    delivered_cpu_ms: float | None


class Broken(Exception):
    """The machine's fault, not the submission's: nothing was graded."""


def median_known(values: Iterable[float | None]) -> float | None:
    """The median of what was measured, None when nothing was."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def ms_between(start: int | None, stop: int | None) -> float | None:
    return None if start is None or stop is None else (stop - start) / 1e6


def plain_of(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def stage_of(value: Any, otherwise: str) -> str:
    return value if value in ("load", "compile", "correctness") else otherwise


def milliseconds_of(value: Any) -> float | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e9:
        return float(value)
    return None


def count_of(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9 else 0


def claims_of(value: Any) -> list:
    return value if isinstance(value, list) else []
