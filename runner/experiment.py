"""One experiment on one study: what it needs, what it would cost, and running what is missing."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner import catalogue, contract, dsls
from runner.agent import ModelAgent, Settings
from runner.catalogue import Problem
from runner.dsl_docs import Docs
from runner.errors import UserError
from runner.estimate import Cost, estimate
from runner.evaluate import pick_device
from runner.execute import Agent, Evaluate, Summary, execute
from runner.fleet import Fleet, LocalFleet
from runner.fleet_ray import RayFleet
from runner.limits import Limits
from runner.llm import Client
from runner.plan import Current, Order, Wanted, plan, split
from runner.prices import Price
from runner.records import Attempt
from runner.replay_agent import ReplayAgent
from runner.study import Study

TIMEOUT_S = 600.0  # of one reply: a model that thinks may take minutes


@dataclass(frozen=True)
class Asked:
    """What `run` was asked for, checked."""

    wanted: Wanted
    study: Path
    settings: Settings
    limits: Limits
    agent: str = "model"
    base_url: str | None = None
    price: Price | None = None
    docs: Path | None = None
    device: str | None = None
    redo_stale: bool = False
    concurrency: int = 4
    fleet: str = "local"
    per_device: int = 1
    ray_address: str | None = None

    @property
    def problems(self) -> Mapping[int, Problem]:
        return {p.number: p for p in self.wanted.problems}


@dataclass(frozen=True)
class Planned:
    """Every order with its state, those to run now, those held back with the reason, and what the due ones cost."""

    orders: list[Order]
    due: list[Order]
    held: dict[str, str]
    cost: Cost | None


def common_device(names: Sequence[str], device: str | None = None) -> str:
    """The one device on which every DSL of an experiment is graded, so that its figures compare.

    Raises:
        UserError: a DSL is unknown or not installed, or the DSLs share no device that this machine has.
    """
    for name in names:
        if (cure := dsls.plugin(name).missing()) is not None:
            raise UserError(f"{name}: not installed; {cure}")
    if device is None:
        shared = [d for d in ("cuda", "cpu") if all(d in dsls.plugin(n).devices for n in names)]
        if not shared:
            raise UserError(f"--dsls {','.join(names)}: they run on no common device; take others")
        best = [pick_device(n) for n in names]
        device = "cuda" if "cuda" in shared and all(b == "cuda" for b in best) else shared[-1]
    for name in names:
        pick_device(name, device)
    return device


def fleet_of(asked: Asked) -> Fleet:
    """Where kernels are graded: on this machine's devices, or on a Ray cluster's. Close it in the end.

    Raises:
        UserError: no such fleet; the DSLs have no common device there; a GPU was to take two evaluations at once.
    """
    names = asked.wanted.dsls
    if asked.fleet == "local":
        if asked.ray_address is not None:
            raise UserError(f"--ray-address {asked.ray_address}: only --fleet ray has an address; give both or neither")
        return LocalFleet(common_device(names, asked.device), asked.per_device)
    if asked.fleet == "ray":
        if asked.per_device != 1:
            raise UserError(f"--per-device {asked.per_device}: a cluster's devices take one at a time; leave it out")
        return RayFleet(names, asked.device, asked.ray_address)
    raise UserError(f"--fleet {asked.fleet}: local or ray is due")


def agent_of(asked: Asked, device: str) -> Agent:
    """The agent that was asked for: a model, or `replay:DIR`."""
    kind, _, folder = asked.agent.partition(":")
    if kind == "replay" and folder:
        return ReplayAgent(folder)
    if asked.agent != "model":
        raise UserError(f"--agent {asked.agent}: model or replay:DIR is due")
    client = Client(asked.wanted.model, asked.limits, base_url=asked.base_url, price=asked.price)
    docs = {dsl: Docs(dsl, asked.docs) for dsl in asked.wanted.dsls}
    return ModelAgent(client, asked.settings, docs, device)


def current_of(agent: Agent, problems: Mapping[int, Problem]) -> Current:
    """What attempts would be made from today, by the names that `plan.made_from` uses."""
    versions = {dsl: dsls.plugin(dsl).versions() for dsl in dsls.names()}

    def current(order: Order, note_sha256: str | None) -> dict[str, str]:
        problem = problems[order.problem]
        return {
            "problem": problem.sha256,
            "contract": contract.digest(),
            **{f"version of {name}": v for name, v in versions[order.dsl].items()},
            **{f"{role} prompt": digest for role, digest in agent.prompts(order, problem).items()},
            **({"note": note_sha256} if note_sha256 else {}),
        }

    return current


def planned(asked: Asked, agent: Agent) -> Planned:
    """The plan against what the study holds; a study that is not there yet holds nothing."""
    attempts = Study(asked.study).attempts() if (asked.study / "study.json").exists() else []
    return _planned(asked, agent, attempts)


def _planned(asked: Asked, agent: Agent, attempts: list[Attempt]) -> Planned:
    orders = plan(asked.wanted, attempts, current_of(agent, asked.problems))
    due, held = split(orders, asked.redo_stale)
    cost = None
    if agent.name == "model":
        s = asked.settings
        cost = estimate(due, attempts, asked.wanted.problems, asked.price, s.max_submissions, s.n_distillations)
    return Planned(orders, due, held, cost)


def open_study(asked: Asked, device: str) -> Study:
    """The study, made if it is not there; UserError where it was begun under another budget or on another device."""
    budget = {"minutes": asked.settings.budget_minutes, "submissions": asked.settings.max_submissions}
    own: dict[str, Any] = {
        "dsls": list(asked.wanted.dsls),
        "contract": contract.settings(),
        "problem_set_sha256": catalogue.set_digest(),
        "baseline": "the problem's reference in CuPy or NumPy",
        "origin": {"kind": "run"},
        "budget": budget,
        "graded_on": device,
    }
    study = Study.create(asked.study, **own)
    for name, mine in (("budget", budget), ("graded_on", device)):
        theirs = study.manifest.get(name, mine)
        if theirs != mine:
            raise UserError(f"{asked.study}: begun with {name} {theirs}, not {mine}; give that or another --study")
    added = [d for d in asked.wanted.dsls if d not in study.manifest.get("dsls", [])]
    missing = {k: v for k, v in own.items() if k not in study.manifest}
    if added or missing:
        study.update_manifest(**missing, dsls=[*study.manifest.get("dsls", []), *added])
    return study


def run(
    asked: Asked,
    agent: Agent,
    evaluate: Evaluate,
    device: str,
    on_plan: Callable[[Planned], None] = lambda planned: None,
    on_attempt: Callable[[Attempt], None] = lambda attempt: None,
) -> tuple[Planned, Summary]:
    """Run what is missing, holding the study's write lock; returns the plan it began with and what became of it."""
    study = open_study(asked, device)
    with study.writing():
        found = _planned(asked, agent, study.attempts())
        on_plan(found)

        async def go() -> Summary:
            try:
                return await execute(
                    found.due,
                    study,
                    agent,
                    evaluate,
                    asked.problems,
                    concurrency=asked.concurrency,
                    on_attempt=on_attempt,
                )
            finally:
                with contextlib.suppress(Exception):
                    await agent.close()

        summary = asyncio.run(go())
    summary.left = {**found.held, **summary.left}
    return found, summary
