"""The chapters of a report: the question each answers, its one-line answer, its figures and tables."""

from dataclasses import dataclass

from mkb_analyze.analysis import Analysis, plural
from mkb_analyze.table import Table, one
from mkb_analyze.transfers import Outcome


@dataclass(frozen=True)
class Chapter:
    """`blocks` are (kind, name) in order, kind `figure` or `table`; `answer` is one sentence from the numbers."""

    path: str
    title: str
    question: str
    answer: str
    blocks: tuple[tuple[str, str], ...]


def chapters(data: Analysis) -> list[Chapter]:
    """All chapters but the overview, in reading order."""
    return [
        Chapter(
            "outcomes.html",
            "Did the note help or harm?",
            "Each conditioned attempt is compared with the solo attempt on the same problem and DSL; the note is all "
            "that differs.",
            _outcomes(data),
            (
                ("figure", "outcomes"),
                ("table", "outcomes"),
                ("figure", "paired_ratios"),
                ("table", "families"),
                ("table", "attainment"),
            ),
        ),
        Chapter(
            "standing.html",
            "Whose note was it?",
            "A note from an attempt that did better than the target's solo has something to give.",
            _standing(data),
            (("figure", "standing"), ("table", "standing"), ("table", "reverse")),
        ),
        Chapter(
            "content.html",
            "What stands in the notes, and what goes with harm?",
            "Every claim of a note has one category; a note has a category when any of its claims does.",
            _content(data),
            (("figure", "categories"), ("table", "categories"), ("table", "corrected"), ("table", "content")),
        ),
        Chapter(
            "attribution.html",
            "Why did transfers harm?",
            "A harmed transfer's cause is named by raters, with quotations from both sides.",
            _attribution(data),
            (
                ("figure", "causes"),
                ("figure", "cause_shares"),
                ("table", "causes"),
                ("figure", "adherence"),
                ("table", "adherence"),
            ),
        ),
        Chapter(
            "propagation.html",
            "Do unsupported claims live on?",
            "A claim without support is traced into the note that the conditioned attempt left.",
            _propagation(data),
            (
                ("figure", "propagation"),
                ("table", "propagation"),
                ("figure", "fates"),
                ("table", "fates"),
                ("figure", "survival"),
                ("table", "generations"),
            ),
        ),
        Chapter(
            "raters.html",
            "Can the labels be trusted?",
            "Raters that label the same items, compared beyond chance, and what their labels cost.",
            _raters(data),
            (("figure", "agreement"), ("table", "agreement"), ("table", "cost")),
        ),
        Chapter(
            "robustness.html",
            "Would other settings or the clock's noise say something else?",
            "The neutral band must be wider than the timing noise; a conclusion should survive other clips; and a rule "
            "learned on some problems should hold on others.",
            _robustness(data),
            (
                ("figure", "sensitivity"),
                ("table", "sensitivity"),
                ("table", "noise"),
                ("figure", "variance"),
                ("table", "variance"),
                ("figure", "rule"),
                ("table", "rule"),
            ),
        ),
    ]


def _interval(e, kind: str) -> str:
    if not e.defined:
        return f"not defined ({e.reason})"
    return one(e.estimate, kind) + (f" [{one(e.low, kind)}, {one(e.high, kind)}]" if e.low == e.low else "")


def _outcomes(data: Analysis) -> str:
    rows = data.by_name["outcomes"].rows
    if not rows:
        return "No transfer is resolved yet."
    groups = [r for r in rows if r["model"] != "all" or len(rows) == 1]
    worst = max(groups, key=lambda r: r["harm_rate"].estimate)
    best = max(groups, key=lambda r: r["help_rate"].estimate)
    return (
        f"Help rate runs up to {_interval(best['help_rate'], 'share')} ({best['model']}, {best['direction']}), harm "
        f"rate up to {_interval(worst['harm_rate'], 'share')} ({worst['model']}, {worst['direction']})."
    )


