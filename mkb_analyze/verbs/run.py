"""The verb `run`: flags to an experiment, the plan or the run in words."""

from collections import Counter
from pathlib import Path
from typing import Any

from annotators.progress import Progress
from mkb_analyze.console import Answer
from mkb_analyze.verbs.parse import names, number, switch
from runner.errors import UserError
from runner.plan import Due

_LIMITS = {"max_usd": float, "max_tokens": int, "max_requests": int}


def ran(model: Any, problems: Any, dsls: Any, study: Any, dry_run: Any, **given: Any) -> Answer:
    """Plan an experiment, and run what is missing of it unless `dry_run`."""
    from runner import experiment

    asked = _asked(model, problems, dsls, study, **given)
    only_plan = switch(dry_run, "dry-run")
    fleet = experiment.fleet_of(asked)
    try:
        agent = experiment.agent_of(asked, fleet.device)
        if only_plan:
            found = experiment.planned(asked, agent)
            told = {**_plan_data(found), "fleet": fleet.words()}
            return Answer("\n".join([*_plan_lines(found), fleet.words(), *_label(asked)]), told)
        return _run(asked, fleet.agent(agent, asked), fleet)
    finally:
        fleet.close()


def _asked(model: Any, problems: Any, dsls: Any, study: Any, **given: Any) -> Any:
    from runner import catalogue, prices
    from runner.agent import Settings
    from runner.experiment import TIMEOUT_S, Asked
    from runner.limits import Limits
    from runner.plan import Wanted

    def count(name: str, least: int) -> int:
        return number(given[name], name.replace("_", "-"), int, least)

    if not str(model).strip():
        raise UserError("--model: empty; give the name by which the server knows the model")
    seed, concurrency = count("seed", 0), count("concurrency", 1)
    picked = catalogue.select(problems)
    wanted = Wanted(str(model), picked, names(dsls), count("replicates", 1), count("aa", 0), seed)
    settings = Settings(
        number(given["budget_minutes"], "budget-minutes", float, 0),
        count("max_submissions", 1),
        count("distillations", 1),
        number(given["temperature"], "temperature", float, 0),
        seed=seed,
    )
    caps = {k: number(given[k], k.replace("_", "-"), kind, 0) for k, kind in _LIMITS.items()}
    limits = Limits(**caps, concurrency=concurrency, timeout_s=TIMEOUT_S)
    price = prices.load(str(given["prices"])).get(str(model)) if given["prices"] else None
    return Asked(
        wanted,
        Path(str(study)),
        settings,
        limits,
        str(given["agent"]),
        str(given["base_url"]) if given["base_url"] else None,
        price,
        Path(str(given["docs"])) if given["docs"] else None,
        str(given["device"]) if given["device"] else None,
        switch(given["redo_stale"], "redo-stale"),
        concurrency,
        str(given["fleet"]),
        count("per_device", 1),
        str(given["ray_address"]) if given["ray_address"] else None,
    )


def _run(asked: Any, agent: Any, fleet: Any) -> Answer:
    from runner import experiment

    bars: list[Progress] = []
    try:
        found, summary = experiment.run(
            asked,
            agent,
            fleet,
            fleet.device,
            on_plan=lambda p: bars.append(Progress("attempts", len(p.due))),
            on_attempt=lambda a: bars[0].step(),
        )
    finally:
        for bar in bars:
            bar.close()
    lines = [_attempt_line(a) for a in summary.recorded]
    n_due = len(found.due)
    lines.append(fleet.words())
    lines += [f"left: {key}: {why}" for key, why in sorted(summary.left.items())]
    lines.append(
        f"{len(summary.recorded)} of {n_due} due attempts recorded ({summary.n_broken} broke), "
        f"{len(found.orders) - n_due - len(found.held)} were done: {asked.study}"
    )
    if summary.stopped:
        lines.append(f"stopped: {summary.stopped}; what came is kept, run the same command again to go on")
    data = {
        "study": str(asked.study),
        "fleet": fleet.words(),
        "n_due": n_due,
        "attempts": [a.key for a in summary.recorded],
        "n_broken": summary.n_broken,
        "left": summary.left,
        "stopped": summary.stopped,
    }
    return Answer("\n".join(lines + _label(asked)), data, 1 if summary.n_broken else 0)


def _attempt_line(attempt: Any) -> str:
    verdict = attempt.verdict
    if verdict is None:
        return f"{attempt.key}: {attempt.state.value}, {attempt.reason}"
    how = f"passed, {verdict.speedup:.2f}×" if verdict.passed else f"{verdict.stage.value}: {verdict.reason}"
    broke = "" if attempt.state.value == "finished" else f"; {attempt.state.value}, {attempt.reason}"
    return f"{attempt.key}: {how} ({len(attempt.submissions)} submissions){broke}"


def _plan_lines(found: Any) -> list[str]:
    lines = [f"{o.state.value:8s} {o.key}{': ' + o.why if o.why else ''}" for o in found.orders]
    counts = Counter(o.state for o in found.orders)
    lines.append(", ".join(f"{counts[state]} {state.value}" for state in Due) + f", {len(found.due)} to run now")
    if counts[Due.STALE] and found.held:
        lines.append("stale attempts are run again with --redo-stale alone")
    return lines + ([found.cost.text()] if found.cost else [])


def _plan_data(found: Any) -> dict[str, Any]:
    return {
        "orders": [o.line() for o in found.orders],
        "n_due": len(found.due),
        "held": found.held,
        "cost": vars(found.cost) if found.cost else None,
    }


def _label(asked: Any) -> list[str]:
    from mkb_analyze.pair_label import outside_pair

    told = outside_pair(asked.wanted.dsls)
    return [told] if told else []
