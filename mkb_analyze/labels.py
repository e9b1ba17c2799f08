"""Which labels count: one rater's, the panel's majority or the settled gold, with what each rater said beside it."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from annotators.records import Adjudication, Annotation, Attribution, Fate
from runner.errors import UserError
from runner.study import Study


@dataclass(frozen=True)
class Votes:
    """What the raters said of one item: `label` is the one that counts, None where there is none or a tie.

    `doubt` is the share of raters that differ from the most frequent label; `by_rater` maps a rater's name to its
    label (None where unscored).
    """

    label: str | None
    doubt: float
    by_rater: dict[str, str | None] = field(default_factory=dict)

    @property
    def n_raters(self) -> int:
        return sum(v is not None for v in self.by_rater.values())


@dataclass(frozen=True)
class LabelledClaim:
    """One claim of a note, its votes and the flags that go with the label that counts."""

    start: int
    end: int
    votes: Votes
    flags: dict[str, Any]
    probability: float | None = None

    @property
    def label(self) -> str | None:
        return self.votes.label


@dataclass(frozen=True)
class LabelledTransfer:
    """Cause, second cause and adherence of one transfer, with the attribution records they came from."""

    cause: Votes
    adherence: Votes
    records: tuple[Attribution, ...]


@dataclass(frozen=True)
class Labels:
    """Every label of a study that counts under one choice (`panel`, `gold` or `rater:NAME`).

    `usage` sums what each (rater, task) took, whichever labels count: records, unscored ones and the fields of `Usage`
    that were measured (a field that no record measured is absent).
    """

    which: str
    notes: dict[str, tuple[LabelledClaim, ...]]
    transfers: dict[str, LabelledTransfer]
    fates: dict[tuple[str, int, int], tuple[Votes, tuple[Fate, ...]]]
    raters: tuple[str, ...]
    n_unscored: Counter
    rubrics: dict[str, str]
    usage: dict[tuple[str, str], Counter] = field(default_factory=dict)

    @cached_property
    def fates_by_transfer(self) -> dict[str, list[tuple[Votes, tuple[Fate, ...]]]]:
        """The traced claims of each transfer, in the order of their spans."""
        out: dict[str, list[tuple[Votes, tuple[Fate, ...]]]] = {}
        for (key, _, _), value in sorted(self.fates.items(), key=lambda kv: kv[0]):
            out.setdefault(key, []).append(value)
        return out

    def categories(self, note_sha256: str | None) -> frozenset[str]:
        """The labels that any claim of the note carries; empty for a note that was not annotated."""
        return self._categories.get(note_sha256 or "", frozenset())

    @cached_property
    def _categories(self) -> dict[str, frozenset[str]]:
        return {sha: frozenset(c.label for c in cs if c.label is not None) for sha, cs in self.notes.items()}


def vote(by_rater: dict[str, str | None]) -> Votes:
    """The most frequent label; a tie has no winner and a doubt of its full split."""
    counts = Counter(v for v in by_rater.values() if v is not None)
    if not counts:
        return Votes(None, 1.0, by_rater)
    ranked = counts.most_common()
    top, n_top = ranked[0]
    tied = len(ranked) > 1 and ranked[1][1] == n_top
    return Votes(None if tied else top, 1.0 - n_top / counts.total(), by_rater)


def load(study: Study, which: str = "panel") -> Labels:
    """Read a study's labels.

    Args:
        which: `panel` (majority of all raters, a person's settled label first), `gold` (settled labels only) or
            `rater:NAME` (one rater alone).

    Raises:
        UserError: an unknown choice, or a rater that the study does not have.
    """
    if which not in ("panel", "gold") and not which.startswith("rater:"):
        raise UserError(f"--labels {which}: panel, gold or rater:NAME is due")
    only = which.removeprefix("rater:") if which.startswith("rater:") else None
    seen: set[str] = set()
    unscored: Counter = Counter()
    rubrics: dict[str, str] = {}
    usage: dict[tuple[str, str], Counter] = {}

    def keep(records: Iterable[Any]) -> Iterator[tuple[str, Any]]:
        for record in records:
            name = rater_name(record.rater)
            seen.add(name)
            _add_usage(usage.setdefault((name, record.rater.rubric_id), Counter()), record)
            rubrics[record.rater.rubric_id] = record.rater.rubric_sha256
            if which != "gold" and (only is None or only in (name, record.rater.name)):
                yield name, record

    notes = _notes(keep(study.read("annotations", Annotation)), unscored)
    transfers = _transfers(keep(study.read("attributions", Attribution)), unscored)
    fates = _fates(keep(study.read("fates", Fate)), unscored)
    if only is None:
        _settle(study, notes, transfers, fates, rubrics)
    elif not any(only == n or n.startswith(only) for n in seen):
        raise UserError(f"--labels {which}: no such rater in this study; it has {', '.join(sorted(seen)) or 'none'}")
    return Labels(which, notes, transfers, fates, tuple(sorted(seen)), unscored, rubrics, usage)


def _add_usage(total: Counter, record: Any) -> None:
    total["n_records"] += 1
    total["n_unscored"] += record.unscored is not None
    if record.usage is not None:
        for name in type(record.usage).model_fields:
            value = getattr(record.usage, name)
            if value is not None:
                total[name] += value


def rater_name(rater: Any) -> str:
    """The rater's name for people: as the user wrote it, with the repeat where there is more than one."""
    return rater.name if rater.repeat == 1 else f"{rater.name}#{rater.repeat}"


def _notes(pairs: Iterable[tuple[str, Annotation]], unscored: Counter) -> dict[str, tuple[LabelledClaim, ...]]:
    # The last record of a rater counts: an annotation that was asked again replaces the one before.
    latest: dict[tuple[str, str], Annotation] = {(r.note_sha256, name): r for name, r in pairs}
    spans: dict[str, dict[tuple[int, int], dict[str, Any]]] = {}
    for (sha, name), record in latest.items():
        if record.unscored:
            unscored[_reason(record.unscored)] += 1
        for claim in record.claims:
            if claim.unscored:
                unscored[_reason(claim.unscored)] += 1
            spans.setdefault(sha, {}).setdefault((claim.start, claim.end), {})[name] = claim
    return {sha: tuple(_claim(span, said) for span, said in sorted(by_span.items())) for sha, by_span in spans.items()}


def _claim(span: tuple[int, int], said: dict[str, Any]) -> LabelledClaim:
    votes = vote({name: c.label for name, c in said.items()})
    chosen = [c for c in said.values() if c.label is not None and c.label == votes.label]
    flags = {
        key: Counter(str(c.flags[key]) for c in chosen if key in c.flags).most_common(1)[0][0]
        for key in sorted({k for c in chosen for k in c.flags})
    }
    known = [c.probability for c in chosen if c.probability is not None]
    return LabelledClaim(*span, votes, flags, sum(known) / len(known) if known else None)


def _transfers(pairs: Iterable[tuple[str, Attribution]], unscored: Counter) -> dict[str, LabelledTransfer]:
    latest: dict[str, dict[str, Attribution]] = {}
    for name, record in pairs:
        latest.setdefault(record.transfer.key, {})[name] = record
    out = {}
    for key, said in latest.items():
        for record in said.values():
            if record.unscored:
                unscored[_reason(record.unscored)] += 1
        out[key] = LabelledTransfer(
            vote({n: r.cause for n, r in said.items()}),
            vote({n: r.adherence for n, r in said.items()}),
            tuple(said.values()),
        )
    return out


def _fates(pairs: Iterable[tuple[str, Fate]], unscored: Counter) -> dict:
    latest: dict[tuple[str, int, int], dict[str, Fate]] = {}
    for name, record in pairs:
        latest.setdefault((record.transfer.key, record.start, record.end), {})[name] = record
    for said in latest.values():
        for record in said.values():
            if record.unscored:
                unscored[_reason(record.unscored)] += 1
    return {key: (vote({n: r.fate for n, r in said.items()}), tuple(said.values())) for key, said in latest.items()}


def _settle(study: Study, notes: dict, transfers: dict, fates: dict, rubrics: dict[str, str]) -> None:
    """Put settled decisions in the place of the panel's; a decision under another rubric version is left out."""
    for record in study.read("adjudications", Adjudication):
        if not record.gold or rubrics.get(record.rubric_id, record.rubric_sha256) != record.rubric_sha256:
            continue
        who = {f"person:{record.person}": None}
        decision = record.decision
        if record.task == "content":
            old = {(c.start, c.end): c for c in notes.get(record.item, ())}
            notes[record.item] = tuple(
                LabelledClaim(
                    c["start"],
                    c["end"],
                    Votes(
                        c.get("label"),
                        0.0,
                        {
                            **(old[s].votes.by_rater if (s := (c["start"], c["end"])) in old else {}),
                            **dict.fromkeys(who, c.get("label")),
                        },
                    ),
                    {k: str(v) for k, v in (c.get("flags") or {}).items()},
                )
                for c in sorted(decision.get("claims", ()), key=lambda c: c["start"])
            )
        elif record.task == "attribution":
            old_t = transfers.get(record.item)
            transfers[record.item] = LabelledTransfer(
                Votes(
                    decision.get("cause"),
                    0.0,
                    {**(old_t.cause.by_rater if old_t else {}), **dict.fromkeys(who, decision.get("cause"))},
                ),
                Votes(
                    decision.get("adherence"),
                    0.0,
                    {**(old_t.adherence.by_rater if old_t else {}), **dict.fromkeys(who, decision.get("adherence"))},
                ),
                old_t.records if old_t else (),
            )
        else:
            transfer, _, span = record.item.rpartition(":")
            start, _, end = span.partition("-")
            key = (transfer, int(start), int(end))
            old_f = fates.get(key)
            fates[key] = (
                Votes(
                    decision.get("fate"),
                    0.0,
                    {**(old_f[0].by_rater if old_f else {}), **dict.fromkeys(who, decision.get("fate"))},
                ),
                old_f[1] if old_f else (),
            )


def _reason(text: str) -> str:
    """The kind of an unscored answer: its reason up to the first colon."""
    return text.split(":", 1)[0].strip()[:80]
