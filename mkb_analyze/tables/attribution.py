"""Why transfers were harmed, how far the plan was followed, and what became of unsupported claims."""

from collections.abc import Sequence

from annotators.rubric import Rubric
from mkb_analyze.labels import Labels
from mkb_analyze.stats import contingency, rates, stratified
from mkb_analyze.stats.estimate import Estimate
from mkb_analyze.table import Column, Table
from mkb_analyze.tables.content import _replace
from mkb_analyze.tables.groups import POOLED, Resampling, by, difference, direction_name, harmed, helped, share
from mkb_analyze.transfers import Transfer


def causes(resolved: Sequence[Transfer], labels: Labels, rubric: Rubric, how: Resampling) -> Table:
    """Share of each cause and of each group of causes among harmed transfers with a cause."""
    bad = [t for t in resolved if harmed(t)]
    known = [t for t in bad if _cause(labels, t) is not None]
    rows = []
    models = by(known, lambda t: t.model)
    for model, group in [*models.items(), *([(POOLED, known)] if len(models) > 1 else [])]:
        for name, members in rubric.groups.items():
            rows.append(
                {
                    "model": model,
                    "group": name,
                    "cause": "any of the group",
                    "n": sum(_cause(labels, t) in members for t in group),
                    "share": share(group, lambda t, m=members: _cause(labels, t) in m, name, how),
                }
            )
            for cause in members:
                rows.append(
                    {
                        "model": model,
                        "group": name,
                        "cause": cause,
                        "n": sum(_cause(labels, t) == cause for t in group),
                        "share": share(group, lambda t, c=cause: _cause(labels, t) == c, cause, how),
                    }
                )
    missing = len(bad) - len(known)
    return Table(
        "causes",
        "Causes of harm",
        "Shares are of harmed transfers with one primary cause; a group's share is the sum of its causes.",
        (
            Column("model", "model"),
            Column("group", "group"),
            Column("cause", "cause"),
            Column("n", "harmed", "number"),
            Column("share", "share of harmed", "share"),
        ),
        tuple(rows),
        (f"{missing} of {len(bad)} harmed transfers have no cause yet (not attributed, unscored or a tie).",)
        if missing
        else (),
    )


def adherence(resolved: Sequence[Transfer], labels: Labels, rubric: Rubric, how: Resampling) -> Table:
    """P(full | helped) − P(full | harmed), per model and pooled over (model, direction)."""
    full = set(rubric.role("adherence_all"))
    known = [t for t in resolved if not t.skipped and _adherence(labels, t) is not None]
    rows = []
    models = by(known, lambda t: t.model)
    for model, group in models.items():
        rows.append(_gap(model, group, labels, full, how))
    if len(models) > 1 and known:
        row = _gap(POOLED, known, labels, full, how)
        strata = [_grid(g, labels, full) for g in by(known, lambda t: (t.model, direction_name(t))).values()]
        test = stratified.mantel_haenszel(strata).cmh
        if row["gap"].defined:
            way = row["gap"].method.split("; p:")[0]
            row["gap"] = _replace(
                row["gap"], p=test.p, method=f"{way}; p: Cochran–Mantel–Haenszel over (model, direction)"
            )
        rows.append({**row, "p": test.p})
    return Table(
        "adherence",
        "Adherence: helped against harmed",
        "Gap is P(full | helped) − P(full | harmed) in points: above 0, following the plan goes with help.",
        (
            Column("model", "model"),
            Column("helped", "full among helped", "share"),
            Column("harmed", "full among harmed", "share"),
            Column("gap", "gap, points", "points"),
            Column("p", "p", "p"),
        ),
        tuple(rows),
        ("Neutral transfers are in neither group.",),
    )


def _grid(group: Sequence[Transfer], labels: Labels, full: set[str]) -> list[list[int]]:
    grid = [[0, 0], [0, 0]]
    for t in group:
        if helped(t) or harmed(t):
            grid[harmed(t)][_adherence(labels, t) not in full] += 1
    return grid


