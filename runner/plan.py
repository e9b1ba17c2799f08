"""What a study still needs: every attempt of an experiment as an order in running order, done, missing or stale."""

import hashlib
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from runner.catalogue import Problem
from runner.errors import UserError
from runner.records import Arm, Attempt, State, key_of


class Due(StrEnum):
    """Whether an order is to be run: it is done, was never done (or broke), or was done from something else."""

    DONE = "done"
    MISSING = "missing"
    STALE = "stale"


@dataclass(frozen=True)
class Order:
    """One attempt that an experiment asks for; `key` is that of the attempt which answers it.

    A conditioned order is given the note of `source_key`'s attempt, or, where `note_sha256` is set (an ablation), that
    text of the study's notes. `why` says what is stale or why it must run again; it is empty otherwise.
    """

    model: str
    problem: int
    dsl: str
    arm: Arm
    source_dsl: str | None = None
    replicate: int = 1
    generation: int = 0
    aa: int | None = None
    ablation: str | None = None
    note_sha256: str | None = None
    state: Due = Due.MISSING
    why: str = ""

    @property
    def key(self) -> str:
        return key_of(self)

    @property
    def source_key(self) -> str | None:
        """The attempt whose note this one is given: the source's solo, later the generation before; None for a solo."""
        if self.arm is Arm.SOLO:
            return None
        cell = {"model": self.model, "problem": self.problem, "replicate": self.replicate, "dsl": self.source_dsl}
        if self.generation <= 1:
            return Order(**cell, arm=Arm.SOLO).key
        return Order(**cell, arm=Arm.CONDITIONED, source_dsl=self.dsl, generation=self.generation - 1).key

    def line(self) -> dict[str, Any]:
        """The order as plain values, for `--json`."""
        told = {k: v for k, v in vars(self).items() if v not in (None, "")}
        return {**told, "key": self.key, "arm": self.arm.value, "state": self.state.value}


@dataclass(frozen=True)
class Wanted:
    """An experiment: every problem, ordered pair of DSLs and replicate for one model, and A/A twins of some solos."""

    model: str
    problems: Sequence[Problem]
    dsls: Sequence[str]
    replicates: int = 1
    n_aa: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if len(set(self.dsls)) < 2 or len(set(self.dsls)) != len(self.dsls):
            raise UserError(f"--dsls {','.join(self.dsls)}: two or more different DSLs are due, as in cutedsl,tirx")
        if not self.problems:
            raise UserError("--problems: none picked; `mkb-analyze problems` lists them")


# What an attempt was made from, as it is now: named values such as {"problem": sha256, "system prompt": sha256}.
# Called with the order and the digest of the note that it would be given today.
Current = Callable[[Order, str | None], Mapping[str, str]]


def plan(wanted: Wanted, attempts: Iterable[Attempt], current: Current) -> list[Order]:
    """Every order of an experiment in running order, each marked done, missing or stale."""
    attempts = list(attempts)
    return mark(orders(wanted, attempts), attempts, current)


def orders(wanted: Wanted, attempts: Iterable[Attempt] = ()) -> list[Order]:
    """Every order of an experiment, in the order to run them; the same seed gives the same order.

    Cells (problem × replicate) come in random order. In a cell of two DSLs A and B the order is: A alone, B with A's
    note, twins of B, B alone, A with B's note, twins of A; which DSL is A is drawn in balanced halves. So a direction's
    conditioned attempt runs before the solo that it is compared with in half of the cells and after it in the other
    half: a drift of the machine or the model favours neither arm, and twins stand as far from their solo as
    conditioned attempts do.

    Args:
        attempts: what the study holds; A/A twins that are there already count first towards `n_aa`.
    """
    rng = random.Random(f"{wanted.seed}:{wanted.model}")
    cells = [(p.number, r) for p in wanted.problems for r in range(1, wanted.replicates + 1)]
    rng.shuffle(cells)
    twins = _twins(wanted, attempts)
    out: list[Order] = []
    for index, (problem, replicate) in enumerate(cells):
        cell = Order(wanted.model, problem, "", Arm.SOLO, replicate=replicate)
        turn = list(wanted.dsls)
        if len(turn) > 2:
            rng.shuffle(turn)
        elif index % 2:
            turn.reverse()
        for place, dsl in enumerate(turn):
            earlier = turn[:place]
            out += [_conditioned(cell, source, dsl) for source in earlier]
            out += twins.get(replace(cell, dsl=dsl), []) if earlier else []
            out.append(replace(cell, dsl=dsl))
            out += [_conditioned(cell, dsl, target) for target in earlier]
        out += twins.get(replace(cell, dsl=turn[0]), [])
    return out


