"""Gathers the training claims: written notes, labelled notes, and labels given by people or models."""

import bisect
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from annotators.claims import Claim, split
from annotators.embedded import authored
from runner import digests
from runner.errors import UserError

GOLD = Path(__file__).resolve().parents[2] / "tests" / "data" / "notes"


@dataclass
class Corpus:
    """Notes split into claims, with one entry a claim in every list; an unknown label is None."""

    notes: list[list[Claim]] = field(default_factory=list)
    category: list[str | None] = field(default_factory=list)
    evidence: list[str | None] = field(default_factory=list)
    dsl_specific: list[bool | None] = field(default_factory=list)
    # the labelled note itself, or the one that is followed: "" for none, "*" for several
    group: list[str] = field(default_factory=list)
    weight: list[float] = field(default_factory=list)

    def add(self, claims: list[Claim], labels: Sequence[tuple | None], group: str, weight: float) -> None:
        self.notes.append(claims)
        for label in labels:
            category, evidence, dsl_specific = label if label is not None else (None, None, None)
            self.category.append(category)
            self.evidence.append(evidence)
            self.dsl_specific.append(dsl_specific)
            self.group.append(group)
            self.weight.append(weight)

    def __len__(self) -> int:
        return len(self.category)

    def sha256(self) -> str:
        """Digest of every text and label, in order."""
        texts = (c.text for claims in self.notes for c in claims)
        return digests.of_value(
            [[t, c, e, d] for t, c, e, d in zip(texts, self.category, self.evidence, self.dsl_specific, strict=True)]
        )


def written(n_wordings: int, seed: int = 0) -> Corpus:
    """The hand-written notes, each in `n_wordings` wordings; together they weigh as one wording would."""
    corpus, draw = Corpus(), np.random.default_rng(seed)
    for _, follows, source in authored.sources():
        for _ in range(n_wordings):
            text, labels = authored.write(source, draw)
            starts = [label.start for label in labels]
            found: list[tuple | None] = []
            claims = split(text)
            for claim in claims:
                at = bisect.bisect_right(starts, claim.start + 3) - 1
                label = labels[at] if at >= 0 and claim.start < labels[at].end else None
                found.append((label.category, label.evidence, label.dsl_specific) if label else None)
            group = "*" if follows == "*" else f"{follows}.md" if follows else ""
            corpus.add(claims, found, group, 1 / n_wordings)
    return corpus


def labelled(folder: Path = GOLD, weight: float = 1.0) -> Corpus:
    """Notes with reference labels: `gold.jsonl` beside a folder `notes` (see tests/data/notes)."""
    rows: dict[str, list[dict]] = {}
    n = 0
    try:
        for n, line in enumerate((folder / "gold.jsonl").read_text(encoding="utf-8").splitlines(), 1):  # noqa: B007
            row = json.loads(line)
            rows.setdefault(row["note"], []).append(row)
    except OSError as error:
        raise UserError(f"{folder}: no gold.jsonl ({error.strerror}); name a folder of labelled notes") from None
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{folder / 'gold.jsonl'} line {n}: no labelled claim; mend the line") from None
    corpus = Corpus()
    for note, labels in sorted(rows.items()):
        text = (folder / "notes" / note).read_bytes().decode("utf-8")
        claims = split(text)
        corpus.add(claims, match(claims, labels), note, weight)
    return corpus


def match(claims: Sequence[Claim], labels: Iterable[dict]) -> list[tuple | None]:
    """The label of each claim whose span is a labelled one up to three characters at either end."""
    by_start = sorted(labels, key=lambda r: r["start"])
    starts = [r["start"] for r in by_start]
    out: list[tuple | None] = []
    for claim in claims:
        at = bisect.bisect_left(starts, claim.start - 3)
        row = by_start[at] if at < len(starts) else None
        near = row is not None and abs(row["start"] - claim.start) <= 3 and abs(row["end"] - claim.end) <= 3
        out.append((row["category"], row.get("evidence"), row.get("dsl_specific")) if near else None)
    return out


def joined(*parts: Corpus) -> Corpus:
    """Several corpora as one, in order."""
    out = Corpus()
    for part in parts:
        out.notes += part.notes
        for name in ("category", "evidence", "dsl_specific", "group", "weight"):
            getattr(out, name).extend(getattr(part, name))
    return out
