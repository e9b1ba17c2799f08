"""Asks through the Batch API: submitted, polled, collected; a run that was killed at any point goes on where it was."""

import asyncio
import json
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from annotators.engine import Present, Run, Seat, Summary, Writer
from annotators.raters import Outcome
from annotators.raters.openai_rater import answer_of, total
from runner import plain_json
from runner.clock import utc_now
from runner.completion import Reply, Spent, read, usage_of
from runner.errors import UserError
from runner.limits import Estimate, Stopped
from runner.study import write_atomically

MAX_LINES = 20_000  # the public service takes 50,000 lines and 200 MB a file
MAX_FILE_BYTES = 90_000_000
ENDED = ("completed", "failed", "expired", "cancelled")
FOLDER = "batches"


class _State:
    """What was sent and is not collected yet, on disk beside the study's tables; every change is whole or not at all.

    A part is one batch: `token` names it before it exists, `items` maps each line's id to [item key, question,
    of how many].
    """

    def __init__(self, folder: Path, name: str):
        self.file = folder / FOLDER / f"{name}.json"
        self.parts: list[dict[str, Any]] = []
        if self.file.exists():
            try:
                self.parts = plain_json.loads(self.file.read_text("utf-8"))["parts"]
            except (ValueError, KeyError, TypeError):
                raise UserError(f"{self.file}: unreadable; delete it, and what it had sent is asked anew") from None

    def save(self) -> None:
        if self.parts:
            self.file.parent.mkdir(exist_ok=True)
            write_atomically(self.file, json.dumps({"parts": self.parts}))
        else:
            self.file.unlink(missing_ok=True)

    def pending(self) -> set[str]:
        """The keys of the items that are under way."""
        return {item[0] for part in self.parts for item in part["items"].values()}


class BatchRun:
    """One verb's work through the Batch API; raters that compute run as ever. `poll_s` is the wait between looks."""

    def __init__(self, run: Run, poll_s: float = 30.0):
        self.run, self.poll_s = run, poll_s

    async def go(self) -> Summary:
        """Send what is missing, wait for it and record it. Killed and run again, it sends nothing twice."""
        run, began = self.run, time.monotonic()
        summary = Summary(run.task.name)
        present = Present(run.study, run.task, run.keys_of)
        writer = Writer(run.study, run.task.table)
        try:
            for seat in run.seats:
                try:
                    if hasattr(seat.rater, "rate_many"):
                        await run.seat(seat, present, writer, summary)
                    else:
                        await _SeatBatch(self, seat, present, writer, summary).go()
                except Stopped as fault:
                    summary.stopped = str(fault)
        finally:
            await writer.close()
            await run.close(summary)
        summary.usage = run.budget.usage()
        summary.elapsed_s = time.monotonic() - began
        return summary


