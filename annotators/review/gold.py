"""Settles what people said: agreed, outvoted by a third, or decided by a named arbiter."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from annotators.records import Adjudication
from annotators.review.answers import by_item
from annotators.rubric import Rubric
from runner import digests
from runner.clock import utc_now
from runner.errors import UserError
from runner.study import Study, write_atomically


@dataclass(frozen=True)
class Settled:
    """How many items were settled how, how many were before, and which are open with the reason."""

    n_agreed: int
    n_majority: int
    n_arbiter: int
    n_present: int
    open: tuple[str, ...]


def settle(said: dict[str, dict[str, Any]], arbiter: str | None = None) -> tuple[dict[str, Any] | None, str]:
    """One item's decision out of its people's, and how: `agreed`, `majority`, `arbiter`; None and why it is open.

    Claims are settled one by one: a span is kept with the label that most people gave it, left out where most did not
    mark it. Flags follow the same rule among those who gave the label, and are left out where that is a tie.
    """
    if arbiter in said:
        decisions = list(said.values())
        if any(not _same(decisions[0], d) for d in decisions[1:]) or len(decisions) == 1:
            return said[arbiter], "arbiter"
    if len(said) < 2:
        return None, "one person alone"
    decisions = list(said.values())
    if all(_same(decisions[0], d) for d in decisions[1:]):
        return decisions[0], "agreed"
    if len(said) < 3:
        return None, "two people differ"
    if "claims" not in decisions[0]:
        out = {}
        for name in sorted({k for d in decisions for k in d}):
            found, n = Counter(d.get(name) for d in decisions).most_common(1)[0]
            if 2 * n <= len(decisions):
                return None, f"no majority on {name}"
            if found is not None:
                out[name] = found
        return out, "majority"
    marked = [{(c["start"], c["end"]): c for c in d["claims"]} for d in decisions]
    claims = []
    for span in sorted({s for m in marked for s in m}):
        label, n = Counter(m[span]["label"] if span in m else None for m in marked).most_common(1)[0]
        if 2 * n <= len(marked):
            return None, f"no majority on span {span[0]}..{span[1]}"
        if label is not None:
            chosen = [m[span]["flags"] for m in marked if span in m and m[span]["label"] == label]
            claims.append({"start": span[0], "end": span[1], "label": label, "flags": _flags(chosen)})
    if any(a["end"] > b["start"] for a, b in zip(claims, claims[1:], strict=False)):
        return None, "spans of the majority overlap"
    return {"claims": claims}, "majority"


def _same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    if "claims" not in a:
        return a == b
    return a["claims"] == b["claims"]


def _flags(given: list[dict[str, str]]) -> dict[str, str]:
    out = {}
    for name in sorted({k for f in given for k in f}):
        value, n = Counter(f[name] for f in given if name in f).most_common(1)[0]
        if 2 * n > len(given):
            out[name] = value
    return out


def write(study: Study, rubric: Rubric, arbiter: str | None = None, out: Path | None = None) -> Settled:
    """Settle a task and append what is new; with `out`, also write a gold file that `calibrate` reads (content only).

    An item that was settled and is open now (somebody changed an answer) keeps its settled label, and is listed.

    Raises:
        UserError: an arbiter who answered nothing, or a short name that two people share.
    """
    with study.writing():
        every = list(study.read("adjudications", Adjudication))
        before = {
            a.item: digests.of_value(a.decision)
            for a in every
            if a.gold and a.task == rubric.task and a.rubric_sha256 == rubric.sha256
        }
        counts: Counter = Counter()
        fresh, still = [], []
        found = by_item(every, rubric.task, rubric.sha256)
        if arbiter is not None:
            arbiter = _who(arbiter, sorted({p for people in found.values() for p in people}))
        for item, people in sorted(found.items()):
            decided, how = settle({p: a.decision for p, a in people.items()}, arbiter)
            if decided is None:
                still.append(f"{item}: {how}{', the label settled before stands' if item in before else ''}")
            elif before.get(item) == digests.of_value(decided):
                counts["present"] += 1
            else:
                counts[how] += 1
                fresh.append(
                    Adjudication(
                        task=rubric.task,
                        item=item,
                        person="+".join(sorted(people)),
                        rubric_id=rubric.id,
                        rubric_sha256=rubric.sha256,
                        decision=decided,
                        gold=True,
                        how=how,
                        at=utc_now(),
                    )
                )
        if fresh:
            study.append("adjudications", fresh)
        if out is not None:
            _export(study, rubric, out)
    return Settled(counts["agreed"], counts["majority"], counts["arbiter"], counts["present"], tuple(still))


def _who(name: str, people: list[str]) -> str:
    """The one person of that e-mail, or of that part before the @."""
    found = [p for p in people if p == name] or [p for p in people if p.split("@")[0] == name]
    if len(found) != 1:
        told = ", ".join(people) or "nobody answered yet"
        raise UserError(f"--arbiter {name}: {'two people share it' if found else 'answered nothing'}; one of: {told}")
    return found[0]


def _export(study: Study, rubric: Rubric, out: Path) -> None:
    (out / "notes").mkdir(parents=True, exist_ok=True)
    latest = {
        a.item: a
        for a in study.read("adjudications", Adjudication)
        if a.gold and a.task == "content" and a.rubric_sha256 == rubric.sha256
    }
    lines = []
    for sha, a in sorted(latest.items()):
        write_atomically(out / "notes" / f"{sha}.md", study.note(sha))
        lines += [
            json.dumps(
                {"note": f"{sha}.md", "note_sha256": sha, "start": c["start"], "end": c["end"], "category": c["label"]}
            )
            for c in a.decision["claims"]
        ]
    write_atomically(out / "gold.jsonl", "".join(f"{x}\n" for x in lines))