def _conditioned(cell: Order, source: str, target: str) -> Order:
    return replace(cell, dsl=target, arm=Arm.CONDITIONED, source_dsl=source, generation=1)


def _twins(wanted: Wanted, attempts: Iterable[Attempt]) -> dict[Order, list[Order]]:
    """The A/A twins by the solo that they repeat: those that exist, then one a solo by a seeded draw, then a second."""
    solos = [
        Order(wanted.model, p.number, dsl, Arm.SOLO, replicate=r)
        for p in wanted.problems
        for r in range(1, wanted.replicates + 1)
        for dsl in wanted.dsls
    ]
    there = {a.key for a in attempts if a.aa is not None}
    # By digest, not by shuffling: a problem added later leaves the draw among the others as it was.
    solos.sort(key=lambda o: hashlib.sha256(f"{wanted.seed}:{o.key}".encode()).hexdigest())
    rounds = -(-wanted.n_aa // len(solos)) if wanted.n_aa else 0
    pool = [replace(solo, aa=k) for k in range(1, rounds + 1) for solo in solos]
    pool.sort(key=lambda o: o.key not in there)
    found: dict[Order, list[Order]] = {}
    for twin in pool[: wanted.n_aa]:
        found.setdefault(replace(twin, aa=None), []).append(twin)
    return found


def mark(wanted: Sequence[Order], attempts: Iterable[Attempt], current: Current) -> list[Order]:
    """The same orders, each with its state and why, from what the study holds and what the world is now."""
    known = {a.key: a for a in attempts}
    asked = {o.key: o for o in wanted}
    marked: dict[str, Order] = {}

    def state_of(order: Order) -> Order:
        if order.key in marked:
            return marked[order.key]
        source = asked.get(order.source_key) if order.source_key else None
        marked[order.key] = found = _marked(order, known, state_of(source) if source else None, current)
        return found

    return [state_of(order) for order in wanted]


def split(planned: Sequence[Order], redo_stale: bool) -> tuple[list[Order], dict[str, str]]:
    """The orders to run now, and what is held back with the reason: by default nothing stale is touched or built on."""
    due, held = [], {}
    states = {o.key: o.state for o in planned}
    for order in planned:
        if order.state is Due.DONE:
            continue
        if redo_stale:
            due.append(order)
        elif order.state is Due.STALE:
            held[order.key] = f"stale ({order.why}); --redo-stale runs it again"
        elif states.get(order.source_key) is Due.STALE and order.note_sha256 is None:
            held[order.key] = f"its source {order.source_key} is stale; --redo-stale runs both"
        else:
            due.append(order)
    return due, held


def _marked(order: Order, known: Mapping[str, Attempt], source: Order | None, current: Current) -> Order:
    attempt = known.get(order.key)
    if attempt is None:
        return replace(order, state=Due.MISSING, why="")
    if attempt.state is State.ERROR:
        return replace(order, state=Due.MISSING, why=f"broke last time: {attempt.reason}")
    note = order.note_sha256
    if note is None and order.source_key in known:
        note = known[order.source_key].note_sha256
    changed = [
        name
        for name, value in current(order, note).items()
        if name in (was := made_from(attempt)) and was[name] != value
    ]
    if attempt.state is State.SKIPPED and note is not None:
        changed.append("note")
    if source is not None and source.state is Due.STALE and order.note_sha256 is None:
        changed.append("source attempt")
    return replace(
        order, state=Due.STALE if changed else Due.DONE, why=f"changed: {', '.join(changed)}" if changed else ""
    )


def made_from(attempt: Attempt) -> dict[str, str]:
    """What an attempt's record says it was made from, by the names of `Current`; what it does not say is left out."""
    found = {
        "problem": attempt.problem_sha256,
        "contract": attempt.verdict.contract_sha256 if attempt.verdict else None,
        "note": attempt.source_note_sha256,
        **{f"version of {name}": version for name, version in attempt.versions.items()},
        **{f"{role} prompt": digest for role, digest in attempt.prompt_sha256.items()},
    }
    return {name: value for name, value in found.items() if value is not None}
