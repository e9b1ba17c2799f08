"""The rater that needs no network: labels the claims of a note with the model that the repository ships."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from annotators.claims import Claim
from annotators.embedded import model as models

BATCH = 64  # notes scored together; bounds memory, changes no label


class Guess(NamedTuple):
    """One claim's labels. `label` is None when the rater abstains; `probability` is that of its likeliest label."""

    label: str | None
    probability: float
    evidence: str
    dsl_specific: bool
    likeliest: str


@cache
def _shipped() -> models.Model:
    return models.load(models.HOME)


class EmbeddedRater:
    """Labels claims by a linear model over their wording and context; the same note gives the same labels.

    It is a baseline and named as such in every table. `threshold` replaces the model's own: a claim whose likeliest
    label is less probable is left without one.
    """

    name = "embedded"

    def __init__(self, path: str | Path | None = None, threshold: float | None = None):
        self.model = _shipped() if path is None else models.load(Path(path))
        self.threshold = self.model.threshold if threshold is None else threshold

    def identity(self) -> dict[str, Any]:
        """What tells this rater from another: digests of the model and of what it was trained on, and the threshold."""
        return {
            "kind": "embedded",
            "name": self.name,
            "model": self.model.sha256,
            "threshold": self.threshold,
            "training_sha256": self.model.facts.get("training_sha256"),
        }

    @property
    def labels(self) -> tuple[str, ...]:
        """Every label that the model can give, the none label included."""
        return self.model.head("category").answers

    def label_claims(self, note_text: str, claims: Sequence[Claim]) -> list[Guess]:
        """One guess a claim, in order. `claims` are those of the whole note: context counts."""
        return next(self.label_notes([(note_text, claims)]))

    def label_notes(self, notes: Iterable[tuple[str, Sequence[Claim]]]) -> Iterator[list[Guess]]:
        """The guesses of many notes, one list a note, streamed."""
        some: list[Sequence[Claim]] = []
        for _, claims in notes:
            some.append(claims)
            if len(some) == BATCH:
                yield from self._score(some)
                some = []
        if some:
            yield from self._score(some)

    def _score(self, notes: list[Sequence[Claim]]) -> Iterator[list[Guess]]:
        p = self.model.probabilities(notes)
        best = {name: rows.argmax(axis=1) for name, rows in p.items()}
        answers = {name: self.model.head(name).answers for name in p}
        row = 0
        for claims in notes:
            out = []
            for _ in claims:
                label = answers["category"][best["category"][row]]
                sure = float(p["category"][row, best["category"][row]])
                out.append(
                    Guess(
                        label if sure >= self.threshold else None,
                        sure,
                        answers["evidence"][best["evidence"][row]],
                        answers["dsl_specific"][best["dsl_specific"][row]] == "true",
                        label,
                    )
                )
                row += 1
            yield out
