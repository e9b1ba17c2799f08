"""A model behind an OpenAI-compatible URL as a rater: asks a task's questions, adds up usage, keeps what went wrong."""

from collections.abc import Iterable
from typing import Any

from annotators.raters import Outcome
from annotators.records import Rater, RaterKind
from annotators.tasks import Answer, Question
from runner.clock import utc_now
from runner.limits import Budget, Limits
from runner.llm import Client, Reply, Request
from runner.prices import Price
from runner.records import Usage

SEED_STEP = 7919  # repeats' seeds lie this far apart, so that no two raters of a panel share one by chance


class OpenAIRater:
    """One model; `repeat` k is asked with its own seed, and every request has its own random code in it, so that no
    cache can give one repeat the answer of another."""

    def __init__(
        self,
        model: str,
        *,
        limits: Limits,
        budget: Budget | None = None,
        base_url: str | None = None,
        price: Price | None = None,
        temperature: float | None = 0.0,
        seed: int = 1,
    ):
        self.name = f"openai:{model}"
        self.model, self.temperature, self.seed = model, temperature, seed
        self.client = Client(model, limits, budget, base_url, price)
        self._identities: dict[tuple, Rater] = {}

    def identity(self, task: Any, repeat: int) -> Rater:
        """Who this is for that task; `settings.found` holds what the server turned out to take."""
        shape, served = self.client.shape, self.client.served_model
        slot = (task.prompt_sha256, repeat, shape, served)
        if slot not in self._identities:
            settings = {"seed": self.seed_of(repeat), "found": shape.found()}
            if served not in (None, self.model):
                settings["found"]["served_model"] = served[:200]
            if self.temperature is not None:
                settings["temperature"] = self.temperature
            self._identities[slot] = Rater(
                kind=RaterKind.MODEL,
                name=self.name,
                model=self.model,
                rubric_id=task.rubric.id,
                rubric_sha256=task.rubric.sha256,
                prompt_sha256=task.prompt_sha256,
                repeat=repeat,
                settings=settings,
            )
        return self._identities[slot]

    def seed_of(self, repeat: int) -> int:
        return self.seed + SEED_STEP * (repeat - 1)

    def request(self, question: Question, repeat: int, room_factor: int = 1) -> Request:
        """The question as it is sent for that repeat, with so many times the room for its answer."""
        return Request(
            question.system,
            question.user,
            question.schema,
            question.schema_name,
            question.max_output_tokens * room_factor,
            self.seed_of(repeat),
            self.temperature,
        )

    async def rate(self, task: Any, item: Any, repeat: int, room_factor: int = 1) -> Outcome:
        """Ask every question of one item, one after the other; where one brings no answer the item is not recorded."""
        replies: list[Reply] = []
        for question in task.questions(item):
            reply = await self.client.ask(self.request(question, repeat, room_factor))
            replies.append(reply)
            if reply.failure:
                return Outcome(None, reply.failure, total(r.usage for r in replies))
        usage = total(r.usage for r in replies)
        record = task.read(item, [answer_of(r) for r in replies], self.identity(task, repeat), usage, utc_now())
        return Outcome(record, None, usage)

    async def close(self) -> None:
        await self.client.close()


def answer_of(reply: Reply) -> Answer:
    """A reply as tasks read it."""
    return Answer(reply.text, reply.unscored or reply.failure, reply.raw, reply.usage)


def total(usages: Iterable[Usage]) -> Usage | None:
    """Several usages as one; a part that no request told stays None."""
    usages = tuple(usages)
    if not usages:
        return None
    if len(usages) == 1:
        return usages[0]
    parts = {}
    for name in ("n_requests", "n_input_tokens", "n_cached_tokens", "n_output_tokens", "cost_usd"):
        told = [getattr(u, name) for u in usages if getattr(u, name) is not None]
        parts[name] = sum(told) if told else None
    return Usage(**parts)
