"""Caps that stop a run between requests, and a pace that keeps to a server's rate limits without hitting them."""

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from runner.errors import UserError
from runner.records import Usage


class Stopped(Exception):
    """A cap would be passed by the next request; what was answered is kept. The message names the cap."""


class Unreachable(Stopped):
    """The server answers nobody any more; what was answered is kept. The message says what it did last."""


@dataclass(frozen=True)
class Limits:
    """What a run may spend and how fast; None means no cap.

    Caps are hard: a request whose largest possible use would pass one is not sent. `requests_per_minute` and
    `tokens_per_minute` are the server's; `n_tries` bounds how often one request is sent; `patience_s` is the longest
    wait that a server may ask for.
    """

    max_usd: float | None = None
    max_tokens: int | None = None
    max_requests: int | None = None
    concurrency: int = 16
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    n_tries: int = 6
    timeout_s: float = 180.0
    patience_s: float = 300.0
    max_output_tokens: int = 16_384

    def __post_init__(self) -> None:
        for name, least in (
            ("max_usd", 0),
            ("max_tokens", 0),
            ("max_requests", 0),
            ("concurrency", 1),
            ("n_tries", 1),
            ("timeout_s", 0.001),
            ("patience_s", 0),
            ("requests_per_minute", 0.001),
            ("tokens_per_minute", 0.001),
            ("max_output_tokens", 1),
        ):
            value = getattr(self, name)
            if value is not None and not (least <= value < math.inf):
                raise UserError(f"{name.replace('_', '-')} {value}: a finite number of at least {least} is due")


@dataclass(frozen=True)
class Estimate:
    """The most that one request may use: tokens in and out together, and US dollars (0 where no price is known)."""

    n_tokens: int
    usd: float = 0.0


def n_tokens_at_most(text: str) -> int:
    """An estimate from above of a text's tokens: half of its ASCII characters and two for every other one.

    Prose has about four ASCII characters a token, code and figures two to three; hexadecimal comes nearest to two.
    """
    n_ascii = len(text.encode("ascii", "ignore"))
    return n_ascii // 2 + 1 + 2 * (len(text) - n_ascii)


class Budget:
    """Counts requests, tokens and money over every client that shares it, and refuses what would pass a cap."""

    def __init__(self, limits: Limits):
        self.limits = limits
        self.n_requests = 0
        self.n_input_tokens = 0
        self.n_cached_tokens = 0
        self.n_output_tokens = 0
        self.usd = 0.0
        self.unpriced = False
        self._held_tokens = 0
        self._held_usd = 0.0
        self._n_held = 0
        self._freed = asyncio.Event()
        self._capped = limits.max_usd is not None or limits.max_tokens is not None

    @property
    def n_tokens(self) -> int:
        return self.n_input_tokens + self.n_output_tokens

    async def admit(self, most: Estimate) -> None:
        """Reserve room for one request, waiting for those under way to settle where only that makes room.

        Raises:
            Stopped: the request does not fit under a cap.
        """
        while (name := self._full(most)) is not None:
            if not self._n_held or name.startswith("max-requests"):
                raise Stopped(name)
            self._freed.clear()
            await self._freed.wait()
        self._hold(most)

    def admit_now(self, most: Estimate) -> None:
        """Reserve room for one request; Stopped where it does not fit beside those that are under way."""
        if (name := self._full(most)) is not None:
            raise Stopped(name)
        self._hold(most)

    def _hold(self, most: Estimate) -> None:
        self.n_requests += 1
        self._n_held += 1
        self._held_tokens += most.n_tokens
        self._held_usd += most.usd

    def _full(self, most: Estimate) -> str | None:
        limits = self.limits
        if limits.max_requests is not None and self.n_requests >= limits.max_requests:
            return f"max-requests {limits.max_requests} reached"
        if not self._capped:
            return None
        if limits.max_tokens is not None and self.n_tokens + self._held_tokens + most.n_tokens > limits.max_tokens:
            return f"max-tokens {limits.max_tokens}: the next request might pass it ({self.n_tokens} used)"
        if limits.max_usd is not None and self.usd + self._held_usd + most.usd > limits.max_usd:
            return f"max-usd {limits.max_usd:g}: the next request might pass it (${self.usd:.4f} used)"
        return None

    def settle(self, most: Estimate, usage: Usage | None, usd: float | None) -> None:
        """Give back what `admit` reserved and count what was used; a request that told no usage counts none."""
        self._n_held -= 1
        self._held_tokens -= most.n_tokens
        self._held_usd -= most.usd
        self.count(usage, usd)
        self._freed.set()

    def release(self, most: Estimate) -> None:
        """Give back a reservation whose request was never sent."""
        self.n_requests -= 1
        self.settle(most, None, None)

    def count(self, usage: Usage | None, usd: float | None) -> None:
        """Add the tokens and money of an answer that no reservation was made for."""
        if usage is not None:
            self.n_input_tokens += usage.n_input_tokens or 0
            self.n_cached_tokens += usage.n_cached_tokens or 0
            self.n_output_tokens += usage.n_output_tokens or 0
            self.unpriced |= usd is None
        self.usd += usd or 0.0

    def usage(self) -> Usage:
        """Everything counted so far; the cost is None where some answer had no price."""
        return Usage(
            n_requests=self.n_requests,
            n_input_tokens=self.n_input_tokens,
            n_cached_tokens=self.n_cached_tokens,
            n_output_tokens=self.n_output_tokens,
            cost_usd=None if self.unpriced else self.usd,
        )


class Pace:
    """Spaces requests and tokens evenly (the generic cell rate algorithm with no burst), and waits when told to.

    In any 60 s at most `requests_per_minute` requests start, and at most `tokens_per_minute` plus one request's
    tokens. `now` and `sleep` are handed in by tests.
    """

    def __init__(
        self,
        requests_per_minute: float | None,
        tokens_per_minute: float | None,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable = asyncio.sleep,
    ):
        self._request_s = 60.0 / requests_per_minute if requests_per_minute else 0.0
        self._token_s = 60.0 / tokens_per_minute if tokens_per_minute else 0.0
        self._next_request = self._next_token = self._held_until = 0.0
        self._now, self._sleep = now, sleep

    async def turn(self, n_tokens: int) -> None:
        """Wait for this request's turn; turns are given in the order in which they were asked for."""
        while True:
            start = max(self._now(), self._next_request, self._next_token, self._held_until)
            self._next_request = start + self._request_s
            self._next_token = max(self._next_token, start) + n_tokens * self._token_s
            while (wait := start - self._now()) > 0:
                await self._sleep(wait)
            if self._held_until <= self._now():
                return
            self._next_token -= n_tokens * self._token_s  # told to wait meanwhile: a new turn, after that

    def correct(self, n_expected: int, n_used: int | None) -> None:
        """Give back the turn's tokens that were not used, or take those that were used beyond it."""
        if self._token_s and n_used is not None:
            self._next_token += (n_used - n_expected) * self._token_s

    def hold(self, seconds: float) -> None:
        """Let nobody start for so long: the server asked for it."""
        self._held_until = max(self._held_until, self._now() + seconds)
