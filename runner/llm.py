"""The only room that speaks to a language model: one question in, one reply out, with bounded, named retries."""

import asyncio
import logging
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import openai

from runner.chat import Chat
from runner.completion import Reply, Spent, body_of, read, retry_after_s, usage_of
from runner.errors import UserError
from runner.limits import Budget, Estimate, Limits, Pace, Stopped, Unreachable, n_tokens_at_most
from runner.prices import Price
from runner.records import Usage
from runner.shape import Shape, adapted

log = logging.getLogger(__name__)
T = TypeVar("T")

DEFAULT_URL = "https://api.openai.com/v1"
TRANSIENT = frozenset((408, 409, 429, 500, 502, 503, 504, 529))
N_FAILED_AT_START = 2  # questions without any answer after which a server that never answered is given up
N_ROOM_STEPS = 3  # how often a truncated answer is asked again, each time with twice the room


@dataclass(frozen=True)
class Request:
    """One question: `system` is the prefix that all questions of a task share, `user` the item."""

    system: str
    user: str
    schema: Mapping[str, Any]
    schema_name: str
    max_output_tokens: int
    seed: int | None = None
    temperature: float | None = None

    def texts(self) -> list[str]:
        """Every text that is sent, for an estimate of its tokens."""
        return [self.system, self.user]


