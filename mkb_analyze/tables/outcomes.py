"""Outcomes: help and harm rate and lift by group, relative standing, the reverse direction, and the attempts."""

from collections.abc import Sequence

from mkb_analyze.ladder import THRESHOLDS, ladder
from mkb_analyze.stats import contingency, multiplicity
from mkb_analyze.table import Column, Table
from mkb_analyze.tables.groups import POOLED, Resampling, by, direction_name, harmed, helped, lift, share
from mkb_analyze.transfers import Outcome, Settings, Standing, Transfer, tier
from runner.records import Attempt

_RATES = (
    Column("n", "n", "number"),
    Column("n_helped", "helped", "number"),
    Column("n_neutral", "neutral", "number"),
    Column("n_harmed", "harmed", "number"),
    Column("help_rate", "help rate", "share"),
    Column("harm_rate", "harm rate", "share"),
    Column("lift", "paired lift", "percent"),
    Column("p", "p", "p"),
    Column("q", "q", "p"),
)


def _row(label: dict, group: Sequence[Transfer], how: Resampling) -> dict:
    return {
        **label,
        "n": len(group),
        "n_helped": sum(map(helped, group)),
        "n_harmed": sum(map(harmed, group)),
        "n_neutral": sum(t.outcome is Outcome.NEUTRAL for t in group),
        "help_rate": share(group, helped, "help rate", how),
        "harm_rate": share(group, harmed, "harm rate", how),
        "lift": lift(group, "paired lift", how),
    }


def _with_q(rows: list[dict], family: str) -> list[dict]:
    adjusted = multiplicity.adjusted_table([r["lift"] for r in rows], family)
    return [{**r, "lift": e, "p": e.p, "q": e.q} for r, e in zip(rows, adjusted, strict=False)]


def outcomes(resolved: Sequence[Transfer], how: Resampling) -> Table:
    """The study's own table: by model and direction, with the pool below its groups."""
    groups = by(resolved, lambda t: (t.model, direction_name(t)))
    rows = _with_q([_row({"model": m, "direction": d}, g, how) for (m, d), g in groups.items()], "groups of this table")
    if len(groups) > 1:
        pool = _row({"model": POOLED, "direction": POOLED}, resolved, how)
        rows.append({**pool, "p": pool["lift"].p, "q": None})
    return Table(
        "outcomes",
        "Help, harm and paired lift by model and direction",
        "Shares are of resolved transfers; paired lift is 100 × (geometric mean of conditioned ÷ solo − 1), so "
        "that below 0 the note cost speed.",
        (Column("model", "model"), Column("direction", "direction"), *_RATES),
        tuple(rows),
        ("The pool stands below the groups it is made of and is not a group of its own.",) if len(groups) > 1 else (),
    )


def by_family(resolved: Sequence[Transfer], how: Resampling) -> Table:
    rows = [_row({"family": f or "–"}, g, how) for f, g in by(resolved, lambda t: t.family or "").items()]
    return Table(
        "families",
        "Help, harm and paired lift by problem family",
        "The same figures with all models and directions of a family together; the table above shows the groups.",
        (Column("family", "family"), *_RATES),
        tuple(_with_q(rows, "families of this table")),
    )


def standing(resolved: Sequence[Transfer], how: Resampling) -> Table:
    """Help and harm within above / same / below, per model and pooled."""
    rows, notes = [], []
    models = by(resolved, lambda t: t.model)
    for model, group in [*models.items(), *([(POOLED, list(resolved))] if len(models) > 1 else [])]:
        parts = {s: [t for t in group if t.standing is s] for s in Standing}
        for s, part in parts.items():
            row = _row({"model": model, "standing": s.value}, part, how)
            rows.append({k: v for k, v in row.items() if k not in ("p", "q")})
        order = [Standing.BELOW, Standing.SAME, Standing.ABOVE]
        for what, test in (("help", helped), ("harm", harmed)):
            trend = contingency.cochran_armitage(
                [sum(map(test, parts[s])) for s in order], [len(parts[s]) for s in order]
            )
            notes.append(
                f"{model}: {what} rate over below → same → above: Cochran–Armitage "
                + (
                    f"z = {trend.statistic:.2f}, p = {trend.p:.3g}, n = {trend.n}."
                    if trend.p == trend.p
                    else f"not defined ({trend.reason})."
                )
            )
    return Table(
        "standing",
        "Outcome by relative standing of the source",
        "Above: the source solo's tier is higher than the target solo's; tiers are failed, passed and fast.",
        (Column("model", "model"), Column("standing", "source stands"), *_RATES[:-2]),
        tuple(rows),
        tuple(notes),
    )


