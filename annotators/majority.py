"""What the raters together say: the majority with its doubt, who is undecided, and the matrix for agreement."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from annotators.records import Annotation, Attribution, Fate, Rater
from runner.study import Study


@dataclass(frozen=True)
class Vote:
    """What raters say of one item. `doubt` is the share that differs from the most frequent label.

    `label` is None where nobody labelled or the first place is shared (`tie`); `review` says that a person should look.
    """

    label: str | None
    doubt: float
    tie: bool
    n_raters: int
    counts: Mapping[str, int]

    @property
    def review(self) -> bool:
        return self.n_raters == 0 or self.doubt > 0


def vote(labels: Iterable[str | None]) -> Vote:
    """The majority of some raters' labels; None (unscored) does not vote."""
    counts = Counter(x for x in labels if x is not None)
    n = counts.total()
    if not n:
        return Vote(None, 1.0, False, 0, {})
    ranked = sorted(counts.items(), key=lambda kv: (-kv[1], kv[0]))
    tie = len(ranked) > 1 and ranked[1][1] == ranked[0][1]
    return Vote(None if tie else ranked[0][0], 1.0 - ranked[0][1] / n, tie, n, dict(ranked))


@dataclass(frozen=True)
class Matrix:
    """Labels as statistics of agreement take them: `codes[i, j]` is the index in `levels` of rater j's label of item i,
    -1 where it has none. `clusters[i]` names what item i belongs to (its note or transfer)."""

    codes: np.ndarray
    items: tuple[str, ...]
    raters: tuple[str, ...]
    levels: tuple[str, ...]
    clusters: tuple[str, ...]

    def labels(self) -> np.ndarray:
        """The same as an object array of labels, None where there is none: shape items × raters."""
        table = np.array([*self.levels, None], dtype=object)
        return table[self.codes]

    def votes(self) -> list[Vote]:
        """The vote on each item."""
        return [vote(row) for row in self.labels()]

    def review(self) -> list[str]:
        """The items on which raters split or that nobody labelled, most doubtful first."""
        told = sorted(
            ((v.doubt, name) for v, name in zip(self.votes(), self.items, strict=True) if v.review),
            key=lambda x: (-x[0], x[1]),
        )
        return [name for _, name in told]


def agreement_matrix(study: Study, what: str, levels: Sequence[str], raters: Sequence[str] | None = None) -> Matrix:
    """Items × raters for one thing that is labelled.

    Args:
        what: `content`, `cause`, `adherence`, `fate`, or `content.FLAG` for a flag of a claim.
        levels: every label that counts; others are taken as none.
        raters: names as `seat_name` makes them, in the order wanted; all that the study has where None. Repeats of one
            rater are columns of their own, so a rater's agreement with itself is that of its columns.

    Only the last record of a rater for an item counts.
    """
    cells: dict[str, dict[str, Any]] = {}
    cluster: dict[str, str] = {}
    seen: set[str] = set()
    for name, item, label, of in _labels(study, what):
        seen.add(name)
        cells.setdefault(item, {})[name] = label
        cluster[item] = of
    columns = tuple(raters) if raters is not None else tuple(sorted(seen))
    index = {level: n for n, level in enumerate(levels)}
    items = tuple(sorted(cells))
    codes = np.full((len(items), len(columns)), -1, dtype=np.int32)
    for i, item in enumerate(items):
        for j, name in enumerate(columns):
            codes[i, j] = index.get(cells[item].get(name), -1)
    return Matrix(codes, items, columns, tuple(levels), tuple(cluster[i] for i in items))


def seat_name(rater: Rater) -> str:
    """A rater's name, with its repeat from the second on."""
    return rater.name if rater.repeat == 1 else f"{rater.name}#{rater.repeat}"


def _labels(study: Study, what: str) -> Iterable[tuple[str, str, str | None, str]]:
    """(rater, item, label, cluster) of every record, in file order."""
    kind, _, flag = what.partition(".")
    if kind == "content":
        for record in study.read("annotations", Annotation):
            name = seat_name(record.rater)
            for c in record.claims:
                label = c.label if not flag else None if c.label is None else _spelled(c.flags.get(flag))
                yield name, f"{record.note_sha256}:{c.start}-{c.end}", label, record.note_sha256
    elif kind in ("cause", "adherence"):
        for record in study.read("attributions", Attribution):
            if kind == "adherence" or record.cause_asked:
                yield seat_name(record.rater), record.transfer.key, getattr(record, kind), record.transfer.key
    elif kind == "fate":
        for record in study.read("fates", Fate):
            yield seat_name(record.rater), record.item, record.fate, record.transfer.key
    else:
        raise ValueError(f"{what!r}: content, content.FLAG, cause, adherence or fate is due")


def _spelled(value: Any) -> str | None:
    return None if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def content_labels(study: Study) -> dict[str, dict[tuple[int, int], str | None]]:
    """The majority label of every labelled claim: note -> span -> label (None where tied)."""
    said: dict[str, dict[tuple[int, int], dict[str, str | None]]] = {}
    for record in study.read("annotations", Annotation):
        name = seat_name(record.rater)
        for c in record.claims:
            said.setdefault(record.note_sha256, {}).setdefault((c.start, c.end), {})[name] = c.label
    return {note: {span: vote(by.values()).label for span, by in spans.items()} for note, spans in said.items()}
