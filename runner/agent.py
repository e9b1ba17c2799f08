"""A model as agent: replies and tool calls under a budget of minutes and submissions, then note and verdict."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runner import agent_prompts as prompts
from runner import contract, digests, distil
from runner.agent_state import AttemptState
from runner.agent_tools import Bench
from runner.catalogue import Problem
from runner.chat import Chat, Message, action_in
from runner.completion import Reply
from runner.dsl_docs import Docs
from runner.errors import UserError
from runner.execute import Task, Work
from runner.journal import Journal
from runner.llm import Client
from runner.plan import Order
from runner.records import Stage, State, Verdict

MAX_REQUESTS = 200
MAX_BARE_REPLIES = 3  # replies without an action in a row, after which the attempt ends
N_FINAL_TRIES = 3
NUDGE = "That was no action. Call one of the tools: " + ", ".join(prompts.NAMES) + "."
CUT_OFF = "That reply was cut off at the limit of its length. Be shorter, and call one of the tools."


@dataclass(frozen=True)
class Settings:
    """What an attempt may use, and how many notes are distilled from it (1: only where the agent wrote none)."""

    budget_minutes: float = contract.BUDGET_S / 60
    max_submissions: int = contract.BUDGET_SUBMISSIONS
    n_distillations: int = 1
    temperature: float | None = None
    max_output_tokens: int = 16_384
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.budget_minutes < 1e5:
            raise UserError(f"--budget-minutes {self.budget_minutes:g}: a number above 0 is due; the default is 40")
        if not 1 <= self.max_submissions <= 1000:
            raise UserError(f"--max-submissions {self.max_submissions}: 1 to 1000 are due; the default is 10")
        if not 1 <= self.n_distillations <= 100:
            raise UserError(f"--distillations {self.n_distillations}: 1 to 100 are due; the default is 1")

    def seed_of(self, key: str) -> int:
        """The seed of one attempt's requests: A/A twins, replicates and arms never share one."""
        return int(digests.of_text(f"{self.seed}:{key}")[:7], 16)


class ModelAgent:
    """Attempts by a model behind an OpenAI-compatible URL.

    Args:
        docs: documentation by DSL.
        device: `cuda` or `cpu`, where kernels are graded.
    """

    name = "model"

    def __init__(self, client: Client, settings: Settings, docs: Mapping[str, Docs], device: str):
        self.client, self.settings, self.docs, self.device = client, settings, docs, device
        self._docs_sha256 = {dsl: d.sha256() for dsl, d in docs.items()}

    def user(self, order: Order, problem: Problem) -> str:
        budget = self.settings.budget_minutes, self.settings.max_submissions
        return prompts.user_prompt(problem, order.dsl, self.device, *budget)

    def prompts(self, order: Order, problem: Problem) -> dict[str, str]:
        return prompts.prompt_digests(self.user(order, problem), self._docs_sha256.get(order.dsl))

    async def attempt(self, task: Task) -> Work:
        return await _Attempt(self, task).make()

    async def close(self) -> None:
        await self.client.close()


