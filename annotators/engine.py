"""Asks what is missing: every item of a task by every seat of a panel, recorded the moment it is answered."""

import asyncio
import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from annotators.progress import Progress
from annotators.raters import AnyRater, Outcome
from annotators.records import Rater
from runner.errors import UserError
from runner.limits import Budget, Limits, Stopped
from runner.records import Record, Usage
from runner.study import Study

CHUNK = 64  # items that a computing rater gets at once


@dataclass(frozen=True)
class Seat:
    """One rater at one repeat: what answers an item once."""

    rater: AnyRater
    repeat: int
    limits: Limits


@dataclass
class Summary:
    """What a run did. Counts are of answers (item × rater × repeat), but for those of claims.

    `n_unscored` counts answers without any label by reason, `n_claims_unscored` claims, `n_failed` items that got no
    answer and are asked again by the next run. `stopped` names the cap that ended the run early.
    """

    task: str
    n_items: int = 0
    n_skipped_present: int = 0
    n_asked: int = 0
    n_scored: int = 0
    n_unscored: Counter = field(default_factory=Counter)
    n_failed: Counter = field(default_factory=Counter)
    n_claims: int = 0
    n_claims_unscored: Counter = field(default_factory=Counter)
    n_retries: Counter = field(default_factory=Counter)
    usage: Usage = field(default_factory=Usage)
    stopped: str | None = None
    elapsed_s: float = 0.0

    @property
    def cost_usd(self) -> float | None:
        return self.usage.cost_usd

    def take(self, outcome: Outcome) -> None:
        """Count one outcome."""
        self.n_asked += 1
        record = outcome.record
        if record is None:
            self.n_failed[_kind(outcome.failure or "no answer")] += 1
            return
        if record.unscored is None:
            self.n_scored += 1
        else:
            self.n_unscored[_kind(record.unscored)] += 1
        for claim in getattr(record, "claims", ()):
            self.n_claims += 1
            if claim.unscored is not None:
                self.n_claims_unscored[_kind(claim.unscored)] += 1

    def data(self) -> dict[str, Any]:
        """The summary as plain values."""
        return {
            "task": self.task,
            "n_items": self.n_items,
            "n_skipped_present": self.n_skipped_present,
            "n_asked": self.n_asked,
            "n_scored": self.n_scored,
            "n_unscored": dict(self.n_unscored),
            "n_failed": dict(self.n_failed),
            "n_claims": self.n_claims,
            "n_claims_unscored": dict(self.n_claims_unscored),
            "n_retries": dict(self.n_retries),
            "usage": self.usage.line(),
            "cost_usd": self.cost_usd,
            "stopped": self.stopped,
            "elapsed_s": round(self.elapsed_s, 3),
        }

    def text(self) -> str:
        """The summary in a few lines for a person."""
        lines = [
            f"{self.task}: {self.n_items} due, {self.n_skipped_present} there already, {self.n_asked} asked, "
            f"{self.n_scored} scored"
        ]
        if self.n_claims:
            lines.append(f"  {self.n_claims} claims, {self.n_claims - self.n_claims_unscored.total()} with a label")
        for what, counts in (
            ("unscored", self.n_unscored),
            ("claims unscored", self.n_claims_unscored),
            ("failed, asked again by the next run", self.n_failed),
            ("retries", self.n_retries),
        ):
            lines += [f"  {what}: {n} × {reason}" for reason, n in sorted(counts.items())]
        if self.usage.n_requests:
            cost = f", ${self.cost_usd:.4f}" if self.cost_usd else ""
            lines.append(
                f"  {self.usage.n_requests} requests, {self.usage.n_input_tokens or 0} tokens in "
                f"({self.usage.n_cached_tokens or 0} cached), {self.usage.n_output_tokens or 0} out{cost}"
            )
        if self.stopped:
            lines.append(f"  stopped: {self.stopped}; what came is kept, run again to go on")
        return "\n".join(lines)


def _kind(reason: str) -> str:
    return reason.split(":", 1)[0].strip()[:80]


class Present:
    """Which answers a study already has: 16 bytes each, read once from its table."""

    def __init__(self, study: Study, task: Any, keys_of: Callable[[dict], Iterable[str]]):
        self._seen: set[bytes] = set()
        raters: dict[str, str] = {}
        for number, line in study.lines(task.table):
            try:
                told = json.dumps(line["rater"], sort_keys=True)
                if told not in raters:
                    raters[told] = Rater.model_validate(line["rater"]).key
                for key in keys_of(line):
                    self._seen.add(_mark(key, raters[told]))
            except (ValueError, KeyError, TypeError):
                raise UserError(
                    f"{study.path}/{task.table}.jsonl:{number}: no record of that table; mend or delete that line"
                ) from None

    def has(self, item_key: str, rater_key: str) -> bool:
        return _mark(item_key, rater_key) in self._seen

    def add(self, item_key: str, rater_key: str) -> None:
        self._seen.add(_mark(item_key, rater_key))


