"""Beyond the study: rates corrected for the raters, a transfer rule on held-out problems, generations, variance parts."""

import math
from collections.abc import Sequence

import numpy as np

from annotators.calibrate import Calibration
from annotators.rubric import Rubric
from mkb_analyze.labels import Labels
from mkb_analyze.stats import chains, misclassification, rule, survival, variance
from mkb_analyze.stats.estimate import Estimate, undefined
from mkb_analyze.table import Column, Table
from mkb_analyze.tables.groups import Resampling, harmed, helped
from mkb_analyze.transfers import Standing, Transfer


def corrected(
    resolved: Sequence[Transfer], labels: Labels, rubric: Rubric, calibration: Calibration | None, how: Resampling
) -> Table:
    """Claim shares by category among harmed and helped transfers, as labelled and corrected by a calibration."""
    rows: list[dict] = []
    notes: tuple[str, ...] = (
        "No calibration was given: rates stand as labelled (`mkb-analyze calibrate`, then `report --calibration FILE`).",
    )
    if calibration is not None:
        used = [t for t in resolved if not t.skipped and t.source_note_sha256 in labels.notes]
        order = sorted({t.problem for t in used})
        confusion = np.asarray(calibration.confusion, float)[:, :-1]
        for k, category in enumerate(calibration.labels):
            yes = confusion[k, k]
            table = [
                [confusion.sum() - confusion[k].sum() - confusion[:, k].sum() + yes, confusion[:, k].sum() - yes],
                [confusion[k].sum() - yes, yes],
            ]
            groups = [_counts([t for t in used if test(t)], order, labels, category) for test in (harmed, helped)]
            pair = misclassification.corrected_difference(
                table, *groups, category, how.n_resamples, how.rng(), how.level
            )
            rows.append({"category": category, "uncorrected": pair.uncorrected, "corrected": pair.corrected})
        notes = (
            f"Calibration of {calibration.rater.name} on {calibration.n_gold} gold claims; errors are taken to be the same in both groups.",
            *(
                (
                    f"{calibration.n_notes_seen} of its {calibration.n_notes} notes were in the rater's own training: the correction is too kind.",
                )
                if calibration.n_notes_seen
                else ()
            ),
        )
    return Table(
        "corrected",
        "Category differences corrected for the rater's errors",
        "Share of claims with the category in notes that harmed less the share in notes that helped, before and after the correction.",
        (
            Column("category", "category"),
            Column("uncorrected", "as labelled, points", "points"),
            Column("corrected", "corrected, points", "points"),
        ),
        tuple(rows),
        notes,
    )


def _counts(group: Sequence[Transfer], order: Sequence[int], labels: Labels, category: str) -> np.ndarray:
    """(problems, 2) counts of claims without and with the category."""
    out = np.zeros((len(order), 2))
    place = {p: i for i, p in enumerate(order)}
    for t in group:
        for claim in labels.notes[t.source_note_sha256]:
            if claim.label is not None:
                out[place[t.problem], int(claim.label == category)] += 1
    return out


def transfer_rule(
    resolved: Sequence[Transfer], labels: Labels, content: Rubric, attribution: Rubric, how: Resampling
) -> Table:
    """How well standing, adherence, categories and their interaction predict help and harm on held-out problems."""
    used = [t for t in resolved if not t.skipped]
    names, x = _features(used, labels, content, attribution)
    rows = []
    for outcome, test in (("helped", helped), ("harmed", harmed)):
        found = (
            rule.held_out_rule(
                x,
                [int(test(t)) for t in used],
                [t.problem for t in used],
                names,
                resamples=how.n_resamples,
                rng=how.rng(),
                level=how.level,
            )
            if used
            else None
        )
        if found is None:
            continue
        for name, value in (
            ("log loss gain over the base rate", found.log_loss_gain),
            ("Brier gain over the base rate", found.brier_gain),
            ("AUC", found.auc),
        ):
            rows.append({"outcome": outcome, "measure": name, "value": value})
        for mean, seen in found.calibration:
            rows.append({"outcome": outcome, "measure": f"share seen where {mean:.2f} was predicted", "value": seen})
        for name, weight in sorted(found.coefficients, key=lambda kv: -abs(kv[1]))[:6]:
            rows.append({"outcome": outcome, "measure": f"weight of {name} (standardised)", "value": weight})
    return Table(
        "rule",
        "A transfer rule on held-out problems",
        "Gains above 0 mean that the rule predicts better than the base rate alone; every problem "
        "is predicted by a rule that never saw it.",
        (Column("outcome", "outcome"), Column("measure", "measure"), Column("value", "value", "number")),
        tuple(rows),
    )