class _Attempt:
    """One attempt under way."""

    def __init__(self, agent: ModelAgent, task: Task):
        self.agent, self.task, self.settings = agent, task, agent.settings
        self.journal = task.journal or Journal(None)
        self.user = prompts.with_note(agent.user(task.order, task.problem), task.note)
        self.state = AttemptState([Message("system", prompts.SYSTEM), Message("user", self.user)])
        self.seed = self.settings.seed_of(task.order.key)
        self.digests = agent.prompts(task.order, task.problem) | {"user": digests.of_text(self.user)}
        self.bench = Bench(task, agent.docs.get(task.order.dsl), agent.device, self.settings)
        self._since, self._waited = time.monotonic(), 0.0

    def clock_s(self) -> float:
        """Seconds of the attempt so far: what it waited for a device is not charged."""
        return self._before + time.monotonic() - self._since - self._waited

    def happen(self, event: str, **told: Any) -> None:
        """Let an event happen: on disk first, then in the state."""
        self._waited += told.get("waited_s", 0.0)
        self.journal.write({"event": event, "at_s": round(self.clock_s(), 3), **told})
        self.state.apply(self.journal.events[-1])

    async def make(self) -> Work:
        """The whole attempt, from its start or from where a killed one stopped."""
        for event in self.journal.begin(self._head()):
            self.state.apply(event)
        self._before, self._since = self.state.clock_s, time.monotonic()
        while self.state.ended is None:
            if (broken := await self._step()) is not None:
                return self._work(State.ERROR, broken)
        if (broken := await self._distil()) is not None:
            return self._work(State.ERROR, broken)
        if (broken := await self._grade()) is not None:
            return self._work(State.ERROR, broken)
        return self._work(State.FINISHED, None)

    def _head(self) -> dict[str, Any]:
        return {
            "key": self.task.order.key,
            "system": prompts.SYSTEM,
            "user": self.user,
            "prompt_sha256": self.digests,
            "problem_sha256": self.task.problem.sha256,
            "contract_sha256": contract.digest(),
            "settings": vars(self.settings),
            "device": self.agent.device,
        }

    async def _step(self) -> str | None:
        """One reply or its answers; what broke for outside reasons, if anything did."""
        state = self.state
        if calls := state.unanswered():
            for call in calls:
                self.happen(
                    "answer", call=call.id, tool=call.name, **await self.bench.answer(call, state, self.clock_s)
                )
            return None
        left_s = self.settings.budget_minutes * 60 - self.clock_s()
        if state.finished or left_s <= 0:
            self.happen("end", why="finished" if state.finished else "time")
        elif state.n_replies >= MAX_REQUESTS:
            self.happen("end", why=f"{MAX_REQUESTS} requests")
        elif state.n_bare >= MAX_BARE_REPLIES:
            self.happen("end", why=f"{MAX_BARE_REPLIES} replies in a row without an action")
        else:
            return await self._ask(left_s)
        return None

    async def _ask(self, left_s: float) -> str | None:
        room, temperature = self.settings.max_output_tokens, self.settings.temperature
        chat = Chat(self.state.messages, prompts.TOOLS, room, self.seed, temperature)
        try:
            reply = await asyncio.wait_for(self.agent.client.chat(chat), left_s)
        except TimeoutError:
            self.happen("end", why="time")
            return None
        told = self._told(reply)
        if reply.failure is not None:
            self.happen("failure", why=reply.failure, **told)
            return reply.failure
        refused = (reply.unscored or "").startswith("server refused")
        if refused and not self.state.n_replies:
            self.happen("failure", why=reply.unscored, **told)
            return reply.unscored
        if refused:  # most often a conversation that has grown past what the model reads
            self.happen("end", why=reply.unscored, **told)
            return None
        text = reply.text if reply.text is not None else reply.raw or ""
        calls = reply.calls
        if not calls and (found := action_in(text, prompts.NAMES)) is not None and reply.unscored is None:
            calls, text = (found,), ""
        # Some servers number every reply's calls from the start: a name of their own keeps the answers apart.
        named = [[f"{c.id}_{self.state.n_replies}_{i}", c.name, c.arguments] for i, c in enumerate(calls)]
        self.happen("reply", text=text, calls=named, **told)
        if not calls:
            self.happen("nudge", text=CUT_OFF if (reply.unscored or "").startswith("truncated") else NUDGE)
        return None

    async def _distil(self) -> str | None:
        """The notes that are still due, each by one standard request."""
        state, k = self.state, self.settings.n_distillations
        n_due = k if k > 1 else int(state.note is None)
        while (n := len(state.distilled) + len(state.undistilled)) < n_due:
            task = self.task
            account = distil.Account(
                task.problem, task.order.dsl, task.note, state.submissions, state.kernels, state.said
            )
            reply = await self.agent.client.chat(distil.request(account, self.seed + 1 + n))
            if reply.failure is not None:
                self._spend("failure", why=reply.failure, **self._told(reply))
                return f"no note: {reply.failure}"
            text = reply.text if (reply.text or "").strip() else None
            self._spend("distilled", text=text, why=reply.unscored or "no text", **self._told(reply))
        return None

    async def _grade(self) -> str | None:
        """The final verdict, on the last kernel."""
        kernel = self.state.final_kernel
        if self.state.final is None and kernel is None:
            self._spend("final", verdict=self._no_kernel().line())
        n = 0
        while self.state.final is None:
            graded = await self.task.evaluate(kernel)
            n += 1
            if not getattr(graded.verdict, "infrastructure", False):
                self._spend("final", verdict=graded.verdict.line(), waited_s=graded.waited_s)
            elif n >= N_FINAL_TRIES:
                return f"no final verdict: {graded.verdict.reason}"
        return None

    def _spend(self, event: str, **told: Any) -> None:
        """An event after the attempt's end: its clock stands still."""
        self.journal.write({"event": event, "at_s": self.state.clock_s, **told})
        self.state.apply(self.journal.events[-1])

    def _no_kernel(self) -> Verdict:
        return Verdict(
            passed=False,
            stage=Stage.LOAD,
            reason="no kernel was ever submitted",
            contract_sha256=contract.digest(),
            size=self.bench.size,
        )

    @staticmethod
    def _told(reply: Reply) -> dict[str, Any]:
        served = {"served_model": reply.served_model[:200]} if reply.served_model else {}
        return {"usage": reply.usage.line(), **served}

    def _work(self, state: State, reason: str | None) -> Work:
        now, client = self.state, self.agent.client
        kernel = now.final_kernel
        own = now.note if now.note is not None else next(iter(now.distilled), None)
        sent = dict(self.digests)
        if not now.distilled and not now.undistilled:
            sent.pop("distil")
        extra: dict[str, Any] = {
            "agent": self.agent.name,
            "ended": now.ended,
            "budget_minutes": self.settings.budget_minutes,
            "max_submissions": self.settings.max_submissions,
            "note_by": None if own is None else "agent" if now.note is not None else "distillation",
            "n_replies": now.n_replies,
            "queue_s": round(now.waited_s, 3),
            "seed": self.seed,
            "calls_by": "tools" if client.shape.tools else "text",
            "served_model": now.served_model,
        }
        if now.distilled or now.undistilled:
            extra["distil_temperature"] = distil.TEMPERATURE if client.shape.temperature else None
        if now.undistilled:
            extra["undistilled"] = now.undistilled
        return Work(
            submissions=tuple(now.submissions),
            kernels=tuple(now.kernels.values()),
            kernel_sha256=None if kernel is None else digests.of_text(kernel),
            verdict=now.final,
            note=own,
            distilled=tuple(now.distilled),
            prompt_sha256=sent,
            usage=now.usage(),
            state=state,
            reason=reason,
            timed_out=now.ended == "time",
            transcript=self.journal.text(),
            extra={k: v for k, v in extra.items() if v is not None},
        )