def _mark(item_key: str, rater_key: str) -> bytes:
    return hashlib.blake2b(f"{item_key}\0{rater_key}".encode(), digest_size=16).digest()


class Writer:
    """Appends records as they come; those that arrive while the disk is busy go together with the next write."""

    def __init__(self, study: Study, table: str):
        self._study, self._table = study, table
        self._waiting: list[tuple[Record, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def put(self, record: Record) -> None:
        """Return when the record is on disk: who answered it starts nothing new before, so a kill loses no answer
        but those in flight."""
        written = asyncio.get_running_loop().create_future()
        self._waiting.append((record, written))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        await asyncio.shield(written)

    async def put_all(self, records: list[Record]) -> None:
        """Append records that came together."""
        await asyncio.to_thread(self._study.append, self._table, records)

    async def _write(self) -> None:
        while self._waiting:
            some, self._waiting = self._waiting, []
            try:
                await asyncio.to_thread(self._study.append, self._table, [record for record, _ in some])
            except Exception as fault:
                for _, written in (*some, *self._waiting):
                    if not written.done():
                        written.set_exception(fault)
                self._waiting = []
                return
            for _, written in some:
                if not written.done():
                    written.set_result(None)

    async def close(self) -> None:
        """Wait for the write that is under way."""
        if self._writing is not None:
            await self._writing


@dataclass
class Run:
    """One verb's work on one study: items, seats and what is there already."""

    study: Study
    task: Any
    seats: list[Seat]
    keys: Callable[[], Iterator[Any]]  # cheap references of all items, streamed anew for each seat
    item: Callable[[Any], Any]  # the item of a reference, its texts read
    keys_of: Callable[[dict], Iterable[str]]  # the item keys that a line of the table answers
    budget: Budget
    progress: Progress

    def missing_references(self, seat: Seat, present: Present, summary: Summary) -> Iterator[tuple[str, Any]]:
        """Key and reference of each item that this seat has not answered, each once."""
        me = seat.rater.identity(self.task, seat.repeat).key
        for key, reference in self.keys():
            summary.n_items += 1
            if present.has(key, me):
                summary.n_skipped_present += 1
                self.progress.step()
                continue
            present.add(key, me)
            yield key, reference

    async def go(self) -> Summary:
        """Ask everything that is missing. Stopping at a cap is no error; a refused key is, after what came is kept."""
        began = time.monotonic()
        summary = Summary(self.task.name)
        present = Present(self.study, self.task, self.keys_of)
        writer = Writer(self.study, self.task.table)
        try:
            done = await asyncio.gather(
                *(self.seat(seat, present, writer, summary) for seat in self.seats), return_exceptions=True
            )
        finally:
            await writer.close()
            await self.close(summary)
        summary.usage = self.budget.usage()
        summary.elapsed_s = time.monotonic() - began
        for fault in done:
            if isinstance(fault, Stopped):
                summary.stopped = str(fault)
            elif isinstance(fault, BaseException):
                raise fault
        return summary

    async def close(self, summary: Summary) -> None:
        """Close the raters that hold connections, and count what they had to send again."""
        for rater in {id(s.rater): s.rater for s in self.seats}.values():
            if hasattr(rater, "close"):
                await rater.close()
                summary.n_retries.update(rater.client.retries)

    async def seat(self, seat: Seat, present: Present, writer: Writer, summary: Summary) -> None:
        """Ask one seat everything that is missing of it."""
        items = (self.item(reference) for _, reference in self.missing_references(seat, present, summary))
        if hasattr(seat.rater, "rate_many"):
            while some := list(islice(items, CHUNK)):
                outcomes = list(seat.rater.rate_many(self.task, some, seat.repeat))
                await writer.put_all([o.record for o in outcomes if o.record is not None])
                for outcome in outcomes:
                    summary.take(outcome)
                    self.progress.step()
            return
        ended: list[BaseException] = []

        async def work() -> None:
            # Each worker takes the next item when its last is answered; an ended run starts none, and finishes its own.
            while not ended:
                try:
                    item = next(items, None)
                    if item is None:
                        return
                    await self.keep(await seat.rater.rate(self.task, item, seat.repeat), writer, summary)
                except Exception as fault:
                    ended.append(fault)

        await asyncio.gather(*(work() for _ in range(seat.limits.concurrency)))
        if ended:
            raise next((f for f in ended if not isinstance(f, Stopped)), ended[0])

    async def keep(self, outcome: Outcome, writer: Writer, summary: Summary) -> None:
        """Record an outcome and count it."""
        if outcome.record is not None:
            await writer.put(outcome.record)
        summary.take(outcome)
        self.progress.step()
