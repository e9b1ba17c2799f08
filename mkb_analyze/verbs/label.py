"""The three labelling verbs' common part: flags to limits and raters, one call of the panel, the summary in words."""

from pathlib import Path
from typing import Any

from mkb_analyze.console import Answer
from mkb_analyze.verbs.parse import names, number, switch
from runner.errors import UserError

_LIMITS = {"max_usd": float, "max_tokens": int, "max_requests": int, "concurrency": int}


def labelled(
    task: str,
    study: Any,
    rater: Any,
    *,
    repeats: Any,
    rubric: Any,
    batch: Any,
    base_url: Any,
    prices: Any,
    limits: dict[str, Any],
    **extra: Any,
) -> Answer:
    """Run `annotate`, `attribute` or `trace` of the panel.

    Raises:
        UserError: an unusable flag, rater, rubric or study.
    """
    from annotators import panel
    from runner.limits import Limits
    from runner.study import Study

    opened = Study(Path(str(study)))
    given = {k: number(v, k.replace("_", "-"), _LIMITS[k], 0) for k, v in limits.items() if v is not None}
    how = {k: str(v) for k, v in (("base_url", base_url), ("prices", prices)) if v is not None}
    raters = _raters(rater)
    done = getattr(panel, task)(
        opened,
        raters,
        repeats=number(repeats, "repeats", int, 1),
        limits=Limits(**given),
        rubric=str(rubric) if rubric is not None else None,
        batch=switch(batch, "batch"),
        **how,
        **{k: v(opened) for k, v in extra.items()},
    )
    return Answer(_words(done), _plain(done), 0)


def harmed_only(settings: Any) -> Any:
    """The panel's `select`: a predicate over its triples that is true for harmed transfers."""

    def select(study: Any) -> Any:
        from mkb_analyze import transfers as tr

        keys = {t.key for t in tr.build(study.attempts(), settings) if t.outcome is tr.Outcome.HARMED}
        return lambda triple: tr.key_of(triple) in keys

    return select


def _raters(rater: Any) -> Any:
    given = names(rater)
    if not given:
        raise UserError("--rater: empty; give embedded, openai:MODEL, file:PATH or a panel file (.yaml)")
    if len(given) == 1 and given[0].endswith((".yaml", ".yml")):
        return Path(given[0])
    return given


def _words(done: Any) -> str:
    lines = [
        f"{done.task}: {done.n_items} items, {done.n_skipped_present} answers there already, {done.n_asked} asked, "
        f"{done.n_scored} scored ({done.elapsed_s:.1f} s)"
    ]
    for what, counts in (
        ("unscored", done.n_unscored),
        ("claims unscored", done.n_claims_unscored),
        ("no answer, asked again next time", done.n_failed),
        ("retries", done.n_retries),
    ):
        if counts:
            lines.append(f"  {what}: " + ", ".join(f"{n} × {reason}" for reason, n in sorted(counts.items())))
    if done.stopped:
        lines.append(f"  stopped: {done.stopped}; run the same command again to go on")
    if done.cost_usd is not None:
        lines.append(f"  cost: ${done.cost_usd:.4f}")
    return "\n".join(lines)


def _plain(done: Any) -> dict[str, Any]:
    return {
        "task": done.task,
        "n_items": done.n_items,
        "n_present": done.n_skipped_present,
        "n_asked": done.n_asked,
        "n_scored": done.n_scored,
        "n_unscored": dict(done.n_unscored),
        "n_failed": dict(done.n_failed),
        "n_claims": done.n_claims,
        "n_claims_unscored": dict(done.n_claims_unscored),
        "n_retries": dict(done.n_retries),
        "stopped": done.stopped,
        "usage": done.usage.line(),
        "elapsed_s": done.elapsed_s,
    }
