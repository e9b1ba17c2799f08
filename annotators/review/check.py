"""Reads one answer of a labelling page: a decision with its origin, or the reason why it cannot be used."""

from typing import Any

from annotators.review.page import COMMENT, FLAG
from annotators.rubric import Rubric


class Unusable(ValueError):
    """An answer that breaks the rubric or the text; its message says how."""


def predicted(said: dict[str, Any], task: str, first_text: str) -> list[dict[str, Any]]:
    """A decision as the regions and choices of a page."""
    if task != "content":
        return [
            {"id": name, "from_name": name, "to_name": first_text, "type": "choices", "value": {"choices": [value]}}
            for name, value in said.items()
        ]
    out = []
    for c in said.get("claims", ()):
        base = {"id": f"c{c['start']}-{c['end']}", "to_name": "text"}
        span = {"start": c["start"], "end": c["end"]}
        out.append({**base, "from_name": "label", "type": "labels", "value": {**span, "labels": [c["label"]]}})
        out += [
            {**base, "from_name": FLAG + k, "type": "choices", "value": {**span, "choices": [v]}}
            for k, v in c["flags"].items()
        ]
    return out


def decision(result: Any, rubric: Rubric, text: str = "", cause_due: bool = True) -> tuple[dict[str, Any], str | None]:
    """The labels of an answer, checked against rubric and text, and the comment.

    Raises:
        Unusable: an unknown label, two in the place of one, nothing decided, a span outside the text, empty or
            overlapping.
    """
    if not isinstance(result, list) or not isinstance(text, str):
        raise Unusable("the answer is no list of regions and choices")
    # A relation joins two regions (a key of the page draws one) and decides nothing.
    result = [r for r in result if not (isinstance(r, dict) and r.get("type") == "relation")]
    if not all(
        isinstance(r, dict) and isinstance(r.get("value"), dict) and isinstance(r.get("from_name"), str) for r in result
    ):
        raise Unusable("the answer holds something that is neither region nor choice")
    comment = None
    for r in result:
        if r.get("from_name") == COMMENT:
            said = r["value"].get("text")
            comment = "\n".join(map(str, said)) if isinstance(said, list) else str(said)
    parts = [r for r in result if r.get("from_name") != COMMENT]
    if rubric.task == "content":
        return {"claims": _claims(parts, rubric, text)}, comment
    what = "cause" if rubric.task == "attribution" else rubric.task
    allowed = {what: rubric.answers, **{s.id: s.ids for s in rubric.scales}}
    if rubric.task == "attribution":
        allowed["second_cause"] = rubric.answers
    found: dict[str, str] = {}
    for r in parts:
        name = r.get("from_name")
        if name not in allowed:
            raise Unusable(f"{name!r} is no question of this page")
        if name in found:
            raise Unusable(f"{name} is answered twice")
        found[name] = _one(r["value"].get("choices"), allowed[name], name)
    for name in (*((what,) if cause_due else ()), *(s.id for s in rubric.scales)):
        if name not in found:
            raise Unusable(f"{name} is not answered")
    if "second_cause" in found and found["second_cause"] == found.get("cause"):
        raise Unusable("second_cause repeats cause")
    return found, comment


def _one(values: Any, allowed: tuple[str, ...], name: str) -> str:
    if not isinstance(values, list) or len(values) != 1:
        raise Unusable(f"{name} has {len(values) if isinstance(values, list) else 'no'} values, one is due")
    if values[0] not in allowed:
        raise Unusable(f"{name} {values[0]!r} is not in the rubric")
    return values[0]


def _claims(parts: list[dict[str, Any]], rubric: Rubric, text: str) -> list[dict[str, Any]]:
    flags = {FLAG + f.id: f for f in rubric.flags}
    regions: dict[str, dict[str, Any]] = {}
    for r in parts:
        at = f"region {r.get('id')}"
        start, end = r["value"].get("start"), r["value"].get("end")
        if type(start) is not int or type(end) is not int:
            raise Unusable(f"{at} has no whole-number span")
        if not 0 <= start < end <= len(text):
            raise Unusable(f"{at}: span {start}..{end} does not lie in the text of {len(text)} characters")
        region = regions.setdefault(str(r.get("id")), {"start": start, "end": end, "label": None, "flags": {}})
        if (region["start"], region["end"]) != (start, end):
            raise Unusable(f"{at} has two spans")
        name = r.get("from_name")
        if name == "label":
            if region["label"] is not None:
                raise Unusable(f"{at} has two labels")
            region["label"] = _one(r["value"].get("labels"), rubric.answers, f"{at} label")
        elif name in flags:
            if flags[name].id in region["flags"]:
                raise Unusable(f"{at}: {flags[name].id} is answered twice")
            region["flags"][flags[name].id] = _one(r["value"].get("choices"), flags[name].ids, f"{at} {flags[name].id}")
        else:
            raise Unusable(f"{at}: {name!r} is no question of this page")
    out = sorted(regions.values(), key=lambda c: (c["start"], c["end"]))
    for c in out:
        if c["label"] is None:
            raise Unusable(f"span {c['start']}..{c['end']} has no label")
    for a, b in zip(out, out[1:], strict=False):
        if a["end"] > b["start"]:
            raise Unusable(f"spans {a['start']}..{a['end']} and {b['start']}..{b['end']} overlap")
    return out


def origin(decided: dict[str, Any], shown: dict[str, Any]) -> dict[str, int]:
    """How many labels were kept, changed, made new or deleted, against what the page showed (nothing where blind)."""
    if "claims" not in decided:
        counts = {"kept": 0, "changed": 0, "new": 0, "deleted": len(shown.keys() - decided.keys())}
        for k, v in decided.items():
            counts["new" if k not in shown else "kept" if shown[k] == v else "changed"] += 1
        return counts
    old = {(c["start"], c["end"]): (c["label"], c["flags"]) for c in shown.get("claims", ())}
    counts = {"kept": 0, "changed": 0, "new": 0, "deleted": 0}
    for c in decided["claims"]:
        before = old.pop((c["start"], c["end"]), None)
        counts["new" if before is None else "kept" if before == (c["label"], c["flags"]) else "changed"] += 1
    counts["deleted"] = len(old)
    return counts