def _gap(model: str, group: Sequence[Transfer], labels: Labels, full: set[str], how: Resampling) -> dict:
    (a, b), (c, d) = _grid(group, labels, full)
    gap = difference(
        [t for t in group if helped(t)],
        [t for t in group if harmed(t)],
        lambda t: _adherence(labels, t) in full,
        "adherence gap",
        how,
    )
    p = contingency.fisher([[a, b], [c, d]]).odds_ratio.p if gap.defined else None
    if p is not None:
        gap = _replace(gap, p=p, method=f"{gap.method}; p: Fisher exact")
    return {
        "model": model,
        "helped": rates.wilson(a, a + b, how.level),
        "harmed": rates.wilson(c, c + d, how.level),
        "gap": gap,
        "p": p,
    }


def propagation(resolved: Sequence[Transfer], labels: Labels, content: Rubric, fate: Rubric, how: Resampling) -> Table:
    """Transfers whose source note has an unsupported claim: share with at least one carried on, harmed against helped."""
    unsupported, carried = set(content.role("unsupported")), set(fate.role("propagated"))
    judged: list[tuple[Transfer, bool]] = []
    for t in resolved:
        fates = fates_of(labels, t)
        if t.skipped or not (labels.categories(t.source_note_sha256) & unsupported) or not any(v.label for v in fates):
            continue
        judged.append((t, any(v.label in carried for v in fates)))
    carries = {t.key: c for t, c in judged}
    rows = []
    groups = [
        ("all outcomes", [t for t, _ in judged]),
        ("harmed", [t for t, _ in judged if harmed(t)]),
        ("helped", [t for t, _ in judged if helped(t)]),
    ]
    for name, group in groups:
        rows.append(
            {
                "transfers": name,
                "n": len(group),
                "share": share(group, lambda t: carries[t.key], "propagation", how),
                "p": None,
            }
        )
    (x1, n1), (x2, n2) = ((sum(carries[t.key] for t in g), len(g)) for _, g in groups[1:])
    gap: Estimate = difference(
        groups[1][1], groups[2][1], lambda t: carries[t.key], "propagation, harmed − helped", how
    )
    p = contingency.fisher([[x1, n1 - x1], [x2, n2 - x2]]).odds_ratio.p if gap.defined else None
    rows.append({"transfers": "harmed − helped", "n": n1 + n2, "share": gap, "p": p})
    return Table(
        "propagation",
        "Unsupported claims carried into the next note",
        "Share of transfers in which at least one unsupported "
        "claim of the source note is restated or strengthened in the conditioned attempt's own note.",
        (
            Column("transfers", "transfers"),
            Column("n", "n", "number"),
            Column("share", "propagated", "share"),
            Column("p", "p (Fisher)", "p"),
        ),
        tuple(rows),
    )


def fate_counts(labels: Labels, fate: Rubric) -> Table:
    """Every traced claim by what became of it."""
    votes = [v for v, _ in labels.fates.values()]
    known = [v for v in votes if v.label is not None]
    rows = [
        {"fate": name, "claims": rates.wilson(sum(v.label == name for v in known), len(known))} for name in fate.ids
    ]
    return Table(
        "fates",
        "What became of unsupported claims",
        "One row a fate; n counts claims of source notes, not transfers.",
        (Column("fate", "fate"), Column("claims", "share of claims", "share")),
        tuple(rows),
        (f"{len(votes) - len(known)} of {len(votes)} claims have no fate yet.",) if len(known) < len(votes) else (),
    )


def fates_of(labels: Labels, t: Transfer) -> list:
    """The votes on every traced claim of one transfer."""
    return [votes for votes, _ in labels.fates_by_transfer.get(t.key, ())]


def _cause(labels: Labels, t: Transfer) -> str | None:
    return labels.transfers[t.key].cause.label if t.key in labels.transfers else None


def _adherence(labels: Labels, t: Transfer) -> str | None:
    return labels.transfers[t.key].adherence.label if t.key in labels.transfers else None