def _standing(data: Analysis) -> str:
    table = data.by_name["standing"]
    top = "all" if any(r["model"] == "all" for r in table.rows) else next((r["model"] for r in table.rows), "")
    parts = [
        f"{r['standing']} {_interval(r['harm_rate'], 'share')} of {r['n']}"
        for r in table.rows
        if r["model"] == top and r["n"]
    ]
    return f"Harm rate where the source stands {'; '.join(parts)}." if parts else "No transfer is resolved yet."


def _content(data: Analysis) -> str:
    rows = [r for r in data.by_name["categories"].rows if r["model"] == "all" and r["difference"].defined]
    if not rows:
        return "No labelled note stands in both a helped and a harmed transfer yet."
    clear = [r for r in rows if r["q"] is not None and r["q"] < 0.05]
    clear.sort(key=lambda r: -abs(r["difference"].estimate))
    if not clear:
        return f"None of {plural(len(rows), 'category').replace('categorys', 'categories')} differs at q < 0.05."
    named = "; ".join(
        f"{r['category'].replace('_', ' ')} {_interval(r['difference'], 'points')} points" for r in clear[:3]
    )
    return f"{len(clear)} of {len(rows)} categories differ at q < 0.05: {named}{' …' if len(clear) > 3 else ''}."


def _attribution(data: Analysis) -> str:
    rows = data.by_name["causes"].rows
    top = "all" if any(r["model"] == "all" for r in rows) else next((r["model"] for r in rows), "")
    groups = [r for r in rows if r["model"] == top and r["cause"] == "any of the group" and r["share"].defined]
    if not groups:
        return "No harmed transfer has a cause yet: run `mkb-analyze attribute`."
    names = {g.id: g.is_ for g in data.rubric("attribution").group_names}
    parts = [f"{names[r['group']]} {_interval(r['share'], 'share')}" for r in groups if r["n"]]
    return f"Of harmed transfers with a cause: {'; '.join(parts)}."


def _propagation(data: Analysis) -> str:
    rows = {r["transfers"]: r for r in data.by_name["propagation"].rows}
    if not rows["all outcomes"]["n"]:
        return "No unsupported claim was traced yet: run `mkb-analyze trace`."
    return (
        f"An unsupported claim was carried on in {_interval(rows['all outcomes']['share'], 'share')} of "
        f"{plural(rows['all outcomes']['n'], 'transfer')} whose note had one."
    )


def _raters(data: Analysis) -> str:
    rows = [r for r in data.by_name["agreement"].rows if r["label"] == "all" and r["alpha"].defined]
    if not rows:
        return "One rater alone, or none: agreement needs two readings of the same items."
    return "Krippendorff's α: " + "; ".join(f"{r['task']} {_interval(r['alpha'], 'number')}" for r in rows) + "."


def _robustness(data: Analysis) -> str:
    sensitivity, noise = data.by_name["sensitivity"], data.by_name["noise"]
    n_unclear = sum(r["clear"] == "no" for r in noise.rows)
    clock = (
        f"Timing noise reaches the band in {n_unclear} of {plural(len(noise.rows), 'case')}."
        if noise.rows
        else "The timing noise is not known."
    )
    return f"{sensitivity.notes[0] if sensitivity.notes else ''} {clock}".strip()


def unplaced(data: Analysis) -> list[Table]:
    """Tables that no chapter names and that are not lists of cases: they end the chapter on robustness."""
    named = {name for c in chapters(data) for kind, name in c.blocks if kind == "table"}
    return [t for name, t in data.by_name.items() if name not in named | {"attempts", "doubtful", "quality", "effort"}]


def losses(data: Analysis, limit: int) -> list:
    """The harmed transfers with the smallest paired ratio first."""
    bad = [t for t in data.resolved if t.outcome is Outcome.HARMED]
    return sorted(bad, key=lambda t: (t.ratio, t.raw_ratio if t.raw_ratio is not None else 0.0, t.key))[:limit]
