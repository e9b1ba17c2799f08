"""Where a review stands: progress, agreement between people and with the panel, anchoring, traps missed."""

from typing import Any

from annotators.records import Adjudication
from annotators.review import book
from annotators.review.answers import by_item, standing
from annotators.rubric import Rubric
from mkb_analyze.stats.alpha import krippendorff_alpha
from mkb_analyze.stats.percent import percent_agreement
from runner.study import Study


def status(study: Study, rubric: Rubric, n_resamples: int = 2000, seed: int = 0) -> dict[str, Any]:
    """Counts by reviewer, and shares with their n; None where nothing defines a share.

    `people` is agreement over claims (or items) that two or more people labelled; `with_panel` the share of people's
    labels equal to the panel's, `shown` and `blind` apart: their difference is the anchoring. `traps` compares answers
    on trap items with the settled label. `n_other_rubric` answers were given under another version of the rubric and
    count nowhere.
    """
    sent = [s for s in book.sent(study).values() if s.task == rubric.task and s.rubric_sha256 == rubric.sha256]
    of_task = [a for a in study.read("adjudications", Adjudication) if a.task == rubric.task]
    every = [a for a in of_task if a.rubric_sha256 == rubric.sha256]
    answers = {(a.item, a.person, a.trap): a for a in standing(every)}
    settled = {a.item: a.decision for a in every if a.gold}
    done = {(a.item, a.reviewer or a.person, a.trap) for a in answers.values()}
    progress: dict[str, dict[str, int]] = {}
    for s in sent:
        row = progress.setdefault(s.reviewer, {"n_sent": 0, "n_done": 0})
        row["n_sent"] += 1
        row["n_done"] += (s.item, s.reviewer, s.trap) in done
    for row in progress.values():
        row["n_left"] = row["n_sent"] - row["n_done"]
    said = {s.item: s.said for s in sent}
    sides: dict[bool, list[bool]] = {True: [], False: []}
    traps: list[bool] = []
    for a in answers.values():
        if a.trap:
            traps += _equal(labels(a.decision, rubric), labels(settled.get(a.item, {}), rubric))
        elif a.blind is not None:
            sides[a.blind] += _equal(labels(a.decision, rubric), labels(said.get(a.item, {}), rubric))
    return {
        "task": rubric.task,
        "progress": progress,
        "n_settled": len(settled),
        "n_other_rubric": len(standing(of_task)) - len(standing(every)),
        "people": _people(every, rubric, n_resamples, seed),
        "with_panel": {"shown": _share(sides[False]), "blind": _share(sides[True]), "anchoring": _gap(sides)},
        "traps": {"n": len(traps), "n_missed": len(traps) - sum(traps)},
    }


def labels(decision: dict[str, Any], rubric: Rubric) -> dict[str, str]:
    """What is compared: the label of each span, or the primary choice."""
    if rubric.task == "content":
        return {f"{c['start']}-{c['end']}": c["label"] for c in decision.get("claims", ())}
    what = "cause" if rubric.task == "attribution" else rubric.task
    return {what: decision[what]} if decision.get(what) else {}


def _equal(own: dict[str, str], other: dict[str, str]) -> list[bool]:
    return [own[k] == other[k] for k in own.keys() & other.keys()]


def _share(hits: list[bool]) -> dict[str, Any]:
    return {"n": len(hits), "share": sum(hits) / len(hits) if hits else None}


def _gap(sides: dict[bool, list[bool]]) -> float | None:
    if not sides[True] or not sides[False]:
        return None
    return sum(sides[False]) / len(sides[False]) - sum(sides[True]) / len(sides[True])


def _people(every: list[Adjudication], rubric: Rubric, n_resamples: int, seed: int) -> dict[str, Any]:
    found = by_item(every, rubric.task, rubric.sha256)
    people = sorted({p for by in found.values() for p in by})
    rows, clusters = [], []
    for item, by in sorted(found.items()):
        told = {p: labels(a.decision, rubric) for p, a in by.items()}
        for name in sorted({k for t in told.values() for k in t}):
            row = [told.get(p, {}).get(name) for p in people]
            if sum(x is not None for x in row) >= 2:
                rows.append(row)
                clusters.append(item)
    if not rows:
        return {"people": people, "n": 0, "raw": None, "alpha": None}
    raw = percent_agreement(rows, rubric.answers).over_items
    alpha = krippendorff_alpha(rows, rubric.answers, resamples=n_resamples, rng=seed, clusters=clusters)
    return {"people": people, "n": len(rows), "raw": raw.to_dict(), "alpha": alpha.to_dict()}
