"""What the labels and the attempts took: tokens, money and time, by rater and by model."""

from collections.abc import Sequence

from mkb_analyze.labels import Labels
from mkb_analyze.table import Column, Table
from mkb_analyze.tables.groups import POOLED
from runner.records import Attempt, Usage

_USAGE = (
    Column("n_requests", "requests", "number"),
    Column("n_input_tokens", "input tokens", "number"),
    Column("n_cached_tokens", "of them cached", "number"),
    Column("n_output_tokens", "output tokens", "number"),
    Column("cost_usd", "cost, USD", "number"),
    Column("agent_s", "time, s", "number"),
)
_FIELDS = tuple(c.key for c in _USAGE)


def raters(labels: Labels) -> Table:
    """Records, unscored answers, tokens, cost and seconds of each rater and task."""
    rows = [
        {
            "rater": rater,
            "task": task,
            "n_records": total["n_records"],
            "n_unscored": total["n_unscored"],
            **{f: total.get(f) for f in _FIELDS},
        }
        for (rater, task), total in sorted(labels.usage.items())
    ]
    return Table(
        "cost",
        "What the labels cost",
        "Sums over all answers of a rater, asked-again ones too; a dash was not measured, which is not 0.",
        (
            Column("rater", "rater"),
            Column("task", "task"),
            Column("n_records", "answers", "number"),
            Column("n_unscored", "unscored", "number"),
            *_USAGE,
        ),
        tuple(rows),
    )


def attempts(every: Sequence[Attempt]) -> Table:
    """Attempts, submissions, tokens, cost and agent seconds of each model and arm."""
    groups: dict[tuple[str, str], list[Attempt]] = {}
    for a in every:
        groups.setdefault((a.model, a.arm.value), []).append(a)
    rows = [_effort(model, arm, group) for (model, arm), group in sorted(groups.items())]
    if len(rows) > 1:
        rows.append(_effort(POOLED, POOLED, list(every)))
    return Table(
        "effort",
        "What the attempts took",
        "Sums over the attempts of a model and arm; a dash was not measured, which is not 0.",
        (
            Column("model", "model"),
            Column("arm", "arm"),
            Column("n_attempts", "attempts", "number"),
            Column("n_submissions", "submissions", "number"),
            *_USAGE,
        ),
        tuple(rows),
    )


def _effort(model: str, arm: str, group: Sequence[Attempt]) -> dict:
    used = [a.usage for a in group if a.usage is not None]
    return {
        "model": model,
        "arm": arm,
        "n_attempts": len(group),
        "n_submissions": sum(len(a.submissions) for a in group),
        **{f: _total(used, f) for f in _FIELDS},
    }


def _total(used: Sequence[Usage], name: str) -> float | None:
    known = [v for v in (getattr(u, name) for u in used) if v is not None]
    return sum(known) if known else None
