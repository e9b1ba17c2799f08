"""Skill content: which categories go with harm and which with help, per model and pooled."""

from collections.abc import Sequence

import numpy as np

from annotators.rubric import Rubric
from mkb_analyze.labels import Labels
from mkb_analyze.stats import contingency, multiplicity, rates, stratified
from mkb_analyze.stats.difference import cluster_difference
from mkb_analyze.stats.estimate import Estimate, undefined
from mkb_analyze.table import Column, Table
from mkb_analyze.tables.groups import POOLED, Resampling, by, difference, direction_name, harmed, helped
from mkb_analyze.transfers import Transfer


def association(resolved: Sequence[Transfer], labels: Labels, rubric: Rubric, how: Resampling) -> Table:
    """P(category | harmed) − P(category | helped) for every category, per model and pooled over (model, direction)."""
    used = [t for t in resolved if not t.skipped and t.source_note_sha256 in labels.notes]
    rows: list[dict] = []
    models = by(used, lambda t: t.model)
    for model, group in models.items():
        rows += [_row(model, c, group, labels, how) for c in rubric.ids]
    adjusted = multiplicity.adjusted_table([r["difference"] for r in rows], "all categories × models of this table")
    rows = [{**r, "difference": e, "p": e.p, "q": e.q} for r, e in zip(rows, adjusted, strict=False)]
    if used:
        pooled = [_pooled(c, used, labels, how) for c in rubric.ids]
        adjusted = multiplicity.adjusted_table([r["difference"] for r in pooled], "all categories, pooled")
        rows = [{**r, "difference": e, "p": e.p, "q": e.q} for r, e in zip(pooled, adjusted, strict=False)] + rows
    left_out = len([t for t in resolved if not t.skipped]) - len(used)
    notes = (f"{left_out} transfers are left out because their note was not annotated.",) if left_out else ()
    return Table(
        "categories",
        "Categories of the note: harmed against helped transfers",
        "Difference is P(category | harmed) − P(category | helped) in points: above 0 the category stands more often "
        "in notes that harmed.",
        (
            Column("model", "model"),
            Column("category", "category"),
            Column("harmed", "in harmed", "share"),
            Column("helped", "in helped", "share"),
            Column("difference", "difference, points", "points"),
            Column("p", "p", "p"),
            Column("q", "q", "p"),
            Column("p_cluster", "p, problems as clusters", "p"),
        ),
        tuple(rows),
        notes,
    )


def _counts(category: str, group: Sequence[Transfer], labels: Labels) -> tuple[int, int, int, int]:
    bad, good = [t for t in group if harmed(t)], [t for t in group if helped(t)]
    has = lambda t: category in labels.categories(t.source_note_sha256)  # noqa: E731
    return sum(map(has, bad)), len(bad), sum(map(has, good)), len(good)


def _row(model: str, category: str, group: Sequence[Transfer], labels: Labels, how: Resampling) -> dict:
    x1, n1, x2, n2 = _counts(category, group, labels)
    has = lambda t: category in labels.categories(t.source_note_sha256)  # noqa: E731
    gap = difference([t for t in group if harmed(t)], [t for t in group if helped(t)], has, category, how)
    if gap.defined:
        test = contingency.fisher([[x1, n1 - x1], [x2, n2 - x2]]).odds_ratio
        gap = _replace(gap, p=test.p, method=f"{gap.method}; p: Fisher exact")
    return {
        "model": model,
        "category": category,
        "harmed": rates.wilson(x1, n1, how.level),
        "helped": rates.wilson(x2, n2, how.level),
        "difference": gap,
    }


def _pooled(category: str, used: Sequence[Transfer], labels: Labels, how: Resampling) -> dict:
    row = _row(POOLED, category, used, labels, how)
    row["p_cluster"] = _by_cluster(category, used, labels)
    strata = []
    for group in by(used, lambda t: (t.model, direction_name(t))).values():
        x1, n1, x2, n2 = _counts(category, group, labels)
        strata.append([[x1, n1 - x1], [x2, n2 - x2]])
    if row["difference"].defined:
        test = stratified.mantel_haenszel(strata).cmh
        way = row["difference"].method.split("; p:")[0]
        row["difference"] = _replace(
            row["difference"],
            p=test.p,
            method=f"{way}; p: Cochran–Mantel–Haenszel over (model, direction)",
            notes=(*row["difference"].notes, *((test.reason,) if test.reason else ())),
        )
    return row


def _by_cluster(category: str, used: Sequence[Transfer], labels: Labels) -> float:
    """The check that minds problems: p of equal shares in harmed and helped by the score test over problems."""
    place = {p: i for i, p in enumerate(sorted({t.problem for t in used}))}
    counts = np.zeros((4, len(place)))
    for t in used:
        if harmed(t) or helped(t):
            first = 0 if harmed(t) else 2
            counts[first, place[t.problem]] += category in labels.categories(t.source_note_sha256)
            counts[first + 1, place[t.problem]] += 1
    return cluster_difference(*counts, category).p


def _replace(e: Estimate, **fields) -> Estimate:
    return Estimate(**{**{k: getattr(e, k) for k in e.__dataclass_fields__}, **fields})


def profile(labels: Labels, rubric: Rubric, shas: Sequence[str]) -> Table:
    """How often each category occurs: notes that have it, and claims."""
    notes = [s for s in shas if s in labels.notes]
    claims = [c for s in notes for c in labels.notes[s]]
    names = [*rubric.ids, *([rubric.none_label] if rubric.none_label else [])]
    rows = []
    for name in names:
        of = [c for c in claims if c.label == name]
        rows.append(
            {
                "category": name,
                "notes": rates.wilson(sum(name in labels.categories(s) for s in notes), len(notes)),
                "claims": rates.wilson(len(of), len(claims)) if claims else undefined(name, "no claims"),
                **{
                    f"{flag.id}_{v}": sum(c.flags.get(flag.id) == v for c in of)
                    for flag in rubric.flags
                    for v in flag.ids
                },
            }
        )
    undecided = sum(c.label is None for c in claims)
    return Table(
        "content",
        "What the notes hold",
        "A note has a category when any of its claims does.",
        (
            Column("category", "category"),
            Column("notes", "notes with it", "share"),
            Column("claims", "claims", "share"),
            *(
                Column(f"{flag.id}_{v}", f"{flag.id}: {v}".replace("_", " "), "number")
                for flag in rubric.flags
                for v in flag.ids
            ),
        ),
        tuple(rows),
        (f"{undecided} of {len(claims)} claims have no label (unscored, or a tie of the raters).",),
    )