@dataclass
class Client:
    """A model behind an OpenAI-compatible URL; many questions may be under way at once.

    What the server can do (structured output, the names of parameters) is found out by the first question, while
    the others wait, and kept in `shape`. The key comes from the environment alone (`OPENAI_API_KEY`).

    Raises:
        UserError: no key for the public URL, or a money cap without a price.
    """

    model: str
    limits: Limits = field(default_factory=Limits)
    budget: Budget | None = None
    base_url: str | None = None
    price: Price | None = None
    shape: Shape = field(default_factory=Shape)

    def __post_init__(self) -> None:
        url = self.base_url or os.environ.get("OPENAI_BASE_URL") or DEFAULT_URL
        if not url.startswith(("http://", "https://")):
            raise UserError(f"--base-url {url}: http:// or https:// is due, as in http://127.0.0.1:8080/v1")
        key = os.environ.get("OPENAI_API_KEY")
        if not key and url.startswith(DEFAULT_URL.rsplit("/", 1)[0]):
            raise UserError(
                "OPENAI_API_KEY is not set; export your key, or give --base-url of a server that needs none"
            )
        if self.limits.max_usd is not None and self.price is None:
            raise UserError(
                f"--max-usd {self.limits.max_usd:g}: no price is known for model {self.model}; give --prices FILE"
            )
        self.budget = self.budget or Budget(self.limits)
        self.retries: Counter[str] = Counter()
        self._secret = key or ""
        self._pace = Pace(self.limits.requests_per_minute, self.limits.tokens_per_minute)
        self.served_model: str | None = None
        self._n_failed_in_row = 0
        self._proven = asyncio.Event()
        self._first = asyncio.Lock()
        self._jitter = random.Random()
        http = openai.DefaultAioHttpClient(timeout=self.limits.timeout_s) if _has_aiohttp() else None
        # The client's own retries are silent and shared by all errors, so they are off: retries are named here.
        self._client = openai.AsyncOpenAI(
            api_key=key or "none", base_url=url, max_retries=0, timeout=self.limits.timeout_s, http_client=http
        )

    async def close(self) -> None:
        await self._client.close()

    @property
    def sdk(self) -> openai.AsyncOpenAI:
        """The client below, for the files and batches that the Batch API needs."""
        return self._client

    def body(self, request: Request) -> dict[str, Any]:
        """The JSON of a request as this server takes it."""
        return self.shape.body(self.model, request, min(request.max_output_tokens, self.limits.max_output_tokens))

    def reserve(self, requests: Sequence[Request]) -> list[Estimate]:
        """Reserve room under the caps for all of some requests, or for none: Stopped where they do not fit."""
        held: list[Estimate] = []
        try:
            for request in requests:
                most = self._most(request, min(request.max_output_tokens, self.limits.max_output_tokens))
                self.budget.admit_now(most)
                held.append(most)
        except Stopped:
            for most in held:
                self.budget.release(most)
            raise
        return held

    async def once(self, call: Callable[[], Awaitable[T]]) -> T:
        """Do one call of the client below, once; ConnectionError where it may or may not have failed."""
        try:
            return await call()
        except openai.APIStatusError as fault:
            self._give_up_if_hopeless(fault)
            if fault.status_code in TRANSIENT:
                raise ConnectionError(self._name(fault)) from None
            raise UserError(f"the server refuses it ({self._name(fault)}); does it have the Batch API?") from None
        except openai.APIConnectionError as fault:
            raise ConnectionError(self._broken(fault)) from None

    async def patiently(self, what: str, call: Callable[[], Awaitable[T]]) -> T:
        """Do one call of the client below, again after a transient failure, at most `n_tries` times.

        Raises:
            Unreachable: it failed each time.
            UserError: the server refuses it for good.
        """
        for n_failed in range(1, self.limits.n_tries + 1):
            try:
                return await self.once(call)
            except ConnectionError as fault:
                reason = str(fault)
            self.retries[reason.split(":", 1)[0]] += 1
            if n_failed < self.limits.n_tries:
                await self._rest(n_failed, None, reason)
        raise Unreachable(f"{what}: {self.limits.n_tries} sends, last {reason}")

    async def ask(self, request: Request | Chat) -> Reply:
        """Send one question until it is answered or may not be sent again.

        Raises:
            Stopped: a cap lets no more requests through, or (`Unreachable`) nobody is answered any more.
            UserError: the server refuses the key, the model or the account: no question can be answered.
        """
        if not self._proven.is_set():
            async with self._first:
                if not self._proven.is_set():
                    reply = self._noted(await self._answer(request))
                    if reply.failure is None:
                        self._proven.set()
                    return reply
        return self._noted(await self._answer(request))

    async def chat(self, conversation: Chat) -> Reply:
        """Ask for a conversation's next message: a text, calls of tools, or both. The same retries and caps hold."""
        return await self.ask(conversation)

    def _noted(self, reply: Reply) -> Reply:
        """Keep which model answered; a server that answers nobody any more ends the run, not each item in turn."""
        if reply.failure is None:
            self._n_failed_in_row = 0
            self.served_model = reply.served_model or self.served_model
            return reply
        self._n_failed_in_row += 1
        if self._n_failed_in_row >= (2 * self.limits.concurrency if self._proven.is_set() else N_FAILED_AT_START):
            raise Unreachable(f"{self._n_failed_in_row} questions in a row got {reply.failure}")
        return reply

    async def _answer(self, request: Request | Chat) -> Reply:
        spent, n_room_steps, n_failed = Spent(), 0, 0
        room = min(request.max_output_tokens, self.limits.max_output_tokens)
        while True:
            shape = self.shape
            try:
                body = await self._send(shape.body(self.model, request, room), request, room, spent)
            except openai.APIStatusError as fault:
                if changed := adapted(shape, fault.status_code, _message(fault)):
                    # Another question may have found it out meanwhile; either way the new shape is tried.
                    self.shape = changed if self.shape == shape else self.shape
                    log.info("server does not take %s; going on with %s", shape, self.shape)
                    continue
                self._give_up_if_hopeless(fault)
                reason = self._name(fault)
                if fault.status_code not in TRANSIENT:
                    return Reply(None, spent.usage(), unscored=f"server refused the question: {reason}")
                wait_s = retry_after_s(fault.response.headers)
            except openai.APIConnectionError as fault:  # a timeout is one of these
                reason, wait_s = self._broken(fault), None
            else:
                reply = read(body, spent)
                if reply is not None and reply.unscored == "truncated":
                    if n_room_steps < N_ROOM_STEPS and room < self.limits.max_output_tokens:
                        n_room_steps, room = n_room_steps + 1, min(room * 2, self.limits.max_output_tokens)
                        self.retries["truncated"] += 1
                        continue
                    return replace(reply, unscored=f"truncated: no end within {room} tokens")
                if reply is not None:
                    return reply
                reason, wait_s = "broken body: no JSON of a chat completion", None
            n_failed += 1
            self.retries[reason.split(":", 1)[0]] += 1
            if n_failed >= self.limits.n_tries or (wait_s or 0) > self.limits.patience_s:
                told = f", asked to wait {wait_s:.0f} s" if (wait_s or 0) > self.limits.patience_s else ""
                return Reply(None, spent.usage(), failure=f"no answer: {n_failed} sends, last {reason}{told}")
            await self._rest(n_failed, wait_s, reason)

    async def _rest(self, n_failed: int, wait_s: float | None, reason: str) -> None:
        """Wait before the next send: as long as the server asks, else twice as long each time, never in step."""
        own = min(0.25 * 2 ** (n_failed - 1), 30.0) * (0.5 + self._jitter.random())
        if reason.startswith("429"):
            self._pace.hold(wait_s if wait_s is not None else own)
        await asyncio.sleep(own if wait_s is None else wait_s)

    async def _send(self, body: dict[str, Any], request: Request | Chat, room: int, spent: Spent) -> Any:
        """One HTTP request, admitted by budget and pace; what it used is counted whatever became of it."""
        most = self._most(request, room)
        await self._pace.turn(most.n_tokens)
        await self.budget.admit(most)
        spent.n_requests += 1
        usage = usd = None
        try:
            # The raw bytes: building the library's typed completion costs as much as the rest of the request.
            told = body_of(await self._client.post("/chat/completions", body=body, cast_to=bytes))
            usage = usage_of(told)
            return told
        except openai.APIStatusError as fault:
            usage = usage_of(body_of(_message(fault).encode()))
            raise
        finally:
            usd = self._usd(usage) if usage else None
            spent.add(usage, usd)
            self.budget.settle(most, usage, usd)
            self._pace.correct(
                most.n_tokens, (usage.n_input_tokens or 0) + (usage.n_output_tokens or 0) if usage else None
            )

    def _most(self, request: Request | Chat, room: int) -> Estimate:
        n_in = sum(map(n_tokens_at_most, request.texts()))
        return Estimate(n_in + room, self._usd(Usage(n_input_tokens=n_in, n_output_tokens=room)) or 0.0)

    def _usd(self, usage: Usage) -> float | None:
        return self.price.cost_usd(usage) if self.price else None

    def _give_up_if_hopeless(self, fault: openai.APIStatusError) -> None:
        message = _message(fault)
        if fault.status_code == 401:
            raise UserError("the server refused the key (401); set OPENAI_API_KEY to a key of this server")
        if fault.status_code == 403:
            raise UserError(f"the server refuses this account (403): {self._clean(message)}; ask its owner for access")
        if fault.status_code == 404:
            raise UserError(
                f"openai:{self.model}: the server has no such model or path (404): {self._clean(message)}; "
                f"check the model's name and --base-url"
            )
        if fault.status_code == 429 and "insufficient_quota" in message:
            raise UserError("the account's quota is used up (429 insufficient_quota); add credit, then run again")

    def _name(self, fault: openai.APIStatusError) -> str:
        return f"{fault.status_code}: {self._clean(_message(fault))}"

    def _broken(self, fault: openai.APIConnectionError) -> str:
        """What broke a connection, by its first cause: the aiohttp transport calls a lost connection a timeout too."""
        cause: BaseException = fault
        while cause.__cause__ is not None:
            cause = cause.__cause__
        name = type(cause).__name__
        return f"timeout: nothing within {self.limits.timeout_s:g} s" if "Timeout" in name else f"connection: {name}"

    def _clean(self, message: str) -> str:
        """A server's message, one line, bounded, and without the key if the server echoes it."""
        if self._secret:
            message = message.replace(self._secret, "[key]")
        return " ".join(message.split())[:200]


def _has_aiohttp() -> bool:
    try:
        import aiohttp  # noqa: F401
    except ImportError:
        return False
    return True


def _message(fault: openai.APIStatusError) -> str:
    try:
        return fault.response.text[:2000]
    except Exception:  # a body that was reset in mid-read has no text
        return ""
