"""Runs orders through an agent and an evaluator handed in, many at once; each attempt is recorded when it ends."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from runner.catalogue import Problem
from runner.plan import Order
from runner.records import State, Submission, Usage, Verdict


@dataclass(frozen=True)
class Graded:
    """A verdict, and how many seconds the kernel waited for its turn on the device (which no attempt is charged)."""

    verdict: Verdict
    waited_s: float = 0.0


# Grades one kernel's text for a problem and a DSL. Where it runs (this process, these GPUs, a cluster) is its own
# affair; one evaluation has a device to itself. It never raises for a submission's fault; a verdict whose extra field
# `infrastructure` is true never reached evaluation.
Evaluate = Callable[[Problem, str, str], Awaitable[Graded]]


@dataclass(frozen=True)
class Task:
    """All that an agent gets for one attempt: nothing else of the study reaches it."""

    order: Order
    problem: Problem
    note: str | None
    evaluate: Callable[[str], Awaitable[Graded]]
    journal: Any = None


@dataclass(frozen=True)
class Work:
    """What one attempt came to, as plain values that can cross to another process.

    `kernels` holds the text of every kernel that `submissions` and `kernel_sha256` name, `note` the note left behind,
    `distilled` the notes of one standard request each, `transcript` JSON Lines. `extra` are further fields for the
    record. An outside fault is state `error` with its reason; a kernel's fault is a failed verdict.
    """

    submissions: tuple[Submission, ...] = ()
    kernels: tuple[str, ...] = ()
    kernel_sha256: str | None = None
    verdict: Verdict | None = None
    note: str | None = None
    distilled: tuple[str, ...] = ()
    prompt_sha256: dict[str, str] = field(default_factory=dict)
    usage: Usage | None = None
    state: State = State.FINISHED
    reason: str | None = None
    timed_out: bool = False
    transcript: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)


class Unavailable(Exception):
    """An agent has nothing for this order (no such folder to replay): the order stays missing, nothing is recorded."""


class Agent(Protocol):
    """Who makes attempts: a model over the network, or kernels from disk."""

    name: str

    def prompts(self, order: Order, problem: Problem) -> dict[str, str]:
        """Digests by role of the prompts that an attempt would be given today, the note left out; {} where none."""

    async def attempt(self, task: Task) -> Work:
        """Make one attempt. May be cancelled at any await; `task.journal` lets the next call go on from there.

        Raises:
            Unavailable: there is nothing to make this attempt from.
            runner.limits.Stopped: a cap ends the run.
            UserError: no attempt can be made (a refused key, an unknown model).
        """

    async def close(self) -> None: ...
