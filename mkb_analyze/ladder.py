"""R@t, S and their lifts as the published harness's `results.json` counts them, to the last digit."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mkb_analyze.transfers import Transfer
from runner.records import Attempt

THRESHOLDS = (0.0, 0.5, 1.0, 2.0, 4.0)


def ladder(attempts: Sequence[Attempt]) -> dict[str, float]:
    """R@t (share that passed with a speedup of at least t) and S = 100 × the mean of the five shares.

    The order of additions is the harness's, so that sums agree in the last bit; `attempts` must not be empty.
    """
    rates = {f"R@{t:g}": statistics.mean(_attains(a, t) for a in attempts) for t in THRESHOLDS}
    return {**rates, "S": 100 * statistics.mean(rates.values())}


def contrast(resolved: Sequence[Transfer]) -> dict[str, Any]:
    """The ladder of the target solos (`base`), of the conditioned attempts (`skill`) and the difference (`lift`).

    A skipped conditioned attempt counts as its target solo. With no transfer all three are None.
    """
    if not resolved:
        return {"base": None, "skill": None, "lift": None}
    base = ladder([t.target_solo for t in resolved])
    skill = ladder([t.target_solo if t.skipped else t.conditioned for t in resolved])
    return {"base": base, "skill": skill, "lift": {name: skill[name] - base[name] for name in base}}


def group_metrics(transfers: Sequence[Transfer]) -> dict[str, Any]:
    """One group's block of `results.json`: coverage, contrast, with a note only, and by the source's verdict."""
    resolved = [t for t in transfers if t.resolved]
    return {
        "n_cell_replicates": len(transfers),
        "n_resolved": len(resolved),
        "source_coverage": _share(resolved, lambda t: _passed(t.source)),
        "skill_coverage": _share(resolved, lambda t: not t.skipped),
        **contrast(resolved),
        "with_skill": contrast([t for t in resolved if not t.skipped]),
        "by_source_verdict": {
            "passed": contrast([t for t in resolved if _passed(t.source)]),
            "failed": contrast([t for t in resolved if not _passed(t.source)]),
        },
    }


def overall(transfers: Iterable[Transfer]) -> dict[str, Any]:
    """The `overall` block of `results.json`: all transfers, then by direction and by family (its `category`)."""
    rows = sorted(transfers, key=lambda t: (t.problem, t.problem_name or "", t.direction, t.replicate))
    directions = sorted({t.direction for t in rows})
    families = sorted({t.family for t in rows if t.family})
    return {
        "n_cells": len({(t.problem, t.problem_name, t.direction) for t in rows}),
        **group_metrics(rows),
        "by_direction": {d: group_metrics([t for t in rows if t.direction == d]) for d in directions},
        "by_category": {f: group_metrics([t for t in rows if t.family == f]) for f in families},
    }


def _passed(attempt: Attempt | None) -> bool:
    return bool(attempt and attempt.verdict and attempt.verdict.passed)


def _attains(attempt: Attempt, threshold: float) -> bool:
    return _passed(attempt) and attempt.verdict.speedup >= threshold


def _share(transfers: Sequence[Transfer], test: Callable[[Transfer], bool]) -> float | None:
    return statistics.mean(test(t) for t in transfers) if transfers else None
