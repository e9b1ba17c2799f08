"""Data quality and robustness: what is missing or stale, timing noise against the band, and the grid of settings."""

import itertools
import math
from collections.abc import Sequence

import numpy as np

from annotators.rubric import Rubric
from mkb_analyze import transfers as tr
from mkb_analyze.labels import Labels
from mkb_analyze.table import Column, Table
from mkb_analyze.tables.groups import Resampling, harmed, helped, lift, share
from mkb_analyze.transfers import Settings, Transfer
from runner.records import Attempt, State
from runner.study import Study

FLOORS, CAPS, BANDS = (0.1, 0.25, 0.5), (2.0, 4.0, 10.0), (0.02, 0.05, 0.1)


def issues(
    study: Study, attempts: Sequence[Attempt], transfers: Sequence[Transfer], labels: Labels, rubrics: Sequence[Rubric]
) -> Table:
    """Everything that is not as it should be, each with its reason: unresolved, skipped, errors, unscored, stale."""
    rows: list[dict] = []
    rows += [
        {"kind": "attempt with an error", "item": a.key, "why": a.reason} for a in attempts if a.state is State.ERROR
    ]
    rows += [{"kind": "unresolved transfer", "item": t.key, "why": t.reason} for t in transfers if not t.resolved]
    rows += [
        {"kind": "skipped transfer", "item": t.key, "why": "the source left no note; counts as its solo twin"}
        for t in transfers
        if t.skipped
    ]
    rows += [
        {"kind": "unscored label", "item": f"{n} ×", "why": reason} for reason, n in sorted(labels.n_unscored.items())
    ]
    due = {t.source_note_sha256 for t in transfers if t.resolved and t.source_note_sha256}
    rows += (
        [
            {"kind": "note without labels", "item": sha, "why": "not annotated yet"}
            for sha in sorted(due - set(labels.notes))
        ]
        if labels.raters
        else []
    )
    current = {r.id: r.sha256 for r in rubrics}
    stale: dict[tuple[str, str], int] = {}
    # Read as plain lines: the labels were validated when they were loaded.
    for _, record in study.lines("annotations"):
        rater = record["rater"]
        if current.get(rater["rubric_id"]) not in (None, rater["rubric_sha256"]):
            key = (rater["name"], rater["rubric_id"])
            stale[key] = stale.get(key, 0) + 1
    rows += [
        {
            "kind": "stale label",
            "item": f"{n} × {name}",
            "why": f"made with another version of rubric {rubric}; annotate again",
        }
        for (name, rubric), n in sorted(stale.items())
    ]
    return Table(
        "quality",
        "What is missing, skipped or stale",
        "Each row is one case that a figure above does not rest on, with its reason.",
        (Column("kind", "kind"), Column("item", "item"), Column("why", "why")),
        tuple(rows),
    )


def noise(attempts: Sequence[Attempt], settings: Settings, how: Resampling) -> Table:
    """Timing noise of final verdicts: the spread of a median of the recorded samples, against the neutral band.

    The standard deviation of the ratio of two medians is estimated by resampling each verdict's own timed draws, and
    where repeated verdicts of one kernel exist (`verdicts` beside the final one) by their own spread.
    """
    rng, rows = how.rng(), []
    for a in sorted(attempts, key=lambda a: a.key):
        if not (a.verdict and a.verdict.passed):
            continue
        repeated = [m for m in (getattr(a, "repeat_kernel_ms", None) or ()) if m > 0]
        samples = np.asarray(a.verdict.kernel_ms_samples or (), float)
        if len(repeated) >= 3:
            sd, n, way = float(np.std(np.log(repeated), ddof=1)), len(repeated), "repeated verdicts of the same kernel"
        elif len(samples) >= 10:
            draws = np.median(samples[rng.integers(0, len(samples), (500, len(samples)))], axis=1)
            sd, n, way = float(np.std(np.log(draws), ddof=1)), len(samples), "resampled draws of one verdict"
        else:
            continue
        ratio_sd = math.sqrt(2) * sd
        rows.append(
            {
                "attempt": a.key,
                "n": n,
                "sd": sd,
                "ratio_sd": ratio_sd,
                "way": way,
                "clear": "yes" if 1.96 * ratio_sd < math.log1p(settings.band) else "no",
            }
        )
    # The reference is measured anew in every evaluation: where its time varies, so does every speedup against it.
    if settings.baseline == "own":
        for (problem, device, _), times in sorted(tr.references(attempts).items(), key=str):
            if len(times) >= 3:
                sd = float(np.std(np.log(times), ddof=1))
                rows.append(
                    {
                        "attempt": f"reference of problem {problem} ({device or 'device not named'})",
                        "n": len(times),
                        "sd": sd,
                        "ratio_sd": math.sqrt(2) * sd,
                        "way": "reference times of all verdicts",
                        "clear": "yes" if 1.96 * math.sqrt(2) * sd < math.log1p(settings.band) else "no",
                    }
                )
    return Table(
        "noise",
        "Timing noise against the neutral band",
        "The band tells help and harm from noise where 1.96 standard deviations of a "
        "ratio of two such medians stay inside it.",
        (
            Column("attempt", "attempt"),
            Column("n", "n", "number"),
            Column("sd", "sd of a median (share)", "share"),
            Column("ratio_sd", "sd of a ratio (share)", "share"),
            Column("way", "from"),
            Column("clear", "band is wider"),
        ),
        tuple(rows),
        ()
        if rows
        else ("No verdict holds its timed draws: the noise is not known, and a ratio near the band proves nothing.",),
    )


def sensitivity(attempts: Sequence[Attempt], settings: Settings, how: Resampling) -> Table:
    """Help rate, harm rate and lift over a grid of floor, cap and band; rows whose lift changes sign are marked."""
    caps = sorted({*CAPS, settings.cap})
    grid = sorted({(settings.floor, settings.cap, settings.band), *itertools.product(FLOORS, caps, BANDS)})
    base: float | None = None
    rows = []
    several = [Settings(floor, cap, band, settings.tier_edge, settings.baseline) for floor, cap, band in grid]
    for (floor, cap, band), transfers in zip(grid, tr.sweep(attempts, several), strict=True):
        resolved = [t for t in transfers if t.resolved]
        value = lift(resolved, "paired lift", how)
        chosen = (floor, cap, band) == (settings.floor, settings.cap, settings.band)
        base = value.estimate if chosen else base
        rows.append(
            {
                "floor": floor,
                "cap": cap,
                "band": band,
                "help_rate": share(resolved, helped, "help rate", how),
                "harm_rate": share(resolved, harmed, "harm rate", how),
                "lift": value,
                "chosen": "chosen" if chosen else "",
            }
        )
    flips = 0
    for row in rows:
        if base is not None and row["lift"].defined and row["lift"].estimate * base < 0:
            row["chosen"], flips = "sign changes", flips + 1
    return Table(
        "sensitivity",
        "The same figures under other settings",
        "Floor and cap clip the speedups, the band makes a ratio neutral; "
        "`chosen` is what the rest of the report uses.",
        (
            Column("floor", "floor", "number"),
            Column("cap", "cap", "number"),
            Column("band", "band", "number"),
            Column("help_rate", "help rate", "share"),
            Column("harm_rate", "harm rate", "share"),
            Column("lift", "paired lift", "percent"),
            Column("chosen", ""),
        ),
        tuple(rows),
        (f"The sign of the lift changes in {flips} of {len(rows)} settings.",),
    )
