"""What a study has for people to judge: items with the panel's reading, its doubt and its weight in the result."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from annotators import claims, majority, panel, views
from annotators.records import Annotation, Attribution, Fate
from annotators.tasks import fate
from runner import digests
from runner.pairing import Triple
from runner.study import Study


@dataclass(frozen=True)
class Item:
    """One thing to judge. `item` names it as an adjudication does; `said` is the panel's decision, empty where nobody
    labelled; `doubt` is 0 where all raters agree; `load` reads the texts that a person is shown, by field."""

    task: str
    item: str
    content: str  # names what was read by digest: a changed text is another item
    said: dict[str, Any]
    doubt: float
    load: Callable[[], dict[str, str]] = field(compare=False, repr=False)
    source: str = ""  # the note that the item is about
    weight: float = 0.0
    harmed: bool = False

    def external_id(self, study_id: str, reviewer: str, rubric_sha256: str, trap: bool = False) -> str:
        """32 hex digits that are the same for the same question to the same person, and no other.

        A trap is a question of its own: the person may have answered the item before it was settled.
        """
        names = [study_id, self.task, self.item, self.content, reviewer, rubric_sha256]
        return digests.of_value(names + ["trap"] * trap)[:32]


def share(seed: str, *names: str) -> float:
    """A number in [0, 1) that depends on the names alone: who is drawn does not change when others come or go."""
    return (
        int.from_bytes(hashlib.sha256("\0".join((seed, *names)).encode("utf-8", "surrogatepass")).digest()[:7], "big")
        / 2**56
    )


def items(study: Study, task: str) -> list[Item]:
    """The items of `content`, `attribution` or `fate`, in order of name."""
    return sorted({"content": _content, "attribution": _attribution, "fate": _fate}[task](study), key=lambda i: i.item)


def _content(study: Study) -> Iterator[Item]:
    said: dict[str, dict[tuple[int, int], dict[str, Any]]] = {}
    latest: dict[tuple[str, str], Annotation] = {
        (r.note_sha256, majority.seat_name(r.rater)): r for r in study.read("annotations", Annotation)
    }
    for (sha, name), record in latest.items():
        for c in record.claims:
            said.setdefault(sha, {}).setdefault((c.start, c.end), {})[name] = c
    for sha in panel.note_digests(study):
        regions, doubt = [], 0.0
        for (start, end), by in sorted(said.get(sha, {}).items()):
            found = majority.vote(c.label for c in by.values())
            doubt = max(doubt, found.doubt)
            if not found.counts:
                continue
            top = next(iter(found.counts))  # of a tie, the first by name: something must be shown, and the doubt is
            chosen = [c for c in by.values() if c.label == top]
            flags = {
                k: _spelled(Counter(_spelled(c.flags[k]) for c in chosen if k in c.flags).most_common(1)[0][0])
                for k in sorted({k for c in chosen for k in c.flags})
            }
            regions.append({"start": start, "end": end, "label": top, "flags": flags})
        yield Item(
            "content",
            sha,
            sha,
            {"claims": regions} if regions else {},
            doubt if sha in said else 1.0,
            lambda sha=sha: {"text": study.note(sha)},
            sha,
        )


def _spelled(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _attribution(study: Study) -> Iterator[Item]:
    by: dict[str, dict[str, Attribution]] = {}
    for record in study.read("attributions", Attribution):
        by.setdefault(record.transfer.key, {})[majority.seat_name(record.rater)] = record
    for triple in panel.attributable(study):
        ref = views.ref_of(triple)
        said, doubts = {}, []
        for name in ("cause", "second_cause", "adherence"):
            records = [r for r in by.get(ref.key, {}).values() if name == "adherence" or r.cause_asked]
            found = majority.vote(getattr(r, name) for r in records)
            if found.counts:
                said[name] = next(iter(found.counts))
                if name != "second_cause":
                    doubts.append(found.doubt)
        if said.get("second_cause") == said.get("cause"):
            said.pop("second_cause", None)
        yield Item(
            "attribution",
            ref.key,
            views.item_key(ref, True),
            said,
            max(doubts, default=1.0),
            lambda t=triple: _texts(study, t),
            ref.source_note_sha256 or "",
        )


def _texts(study: Study, triple: Triple) -> dict[str, str]:
    seen = views.view(study, triple)

    def shown(name: str) -> str:
        source = seen.source(name)
        return source.shown if source else "(none)"

    tries = [shown("conditioned submissions")]
    tries += [f"\n=== {s.name} ===\n{s.shown}" for s in seen.sources if s.name.startswith("conditioned submission ")]
    # How the two attempts ended stands side by side below.
    facts = [x for x in seen.facts.split("\n") if not x.startswith(("target solo attempt:", "conditioned attempt:"))]
    return {
        "facts": "\n".join((*facts, *seen.cuts)),
        "solo_verdict": views.verdict_line(triple.target_solo),
        "conditioned_verdict": views.verdict_line(triple.conditioned),
        "note": shown("source note"),
        "solo": shown("target solo kernel"),
        "conditioned": shown("conditioned kernel"),
        "solo_submissions": shown("target solo submissions"),
        "submissions": "\n".join(tries),
        "own_note": shown("own note"),
    }


def _fate(study: Study) -> Iterator[Item]:
    by: dict[str, dict[str, Fate]] = {}
    first: dict[str, Fate] = {}
    for record in study.read("fates", Fate):
        by.setdefault(record.item, {})[majority.seat_name(record.rater)] = record
        first[record.item] = record
    for key, records in by.items():
        found = majority.vote(r.fate for r in records.values())
        said = {"fate": next(iter(found.counts))} if found.counts else {}
        r = first[key]
        yield Item(
            "fate",
            key,
            fate.item_key(r.transfer, r.note_sha256, r.start, r.end, r.next_note_sha256),
            said,
            found.doubt,
            lambda r=r: _claim(study, r),
            r.note_sha256,
        )


def _claim(study: Study, record: Fate) -> dict[str, str]:
    claim, following = study.note(record.note_sha256)[record.start : record.end], study.note(record.next_note_sha256)
    whole = claims.Claim(record.start, record.end, claim, "sentence")
    near = "\n".join(f"- {c.text}" for c, _ in fate.nearest(whole, claims.split(following)))
    return {"claim": claim, "candidates": near or "(none)", "next_note": following}