class _SeatBatch:
    """One seat's batches."""

    def __init__(self, batch: BatchRun, seat: Seat, present: Present, writer: Writer, summary: Summary):
        self.run, self.poll_s = batch.run, batch.poll_s
        self.seat, self.present, self.writer, self.summary = seat, present, writer, summary
        self.held: dict[str, Estimate] = {}  # what this run reserved for lines that it sent itself
        self.rater, self.client, self.task = seat.rater, seat.rater.client, batch.run.task
        me = seat.rater.identity(self.task, seat.repeat).key
        self.state = _State(self.run.study.path, f"{self.task.name}-{me[:16]}")

    async def go(self) -> None:
        under_way = self.state.pending()
        references = {}
        due = []
        # One pass: items under way keep their references, the missing ones are to be sent.
        for key, reference in self.run.missing_references(self.seat, self.present, self.summary):
            if key in under_way:
                references[key] = reference
            else:
                due.append((key, reference))
        # The first question goes alone and is recorded: it proves key and model and finds out what the server takes.
        if due and not self.state.parts:
            await self._keep(await self.rater.rate(self.task, self.run.item(due.pop(0)[1]), self.seat.repeat))
        stopped = None
        try:
            for part, content, some in self._parts(due):
                references |= some
                await self._submit(part, content)
        except Stopped as fault:
            stopped = fault
        for part in list(self.state.parts):
            await self._submit(part, None)
            await self._collect(part, await self._wait(part), references)
            self.state.parts.remove(part)
            self.state.save()
        if stopped:
            raise stopped

    def _parts(self, due: list[tuple[str, Any]]) -> Iterator[tuple[dict, bytes, dict]]:
        """The missing items as files of requests, each with its state and the references of its items."""
        at = 0
        while at < len(due):
            token, lines, items, references, n_bytes = secrets.token_hex(8), [], {}, {}, 0
            stopped = None
            while at < len(due) and len(lines) < MAX_LINES and n_bytes < MAX_FILE_BYTES:
                key, reference = due[at]
                questions = self.task.questions(self.run.item(reference))
                try:
                    held = self.client.reserve([self.rater.request(q, self.seat.repeat) for q in questions])
                except Stopped as fault:
                    stopped = fault
                    break
                at += 1
                references[key] = reference
                for n, question in enumerate(questions):
                    name = f"{token}-{len(lines)}"
                    items[name], self.held[name] = [key, n, len(questions)], held[n]
                    body = self.client.body(self.rater.request(question, self.seat.repeat))
                    line = json.dumps(
                        {"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body}
                    )
                    lines.append(line)
                    n_bytes += len(line)
            if lines:
                yield {"token": token, "items": items}, "\n".join(lines).encode() + b"\n", references
            if stopped:
                raise stopped

    async def _submit(self, part: dict, content: bytes | None) -> None:
        """Bring a part to the server from whichever step it was left at; a batch made by a lost call is found again."""
        client = self.client
        if part not in self.state.parts:
            upload = await client.patiently(
                "file upload",
                lambda: client.sdk.files.create(file=(f"{part['token']}.jsonl", content or b""), purpose="batch"),
            )
            part["input_file_id"] = upload.id
            self.state.parts.append(part)
            self.state.save()
        if "batch_id" in part:
            return
        for _ in range(self.seat.limits.n_tries):
            found = await self._find(part["token"])
            if found is None:
                try:
                    made = await client.once(
                        lambda: client.sdk.batches.create(
                            input_file_id=part["input_file_id"],
                            endpoint="/v1/chat/completions",
                            completion_window="24h",
                            metadata={"token": part["token"]},
                        )
                    )
                except ConnectionError:
                    await asyncio.sleep(min(self.poll_s, 1.0))
                    continue
                found = made.id
            part["batch_id"] = found
            self.state.save()
            return
        raise Stopped("the server makes no batch")

    async def _find(self, token: str) -> str | None:
        listed = await self.client.patiently("batch list", lambda: self.client.sdk.batches.list(limit=100))
        return next((b.id for b in listed.data if (b.metadata or {}).get("token") == token), None)

    async def _wait(self, part: dict) -> Any:
        """Look at a batch until it has ended."""
        while True:
            batch = await self.client.patiently("batch", lambda: self.client.sdk.batches.retrieve(part["batch_id"]))
            if batch.status in ENDED:
                return batch
            await asyncio.sleep(self.poll_s)

    async def _collect(self, part: dict, batch: Any, references: dict[str, Any]) -> None:
        """Record what a batch brought; each item stands or falls by its own lines."""
        lines = {}
        for file_id in (batch.output_file_id, batch.error_file_id):
            if file_id:
                content = await self.client.patiently(
                    "batch result", lambda f=file_id: self.client.sdk.files.content(f)
                )
                for raw in content.content.splitlines():
                    _take(raw, lines)
        by_item: dict[str, list[Reply]] = {}
        for name, (key, _, _) in part["items"].items():  # in the order of the questions, which dicts keep
            by_item.setdefault(key, []).append(self._reply(name, lines.get(name), batch.status))
        for key, replies in by_item.items():
            if key in references:  # the others were recorded before the run was killed
                await self._keep(await self._outcome(references[key], replies))

    def _reply(self, name: str, line: Any, status: str) -> Reply:
        """One line as a reply."""
        response = line.get("response") if isinstance(line, dict) else None
        if not isinstance(response, dict):
            if name in self.held:
                self.client.budget.settle(self.held.pop(name), None, None)
            return Reply(None, Spent().usage(), failure=f"no line came back: the batch is {status}")
        body, code = response.get("body"), response.get("status_code")
        usage = usage_of(body)
        usd = self.client.price.cost_usd(usage, batch=True) if usage and self.client.price else None
        spent = Spent(n_requests=1)
        spent.add(usage, usd)
        if name in self.held:
            self.client.budget.settle(self.held.pop(name), usage, usd)
        else:
            self.client.budget.n_requests += 1
            self.client.budget.count(usage, usd)
        if code != 200:
            kind = {
                "unscored" if code in (400, 413, 422) else "failure": f"server refused the question: {code} in a batch"
            }
            return Reply(None, spent.usage(), **kind)
        return read(body, spent) or Reply(None, spent.usage(), failure="broken body: no JSON of a chat completion")

    async def _outcome(self, reference: Any, replies: list[Reply]) -> Outcome:
        item, usage = self.run.item(reference), total(r.usage for r in replies)
        if failure := next((r.failure for r in replies if r.failure), None):
            return Outcome(None, failure, usage)
        if any(r.unscored == "truncated" for r in replies):
            return await self.rater.rate(self.task, item, self.seat.repeat, room_factor=2)
        rater = self.rater.identity(self.task, self.seat.repeat)
        return Outcome(self.task.read(item, [answer_of(r) for r in replies], rater, usage, utc_now()), None, usage)

    async def _keep(self, outcome: Outcome) -> None:
        await self.run.keep(outcome, self.writer, self.summary)


def _take(raw: bytes, lines: dict[str, Any]) -> None:
    """Keep one result line under its id; a broken line loses its own item only, the first of two counts."""
    try:
        line = plain_json.loads(raw)
        lines.setdefault(line["custom_id"], line)
    except (ValueError, KeyError, TypeError):
        return