def _features(
    used: Sequence[Transfer], labels: Labels, content: Rubric, attribution: Rubric
) -> tuple[list[str], np.ndarray]:
    full, unsupported = set(attribution.role("adherence_all")), set(content.role("unsupported"))
    names = [
        "source above",
        "source below",
        "full adherence",
        "unsupported claim",
        "unsupported claim × source below",
        *(f"has {c}" for c in content.ids),
    ]
    rows = []
    for t in used:
        has = labels.categories(t.source_note_sha256)
        above, below = t.standing is Standing.ABOVE, t.standing is Standing.BELOW
        followed = t.key in labels.transfers and labels.transfers[t.key].adherence.label in full
        closed = bool(has & unsupported)
        rows.append([above, below, followed, closed, closed and below, *(c in has for c in content.ids)])
    return names, np.asarray(rows, float).reshape(len(rows), len(names))


def generations(transfers: Sequence[Transfer], labels: Labels, fate: Rubric, how: Resampling) -> Table:
    """Survival of unsupported claims over generations and their reproduction number."""
    carried = set(fate.role("propagated"))
    times, events, carriers, new, chain, number = [], [], [], [], [], []
    for t in transfers:
        votes = [v for v, _ in labels.fates_by_transfer.get(t.key, ()) if v.label is not None]
        if not votes:
            continue
        kept = sum(v.label in carried for v in votes)
        cell = (t.model, t.problem, t.replicate, *sorted((t.source_dsl, t.target_dsl)))
        for v in votes:
            times.append(t.generation)
            events.append(int(v.label not in carried))
        carriers.append(len(votes))
        new.append(kept)
        chain.append(str(cell))
        number.append(t.generation)
    rows = []
    if times:
        curve = survival.kaplan_meier(times, events, how.level)
        for g, s, low, high, n in zip(
            curve.time, curve.share, curve.low["log-log"], curve.high["log-log"], curve.n_risk, strict=False
        ):
            unknown = math.isnan(low) or math.isnan(high)
            rows.append(
                {
                    "measure": f"still carried after generation {int(g)}",
                    "value": Estimate(
                        "survival",
                        float(s),
                        float(low),
                        float(high),
                        int(n),
                        "Kaplan–Meier, log-log limits",
                        how.level,
                        reason="no survivor is left: no interval" if unknown else "",
                    ),
                }
            )
        for e in chains.reproduction_number(carriers, new, chain, number, how.level):
            rows.append({"measure": e.name, "value": e})
    return Table(
        "generations",
        "Unsupported claims over generations",
        "The share of traced claims still carried on, and new carriers per carrier "
        "(above 1 a claim spreads, below 1 it dies out).",
        (Column("measure", "measure"), Column("value", "value", "number")),
        tuple(rows),
        ("With one generation this is the propagation above, claim by claim.",) if rows and max(number) < 2 else (),
    )


def variance_parts(resolved: Sequence[Transfer], noise_rows: Sequence[dict], how: Resampling) -> Table:
    """Where the variance of the log paired ratio lies: problem, model, note, timing, and the rest (attempts)."""
    used = [t for t in resolved if not t.skipped]
    sds = [r["ratio_sd"] for r in noise_rows]
    timing = float(np.mean(np.square(sds))) if sds else 0.0
    factors = {
        "problem": [t.problem for t in used],
        "model": [t.model for t in used],
        "note": [t.source_note_sha256 or t.key for t in used],
    }
    factors = {k: v for k, v in factors.items() if 1 < len(set(v)) < len(used)}
    if len(used) < 5:
        rows = [
            {"part": "all", "value": undefined("variance", f"{len(used)} transfers: at least 5 are due", len(used))}
        ]
    else:
        parts = variance.variance_parts(
            [t.log_ratio for t in used], factors, timing, how.n_resamples, how.rng(), how.level
        )
        rows = [{"part": e.name, "value": e} for e in parts]
    left = sorted({"problem", "model", "note"} - set(factors))
    return Table(
        "variance",
        "Where the variance of log paired ratios lies",
        "Variance in squared log units owed to each part; the rest is what differs between "
        "attempts on the same problem, model and note.",
        (Column("part", "part"), Column("value", "variance", "number")),
        tuple(rows),
        (f"Not separable here (one level, or one case a level): {', '.join(left)}.",) if left else (),
    )
