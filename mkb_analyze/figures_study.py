"""The figures of one study by name: what each shows, how it is read, what a screen reader says, which table it is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mkb_analyze.stats.estimate import Estimate
from mkb_analyze.table import Table, one
from mkb_analyze.transfers import frame

if TYPE_CHECKING:
    from mkb_analyze.analysis import Analysis

_OUTCOMES = ("helped", "neutral", "harmed")


@dataclass(frozen=True)
class Drawn:
    """A matplotlib figure of one study; `table` names the table that holds its numbers."""

    figure: Any
    reading: str
    alt: str
    table: str


def draw(name: str, data: "Analysis") -> Drawn | None:
    """The figure of that name, or None where the study has nothing to draw; KeyError for an unknown name."""
    return FIGURES[name](data)


def _outcome_bars(data: "Analysis", table: str, label: Callable[[dict], str], reading: str) -> Drawn | None:
    from mkb_analyze import figures

    rows = [r for r in data.by_name[table].rows if r["n"]]
    if not rows:
        return None
    names = [label(r) for r in rows]
    parts = [(k, [r[f"n_{k}"] for r in rows], figures.OUTCOME_COLOURS[k]) for k in _OUTCOMES]
    alt = "; ".join(
        f"{n}: {r['n_helped']} helped, {r['n_neutral']} neutral, {r['n_harmed']} harmed"
        for n, r in zip(names, rows, strict=True)
    )
    return Drawn(figures.stacked(names, parts, "share of resolved transfers"), reading, alt, table)


def _outcomes(data: "Analysis") -> Drawn | None:
    return _outcome_bars(
        data,
        "outcomes",
        lambda r: "all" if r["model"] == "all" else f"{r['model']}, {r['direction']}",
        "Each bar is one model and direction; the more red, the more often the note cost speed. Counts stand inside.",
    )


def _standing(data: "Analysis") -> Drawn | None:
    return _outcome_bars(
        data,
        "standing",
        lambda r: f"{r['model']}: source {r['standing']}",
        "Within each model: transfers whose source did better than (above), like (same) or worse than (below) the "
        "target's solo attempt. A note from above has something to give; one from below has not.",
    )


def _ratios(data: "Analysis") -> Drawn | None:
    if not data.resolved:
        return None
    from mkb_analyze import figures

    rows, band = frame(data.resolved), data.settings.band
    alt = (
        f"Paired ratios of {len(rows)} transfers on {rows['problem'].nunique()} problems, "
        f"from {rows['ratio'].min():.2f} to {rows['ratio'].max():.2f}."
    )
    return Drawn(
        figures.paired_ratios(rows, band),
        "One line a problem, sorted by its geometric mean (the tick); one point a transfer. Right of the shaded band "
        "the note helped, left of it it harmed.",
        alt,
        "transfers",
    )


def _estimates(
    table: Table, label: str, value: str, keep: Callable[[dict], bool] = lambda r: True
) -> list[tuple[str, Estimate]]:
    """(name, estimate) of the rows that have a number."""
    return [
        (str(r[label]), r[value])
        for r in table.rows
        if keep(r) and isinstance(r.get(value), Estimate) and r[value].defined
    ]


def _dots(
    rows: list[tuple[str, Estimate]], table: str, xlabel: str, reading: str, kind: str = "points", **how: Any
) -> Drawn | None:
    if not rows:
        return None
    from mkb_analyze import figures

    alt = "; ".join(f"{name}: {one(e.estimate, kind)}" for name, e in rows)
    return Drawn(figures.intervals(rows, xlabel, **how), reading, alt, table)


def _categories(data: "Analysis") -> Drawn | None:
    rows = _estimates(data.by_name["categories"], "category", "difference", lambda r: r["model"] == "all")
    rows.sort(key=lambda row: -row[1].estimate)
    return _dots(
        [(name.replace("_", " "), e) for name, e in rows],
        "categories",
        "P(category | harmed) − P(category | helped), points",
        "Right of 0 the category stands more often in notes that harmed, left of 0 in notes that helped; a grey line "
        "includes 0. q is p adjusted over all categories.",
    )


def _causes(data: "Analysis") -> Drawn | None:
    from mkb_analyze import figures

    rows = [r for r in data.by_name["causes"].rows if r["cause"] == "any of the group"]
    models = list(dict.fromkeys(r["model"] for r in rows))
    if not any(r["n"] for r in rows):
        return None
    names = {g.id: g.is_ for g in data.rubric("attribution").group_names}
    count = {(r["model"], r["group"]): r["n"] for r in rows}
    parts = [
        (names[g], [count.get((m, g), 0) for m in models], figures.PARTS[i % len(figures.PARTS)])
        for i, g in enumerate(names)
    ]
    alt = "; ".join(f"{m}: " + ", ".join(f"{count.get((m, g), 0)} {names[g]}" for g in names) for m in models)
    return Drawn(
        figures.stacked(models, parts, "share of harmed transfers with a cause"),
        "Each bar is the harmed transfers of one model by the group of their primary cause: misled by the note, a note "
        "that does not fit, the attempt's own execution, or nothing to do with the note.",
        alt,
        "causes",
    )


def _cause_shares(data: "Analysis") -> Drawn | None:
    table = data.by_name["causes"]
    top = "all" if any(r["model"] == "all" for r in table.rows) else next((r["model"] for r in table.rows), "")
    rows = _estimates(
        table, "cause", "share", lambda r: r["model"] == top and r["cause"] != "any of the group" and r["n"]
    )
    return _dots(
        [(name.replace("_", " "), e) for name, e in rows],
        "causes",
        "share of harmed transfers, %",
        "Share of each primary cause among harmed transfers, with its interval.",
        "share",
        zero=False,
    )


def _adherence(data: "Analysis") -> Drawn | None:
    return _dots(
        _estimates(data.by_name["adherence"], "model", "gap"),
        "adherence",
        "P(full | helped) − P(full | harmed), points",
        "Right of 0, following the note's plan to the full goes with help; left of 0, with harm.",
        good=1,
    )


def _propagation(data: "Analysis") -> Drawn | None:
    rows = _estimates(
        data.by_name["propagation"], "transfers", "share", lambda r: r["transfers"] != "harmed − helped" and r["n"]
    )
    return _dots(
        rows,
        "propagation",
        "transfers that carried an unsupported claim on, %",
        "Of the transfers whose note held a claim without support, the share whose own note says it again.",
        "share",
        zero=False,
    )


def _fates(data: "Analysis") -> Drawn | None:
    rows = [r for r in _estimates(data.by_name["fates"], "fate", "claims") if r[1].n]
    return _dots(
        rows,
        "fates",
        "share of traced claims, %",
        "What the next note says of each unsupported claim: again, stronger, weaker, verified, refuted, nothing.",
        "share",
        zero=False,
    )


def _survival(data: "Analysis") -> Drawn | None:
    return _dots(
        _estimates(data.by_name["generations"], "measure", "value"),
        "generations",
        "share still carried, or new carriers per carrier",
        "How much of the unsupported claims lives on from note to note; a reproduction number above 1 spreads.",
        "number",
        unit=1.0,
        zero=False,
    )


def _agreement(data: "Analysis") -> Drawn | None:
    rows = [
        (f"{r['task']}: {'all labels' if r['label'] == 'all' else str(r['label']).replace('_', ' ')}", r["alpha"])
        for r in data.by_name["agreement"].rows
        if r["alpha"].defined
    ]
    return _dots(
        rows,
        "agreement",
        "Krippendorff's α",
        "1 is perfect agreement, 0 is chance. Below about 0.67 a label says little alone; rare labels have wide "
        "intervals.",
        "number",
        unit=1.0,
        good=1,
    )


def _sensitivity(data: "Analysis") -> Drawn | None:
    rows = [r for r in data.by_name["sensitivity"].rows if r["lift"].defined]
    if not rows:
        return None
    from mkb_analyze import figures

    named = [
        (f"floor {r['floor']:g}, cap {r['cap']:g}, band {r['band']:g}", r["lift"], r["chosen"] == "chosen")
        for r in rows
    ]
    low, high = min(e.estimate for _, e, _ in named), max(e.estimate for _, e, _ in named)
    return Drawn(
        figures.settings_grid(named),
        "The same lift under other clips and bands. A finding that holds stays on one side of 0 in every row.",
        f"Paired lift under {len(named)} settings, from {one(low, 'percent')} to {one(high, 'percent')}.",
        "sensitivity",
    )


def _rule(data: "Analysis") -> Drawn | None:
    from mkb_analyze import figures

    curves: dict[str, list] = {}
    for r in data.by_name["rule"].rows:
        if r["measure"].startswith("share seen where ") and r["value"].defined:
            curves.setdefault(r["outcome"], []).append((float(r["measure"].split()[3]), r["value"]))
    if not curves:
        return None
    return Drawn(
        figures.calibration([(k, sorted(v, key=lambda p: p[0])) for k, v in curves.items()]),
        "Points on the dashed line were predicted rightly on problems that the rule had never seen.",
        "; ".join(f"{k}: {len(v)} bins" for k, v in curves.items()),
        "rule",
    )


def _variance(data: "Analysis") -> Drawn | None:
    return _dots(
        _estimates(data.by_name["variance"], "part", "value"),
        "variance",
        "variance of log paired ratios",
        "How much of the spread each part owns. Where timing or the rest is large, more replicates help most.",
        "number",
        unit=1.0,
        zero=False,
    )


FIGURES: dict[str, Callable[["Analysis"], Drawn | None]] = {
    "outcomes": _outcomes,
    "paired_ratios": _ratios,
    "standing": _standing,
    "categories": _categories,
    "causes": _causes,
    "cause_shares": _cause_shares,
    "adherence": _adherence,
    "propagation": _propagation,
    "fates": _fates,
    "survival": _survival,
    "agreement": _agreement,
    "sensitivity": _sensitivity,
    "rule": _rule,
    "variance": _variance,
}
