"""Who labels: a model over the network, the embedded rater, a file; one way to make each from what the user wrote."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from annotators.records import Rater
from runner.errors import UserError
from runner.limits import Budget, Limits
from runner.prices import Price
from runner.records import Record, Usage


@dataclass(frozen=True)
class Outcome:
    """What a rater made of one item: a record, or the reason why none came (then the item is asked again next time)."""

    record: Record | None
    failure: str | None = None
    usage: Usage | None = None


class AnyRater(Protocol):
    """What every rater can do. A rater has either `rate` (waits for a network) or `rate_many` (computes)."""

    name: str

    def identity(self, task: Any, repeat: int) -> Rater:
        """Who this is for that task: what a record keeps and what resuming compares."""
        ...


class ComputingRater(AnyRater, Protocol):
    def rate_many(self, task: Any, items: Iterable[Any], repeat: int) -> Iterator[Outcome]:
        """One outcome an item, in order, streamed."""
        ...


class WaitingRater(AnyRater, Protocol):
    async def rate(self, task: Any, item: Any, repeat: int) -> Outcome:
        """The outcome of one item."""
        ...

    async def close(self) -> None: ...


def make(
    spec: str,
    *,
    limits: Limits | None = None,
    budget: Budget | None = None,
    base_url: str | None = None,
    prices: Mapping[str, Price] | None = None,
    temperature: float | None = 0.0,
    seed: int = 1,
    threshold: float | None = None,
    model_file: str | Path | None = None,
) -> AnyRater:
    """The rater that `spec` names: `embedded`, `embedded:MODEL` (a file of `train-rater`), `openai:MODEL` or `file:PATH`.

    `budget` is shared by raters that spend from one purse. `temperature` None leaves the server's own.

    Raises:
        UserError: no such rater, or one that cannot work (no key, no file).
    """
    kind, _, rest = spec.partition(":")
    if kind == "embedded" and (rest or spec == kind):
        from annotators.raters.offline import Offline

        return Offline(rest or model_file, threshold)
    if kind == "openai" and rest:
        from annotators.raters.openai_rater import OpenAIRater

        return OpenAIRater(
            rest,
            limits=limits or Limits(),
            budget=budget,
            base_url=base_url,
            price=(prices or {}).get(rest),
            temperature=temperature,
            seed=seed,
        )
    if kind == "file" and rest:
        from annotators.raters.file_rater import FileRater

        return FileRater(rest)
    raise UserError(f"rater {spec!r}: embedded, embedded:MODEL, openai:MODEL or file:PATH is due")
