"""Which items people see, in which order, which of them blind and which as traps."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from annotators.review.items import Item, share
from runner.errors import UserError

_PERCENT = re.compile(r"(\d+(?:\.\d+)?)%")


def percent(text: str, name: str) -> float:
    """`5%` as 0.05; UserError for anything else."""
    found = _PERCENT.fullmatch(text.strip())
    if not found or float(found[1]) > 100:
        raise UserError(f"--{name} {text}: a share from 0% to 100% is due, such as 20%")
    return float(found[1]) / 100


def selected(items: Iterable[Item], words: Sequence[str], seed: str) -> list[Item]:
    """The items that any word picks: `doubtful`, `harmed`, `random:N%`, `all`.

    Ordered by doubt, then by weight in the result, then by name, largest first.
    """
    share_random = 0.0
    for word in words:
        if word.startswith("random:"):
            share_random = max(share_random, percent(word.removeprefix("random:"), "select random:"))
        elif word not in ("doubtful", "harmed", "all"):
            raise UserError(f"--select {word}: doubtful, harmed, random:5% or all is due, in a comma list")
    if not words:
        raise UserError("--select: empty; give doubtful, harmed, random:5% or all")
    kept = [
        i
        for i in items
        if "all" in words
        or ("doubtful" in words and i.doubt > 0)
        or ("harmed" in words and i.harmed)
        or share(seed, "random", i.item) < share_random
    ]
    return sorted(kept, key=lambda i: (-i.doubt, -i.weight, i.item))


@dataclass(frozen=True)
class Shown:
    """How one reviewer gets an item: `blind` withholds the panel's labels, `trap` says that its answer is settled."""

    item: Item
    blind: bool
    trap: bool


def mixed(fresh: Sequence[Shown], traps: Sequence[Shown]) -> list[Shown]:
    """The fresh items in their order with the traps evenly among them."""
    out = list(fresh)
    for n, trap in enumerate(traps):
        out.insert(round((n + 0.5) * len(fresh) / len(traps)) + n, trap)
    return out
