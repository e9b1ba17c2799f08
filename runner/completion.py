"""Reads a server's response: the answer's text, or why it is none, the tokens used, the wait asked for."""

import email.utils
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from runner import plain_json
from runner.chat import Call, calls_of
from runner.records import Usage

MAX_REPLY_CHARS = 200_000


@dataclass(frozen=True)
class Reply:
    """The answer's text, or why there is none.

    `failure` says that no answer came (the item may be asked again later); `unscored` that an answer came which is
    none: a refusal, a filter, no room. `raw` keeps what was said. `usage` counts every send, failed ones too. `calls`
    are the tools that the model calls; with calls, the text may be empty.
    """

    text: str | None
    usage: Usage
    failure: str | None = None
    unscored: str | None = None
    raw: str | None = None
    served_model: str | None = None
    calls: tuple[Call, ...] = ()


@dataclass
class Spent:
    """What one question has used so far, over all its sends."""

    n_requests: int = 0
    n_input: int | None = None
    n_cached: int | None = None
    n_output: int | None = None
    usd: float | None = None

    def add(self, usage: Usage | None, usd: float | None) -> None:
        if usage is None:
            return
        self.n_input = (self.n_input or 0) + (usage.n_input_tokens or 0)
        self.n_output = (self.n_output or 0) + (usage.n_output_tokens or 0)
        if usage.n_cached_tokens is not None:
            self.n_cached = (self.n_cached or 0) + usage.n_cached_tokens
        if usd is not None:
            self.usd = (self.usd or 0.0) + usd

    def usage(self) -> Usage:
        return Usage(
            n_requests=self.n_requests,
            n_input_tokens=self.n_input,
            n_cached_tokens=self.n_cached,
            n_output_tokens=self.n_output,
            cost_usd=self.usd,
        )


def body_of(content: bytes) -> Any:
    """A body as JSON; None where it is none."""
    try:
        return plain_json.loads(content)
    except ValueError:
        return None


def usage_of(body: Any) -> Usage | None:
    """The token counts that a body tells; None where it tells none."""
    try:
        told = body["usage"]
        details = told.get("prompt_tokens_details") or {}
        return Usage(
            n_input_tokens=told.get("prompt_tokens"),
            n_output_tokens=told.get("completion_tokens"),
            n_cached_tokens=details.get("cached_tokens"),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def read(body: Any, spent: Spent) -> Reply | None:
    """The reply in a chat completion's body; None when it is no chat completion."""
    try:
        choice = body["choices"][0]
        message = choice["message"]
        text, refusal, finish = message.get("content"), message.get("refusal"), choice.get("finish_reason")
    except (KeyError, IndexError, TypeError, AttributeError):
        return None
    model = body.get("model") if isinstance(body.get("model"), str) else None
    if isinstance(text, list):  # some servers answer in parts
        text = "".join(str(p.get("text") or "") for p in text if isinstance(p, dict))
    raw = (text if isinstance(text, str) else "")[:MAX_REPLY_CHARS]
    reply = Reply(None, spent.usage(), raw=raw or None, served_model=model)
    if isinstance(refusal, str) and refusal:
        return replace(reply, unscored="refused", raw=refusal[:MAX_REPLY_CHARS])
    if finish == "content_filter":
        return replace(reply, unscored="filtered: the server's content filter stopped the answer")
    if finish == "length":
        return replace(reply, unscored="truncated")
    if calls := calls_of(message):
        return replace(reply, text=raw, calls=calls)
    if not raw.strip():
        return replace(reply, unscored="empty answer")
    return replace(reply, text=raw)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """The wait that a server asks for: `retry-after-ms`, or `Retry-After` in seconds or as a date; None without one."""
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) * unit
        except ValueError:
            try:
                seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
            except (ValueError, TypeError):
                continue
        if seconds == seconds and seconds >= 0:
            return seconds
    return None
