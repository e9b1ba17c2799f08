"""How far raters agree: on categories, causes, adherence and fates, each label too, with its base rate."""

from collections.abc import Sequence

import numpy as np

from annotators.rubric import Rubric
from mkb_analyze.labels import Labels, Votes
from mkb_analyze.stats import agreement as coefficients
from mkb_analyze.stats.alpha import krippendorff_alpha
from mkb_analyze.stats.estimate import undefined
from mkb_analyze.stats.percent import percent_agreement
from mkb_analyze.table import Column, Table
from mkb_analyze.tables.groups import Resampling

_COLUMNS = (
    Column("task", "task"),
    Column("raters", "raters"),
    Column("label", "label"),
    Column("n", "items", "number"),
    Column("base_rate", "base rate", "share"),
    Column("raw", "raw agreement", "share"),
    Column("alpha", "Krippendorff α", "number"),
    Column("kappa", "κ", "number"),
    Column("ac1", "Gwet AC1", "number"),
)


def agreement(labels: Labels, content: Rubric, attribution: Rubric, fate: Rubric, how: Resampling) -> Table:
    """α, κ, AC1 and raw agreement between all raters of a task, over all labels and for each label yes/no."""
    claims = [(sha, c.votes) for sha, cs in labels.notes.items() for c in cs]
    tasks = [
        ("content", [v for _, v in claims], [s for s, _ in claims], content.answers, "nominal"),
        ("cause", [t.cause for t in labels.transfers.values()], None, attribution.ids, "nominal"),
        ("adherence", [t.adherence for t in labels.transfers.values()], None, attribution.scales[0].ids, "ordinal"),
        ("fate", [v for v, _ in labels.fates.values()], None, fate.ids, "nominal"),
    ]
    rows: list[dict] = []
    for task, votes, clusters, levels, kind in tasks:
        rows += _rows(task, votes, clusters, levels, kind, how)
    notes = () if rows else ("One rater alone: agreement needs two readings of the same items.",)
    for task, votes, _, levels, _ in tasks:
        n_strange = sum(said is not None and said not in levels for v in votes for said in v.by_rater.values())
        if n_strange:
            notes += (f"{n_strange} labels of {task} are not in the rubric in force and are left out.",)
    return Table(
        "agreement",
        "Agreement of raters",
        "α, κ and AC1 are 1 where raters always agree and 0 at chance; raw agreement alone "
        "says little where one label is most of the items. Intervals of α resample notes.",
        _COLUMNS,
        tuple(rows),
        notes,
    )


def _rows(
    task: str, votes: Sequence[Votes], clusters: Sequence[str] | None, levels: Sequence[str], kind: str, how: Resampling
) -> list[dict]:
    raters = sorted({r for v in votes for r, said in v.by_rater.items() if said is not None})
    if len(raters) < 2:
        return []
    # Labels as their places in the scale, NaN where there is none: the same numbers for every coefficient and label.
    place = {level: float(i) for i, level in enumerate(levels)}
    rated = np.array([[place.get(v.by_rater.get(r), np.nan) for r in raters] for v in votes], dtype=float)
    keep = np.flatnonzero((~np.isnan(rated)).sum(1) >= 2)
    rated = rated[keep]
    groups = [clusters[i] for i in keep] if clusters is not None else None
    names = ", ".join(raters)
    rows = [_row(task, names, "all", rated, groups, list(range(len(levels))), kind, how, None)]
    # Yes/no for each label, with the label's share of all ratings beside it.
    for k, level in enumerate(levels):
        share = float((rated == k).sum() / max((~np.isnan(rated)).sum(), 1))
        if not share > 0:
            continue
        yes_no = np.where(np.isnan(rated), np.nan, rated == k)
        rows.append(_row(task, names, level, yes_no, groups, [0, 1], "nominal", how, share))
    return rows


def _row(
    task: str,
    names: str,
    label: str,
    rated: np.ndarray,
    groups: list | None,
    levels: list,
    kind: str,
    how: Resampling,
    base_rate: float | None,
) -> dict:
    two, some = rated.shape[1] == 2, len(rated) > 0
    weights = "linear" if kind == "ordinal" else "unweighted"
    if not some:
        kappa = undefined("κ", "no item has two ratings")
    elif two:
        kappa = coefficients.cohen_kappa(rated[:, 0], rated[:, 1], levels, weights=weights, level=how.level).value
    else:
        kappa = coefficients.fleiss_general(rated, levels, how.level).value
    return {
        "task": task,
        "raters": names,
        "label": label,
        "n": len(rated),
        "base_rate": base_rate,
        "raw": percent_agreement(rated, levels, how.level).over_items
        if some
        else undefined("raw", "no item has two ratings"),
        "alpha": krippendorff_alpha(rated, levels, kind, how.n_resamples, how.rng(), groups, how.level)
        if some
        else undefined("α", "no item has two ratings"),
        "kappa": kappa,
        "ac1": coefficients.gwet_ac1(rated, levels, how.level).value
        if some
        else undefined("AC1", "no item has two ratings"),
    }


def doubtful(labels: Labels, limit: int = 200) -> Table:
    """Claims on which raters split, most doubtful first: what a person should settle."""
    rows = [
        {
            "note": sha,
            "span": f"{c.start}–{c.end}",
            "doubt": c.votes.doubt,
            "majority": c.label,
            "votes": "; ".join(f"{r}: {v or 'unscored'}" for r, v in sorted(c.votes.by_rater.items())),
        }
        for sha, cs in labels.notes.items()
        for c in cs
        if c.votes.n_raters > 1 and c.votes.doubt > 0
    ]
    rows.sort(key=lambda r: (-r["doubt"], r["note"], r["span"]))
    return Table(
        "doubtful",
        "Doubtful labels",
        "Claims that raters label differently, the widest split first.",
        (
            Column("note", "note"),
            Column("span", "span"),
            Column("doubt", "doubt", "number"),
            Column("majority", "majority"),
            Column("votes", "votes"),
        ),
        tuple(rows[:limit]),
        (f"The first {limit} of {len(rows)} are shown.",) if len(rows) > limit else (),
    )