def reverse(resolved: Sequence[Transfer], how: Resampling) -> Table:
    """Among transfers of one cell, both directions: does help one way come with harm the other way?"""
    cells = by(resolved, lambda t: (t.model, t.problem, t.replicate, t.generation))
    pairs = [
        (a, b)
        for g in cells.values()
        for a in g
        for b in g
        if a.source_dsl == b.target_dsl and a.target_dsl == b.source_dsl
    ]
    rows = []
    for direction, group in by([a for a, _ in pairs], direction_name).items():
        chosen = [(a, b) for a, b in pairs if direction_name(a) == direction and helped(a)]
        rows.append(
            {
                "direction": direction,
                "n_pairs": len(group),
                "n_helped": len(chosen),
                "reverse_helped": share([b for _, b in chosen], helped, "reverse helped", how),
                "reverse_harmed": share([b for _, b in chosen], harmed, "reverse harmed", how),
            }
        )
    notes = []
    if pairs:
        first = min({direction_name(a) for a, _ in pairs})
        grid = [[0, 0], [0, 0]]
        for a, b in pairs:
            if direction_name(a) == first:
                grid[not helped(a)][not helped(b)] += 1
        test = contingency.mcnemar(grid, how.level, "help rate, one direction against the other").difference
        notes.append(
            f"Help one way against the other, pairs of one cell: difference {100 * test.estimate:+.1f} points "
            f"[{100 * test.low:+.1f}, {100 * test.high:+.1f}], n = {test.n} pairs ({test.method}"
            + (f", p = {test.p:.3g})." if test.p == test.p else ").")
        )
    return Table(
        "reverse",
        "When a transfer helped, what the reverse direction did",
        "Of the transfers that helped, the share whose reverse (same model, problem and replicate) helped or harmed.",
        (
            Column("direction", "direction"),
            Column("n_pairs", "pairs", "number"),
            Column("n_helped", "helped", "number"),
            Column("reverse_helped", "reverse helped", "share"),
            Column("reverse_harmed", "reverse harmed", "share"),
        ),
        tuple(rows),
        tuple(notes),
    )


def attainment(resolved: Sequence[Transfer]) -> Table:
    """R@t and S with and without the note, as the published harness counts them."""
    rows = []
    groups = by(resolved, lambda t: (t.model, direction_name(t)))
    for (model, direction), group in [
        *groups.items(),
        *([((POOLED, POOLED), list(resolved))] if len(groups) > 1 else []),
    ]:
        solo = ladder([t.target_solo for t in group])
        with_note = ladder([t.target_solo if t.skipped else t.conditioned for t in group])
        for arm, values in (
            ("solo", solo),
            ("conditioned", with_note),
            ("lift", {k: with_note[k] - solo[k] for k in solo}),
        ):
            rows.append({"model": model, "direction": direction, "arm": arm, "n": len(group), **values})
    return Table(
        "attainment",
        "R@t and S by arm",
        "R@t is the share that passed with a speedup of at least t; S is 100 × the "
        "mean of the five; a skipped attempt counts as its solo twin. Equal to the published harness's figures.",
        (
            Column("model", "model"),
            Column("direction", "direction"),
            Column("arm", "arm"),
            Column("n", "n", "number"),
            *(Column(f"R@{t:g}", f"R@{t:g}", "share") for t in THRESHOLDS),
            Column("S", "S", "number"),
        ),
        tuple(rows),
    )


def transfer_rows(transfers: Sequence[Transfer], files: dict[str, str]) -> Table:
    """Every transfer, resolved or not, with the way to its page."""
    rows = [
        {
            "transfer": {"href": files[t.key], "text": t.key} if t.key in files else t.key,
            "family": t.family,
            "outcome": t.outcome or "unresolved",
            "ratio": t.ratio,
            "raw_ratio": t.raw_ratio,
            "standing": t.standing,
            "source": t.source_tier,
            "solo_speedup": _speed(t.target_solo),
            "conditioned_speedup": _speed(t.conditioned),
            "why": t.reason or ("skipped: the source left no note" if t.skipped else None),
        }
        for t in transfers
    ]
    return Table(
        "transfers",
        "Every transfer",
        "Open a transfer for its note, both kernels, verdicts and labels.",
        (
            Column("transfer", "transfer"),
            Column("family", "family"),
            Column("outcome", "outcome"),
            Column("ratio", "paired ratio", "ratio"),
            Column("raw_ratio", "unclipped", "ratio"),
            Column("standing", "source stands"),
            Column("source", "source tier"),
            Column("solo_speedup", "solo", "ratio"),
            Column("conditioned_speedup", "conditioned", "ratio"),
            Column("why", "why not resolved"),
        ),
        tuple(rows),
    )


def attempt_rows(attempts: Sequence[Attempt], settings: Settings) -> Table:
    """Every attempt with its final verdict."""
    rows = []
    for a in sorted(attempts, key=lambda a: a.key):
        v = a.verdict
        rows.append(
            {
                "attempt": a.key,
                "tier": tier(a, settings).value if v else a.state.value,
                "speedup": v.speedup if v else None,
                "kernel_ms": v.kernel_ms if v else None,
                "reference_ms": v.reference_ms if v else None,
                "n_submissions": len(a.submissions),
                "stage": v.stage.value if v else None,
                "why": (v.reason if v else a.reason),
            }
        )
    return Table(
        "attempts",
        "Every attempt",
        "Speedup is reference ÷ kernel, both medians end to end with a cold L2 cache.",
        (
            Column("attempt", "attempt"),
            Column("tier", "tier"),
            Column("speedup", "speedup", "ratio"),
            Column("kernel_ms", "kernel, ms", "number"),
            Column("reference_ms", "reference, ms", "number"),
            Column("n_submissions", "submissions", "number"),
            Column("stage", "stage"),
            Column("why", "why"),
        ),
        tuple(rows),
    )


def _speed(attempt: Attempt | None) -> float | None:
    return attempt.verdict.speedup if attempt and attempt.verdict else None
