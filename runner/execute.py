"""Runs orders through an agent and an evaluator handed in, many at once; each attempt is recorded when it ends."""

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from runner import digests, dsls, journal
from runner.catalogue import Problem
from runner.clock import utc_now
from runner.errors import UserError
from runner.journal import Journal
from runner.limits import Stopped
from runner.plan import Due, Order
from runner.records import Arm, Attempt, State, Submission, Usage, Verdict
from runner.study import Study

log = logging.getLogger(__name__)
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)


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
    journal: Journal | None = None


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


@dataclass
class Summary:
    """What a run did: the attempts recorded in this run, the orders left with the reason, the cap that ended it."""

    recorded: list[Attempt] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    stopped: str | None = None

    @property
    def n_broken(self) -> int:
        return sum(a.state is State.ERROR for a in self.recorded)


async def execute(
    orders: Sequence[Order],
    study: Study,
    agent: Agent,
    evaluate: Evaluate,
    problems: Mapping[int, Problem],
    *,
    concurrency: int = 4,
    on_attempt: Callable[[Attempt], None] = lambda attempt: None,
) -> Summary:
    """Run the orders that are not done, in their order, each as soon as the note that it is given is there.

    One attempt's fault is its own record (state `error`) and stops no other. A cap stops the start of new requests;
    attempts under way keep their journals and go on with the next run. Call inside `study.writing()`.

    Raises:
        UserError: no attempt can be made (a refused key, an unknown model); what ended before is recorded.
    """
    run = _Run(study, agent, evaluate, problems, on_attempt, {a.key: a for a in study.attempts()})
    return await run.all([o for o in orders if o.state is not Due.DONE], concurrency)


class _Run:
    def __init__(
        self,
        study: Study,
        agent: Agent,
        evaluate: Evaluate,
        problems: Mapping[int, Problem],
        on_attempt: Callable[[Attempt], None],
        known: dict[str, Attempt],
    ):
        self.study, self.agent, self.evaluate, self.problems = study, agent, evaluate, problems
        self.on_attempt, self.known, self.summary = on_attempt, known, Summary()
        for attempt in known.values():
            _forget(study, attempt)

    async def all(self, due: list[Order], concurrency: int) -> Summary:
        waiting = list(due)
        under_way: dict[asyncio.Task[None], Order] = {}
        hopeless: UserError | None = None
        try:
            while waiting or under_way:
                open_keys = {o.key for o in (*waiting, *under_way.values())}
                ended = hopeless is not None or self.summary.stopped is not None
                ready = [] if ended else [o for o in waiting if o.source_key not in open_keys or o.note_sha256]
                for order in ready[: concurrency - len(under_way)]:
                    waiting.remove(order)
                    under_way[asyncio.create_task(self.one(order))] = order
                if not under_way:
                    break
                done, _ = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    order, fault = under_way.pop(task), task.exception()
                    if isinstance(fault, Stopped):
                        self.summary.stopped = str(fault)
                        self.summary.left[order.key] = f"stopped: {fault}"
                    elif isinstance(fault, UserError):
                        hopeless = hopeless or fault
                    elif isinstance(fault, OSError):
                        place = self.study.path
                        hopeless = UserError(f"{place}: cannot be written ({fault.strerror}); free the disk, run again")
                    elif fault is not None:
                        raise fault
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
        if hopeless is not None:
            raise hopeless
        for order in waiting:
            self.summary.left[order.key] = f"stopped: {self.summary.stopped}"
        return self.summary

    async def one(self, order: Order) -> None:
        """Make and record one attempt, or say why it is left."""
        note_sha256 = order.note_sha256
        if order.arm is Arm.CONDITIONED and note_sha256 is None:
            source = self.known.get(order.source_key)
            if source is None or source.state is State.ERROR:
                why = "is missing" if source is None else f"broke: {source.reason}"
                self.summary.left[order.key] = f"its source {order.source_key} {why}"
                return
            note_sha256 = source.note_sha256
            if note_sha256 is None:
                self.record(order, None, Work(state=State.SKIPPED, reason=f"{order.source_key} left no note"))
                return
        problem = self.problems[order.problem]
        diary = Journal.of(self.study.path, order.key)

        async def grade(kernel: str) -> Graded:
            return await self.evaluate(problem, order.dsl, kernel)

        try:
            note = self.study.note(note_sha256) if note_sha256 else None
            work = await self.agent.attempt(Task(order, problem, note, grade, diary))
        except Unavailable as fault:
            self.summary.left[order.key] = str(fault)
            return
        except (Stopped, UserError, asyncio.CancelledError):
            raise
        except Exception as fault:
            if isinstance(fault, OSError) and fault.errno in _DISK:
                raise
            # One attempt fails alone: its fault is its record.
            log.exception("%s broke", order.key)
            reason = f"{type(fault).__name__}: {' '.join(str(fault).split())[:300]}"
            work = Work(state=State.ERROR, reason=reason)
        self.record(order, note_sha256, work)
        if work.state is not State.ERROR:
            diary.remove()

    def record(self, order: Order, note_sha256: str | None, work: Work) -> None:
        """Texts first, then the line that names them: a kill between the two leaves a text that nobody names."""
        attempt = self.attempt(order, note_sha256, work)
        before = self.known.get(attempt.key)
        if before is None or _timeless(before) != _timeless(attempt):
            self.study.append("attempts", attempt)
        self.known[attempt.key] = attempt
        self.summary.recorded.append(attempt)
        self.on_attempt(attempt)

    def attempt(self, order: Order, note_sha256: str | None, work: Work) -> Attempt:
        """The record of an order's work, its texts kept in the study."""
        problem, study = self.problems[order.problem], self.study
        for kernel in work.kernels:
            study.put_text("kernels", kernel)
        distilled = tuple(study.put_text("notes", text) for text in work.distilled)
        verdict = work.verdict
        return Attempt(
            model=order.model,
            problem=problem.number,
            problem_name=problem.name,
            family=problem.family,
            dsl=order.dsl,
            arm=order.arm,
            replicate=order.replicate,
            generation=order.generation,
            source_dsl=order.source_dsl,
            source_note_sha256=note_sha256,
            aa=order.aa,
            ablation=order.ablation,
            state=work.state,
            reason=work.reason,
            verdict=verdict,
            submissions=work.submissions,
            kernel_sha256=work.kernel_sha256,
            note_sha256=study.put_text("notes", work.note) if work.note is not None else None,
            distilled_note_sha256=distilled or None,
            transcript_sha256=journal.keep(study.path, work.transcript) if work.transcript else None,
            problem_sha256=problem.sha256,
            prompt_sha256=work.prompt_sha256,
            usage=work.usage,
            versions=dsls.plugin(order.dsl).versions(),
            device=verdict.device if verdict else None,
            timed_out=work.timed_out,
            at=utc_now(),
            **work.extra,
        )


def _forget(study: Study, attempt: Attempt) -> None:
    """Remove the journal of an attempt that a killed run had recorded but not yet cleared away."""
    diary = Journal.of(study.path, attempt.key)
    ended = attempt.transcript_sha256 is not None and attempt.state is not State.ERROR
    if ended and diary.path.exists() and digests.of_file(diary.path) == attempt.transcript_sha256:
        diary.remove()


def _timeless(attempt: Attempt) -> dict[str, Any]:
    return {k: v for k, v in attempt.line().items() if k != "at"}
