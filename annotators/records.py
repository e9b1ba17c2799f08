"""What a rater or a person leaves behind: annotations, attributions, fates and adjudications, frozen."""

from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from runner import digests
from runner.records import Record, Seconds, Sha256, Usage, UtcTime

Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class RaterKind(StrEnum):
    MODEL = "model"
    EMBEDDED = "embedded"
    FILE = "file"
    PERSON = "person"


class Rater(Record):
    """Who labelled, and with what: two labels are of one rater only when all of this is equal.

    `name` is what the user wrote (`embedded`, `openai:gpt-x`, `file:labels.jsonl`, `person:ana`); `repeat` counts
    from 1; `settings` holds temperature, seed, structured-output mode and the like.
    """

    kind: RaterKind
    name: Annotated[str, Field(min_length=1, max_length=300)]
    model: str | None = None
    rubric_id: str
    rubric_sha256: Sha256
    prompt_sha256: Sha256 | None = None
    repeat: Annotated[int, Field(ge=1)] = 1
    settings: dict[str, Any] = Field(default_factory=dict)

    @property
    def key(self) -> str:
        """Digest of the identity: what resuming compares. `settings["found"]` (what a server can do) is left out."""
        told = self.line()
        told["settings"] = {k: v for k, v in self.settings.items() if k != "found"}
        return digests.of_value(told)


class ClaimLabel(Record):
    """One claim of one note with one rater's label; `label` is None when unscored, and then `unscored` says why.

    `start`, `end` are code-point offsets into the note. `flags` holds `evidence` and `dsl_specific`.
    """

    start: Annotated[int, Field(ge=0)]
    end: Annotated[int, Field(ge=1)]
    label: str | None = None
    flags: dict[str, Any] = Field(default_factory=dict)
    probability: Probability | None = None
    rationale: str | None = None
    unscored: str | None = None

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.end <= self.start:
            raise ValueError(f"span {self.start}..{self.end} is empty or reversed")
        if (self.label is None) != (self.unscored is not None):
            raise ValueError("a claim has either a label or the reason why it has none")
        return self


class Annotation(Record):
    """One rater's reading of one whole note (a line of `annotations.jsonl`); `unscored` when nothing could be read."""

    note_sha256: Sha256
    rater: Rater
    claims: tuple[ClaimLabel, ...] = ()
    unscored: str | None = None
    raw: str | None = None
    usage: Usage | None = None
    at: UtcTime | None = None

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.unscored is not None and self.claims:
            raise ValueError("an unscored annotation has no claims")
        spans = [(c.start, c.end) for c in self.claims]
        if spans != sorted(spans) or any(a[1] > b[0] for a, b in zip(spans, spans[1:], strict=False)):
            raise ValueError("claims stand in order and do not overlap")
        return self

    @property
    def item(self) -> str:
        return self.note_sha256


class Side(StrEnum):
    """Where a quotation was taken from."""

    NOTE = "note"
    SOLO_KERNEL = "solo_kernel"
    CONDITIONED_KERNEL = "conditioned_kernel"
    SUBMISSION = "submission"
    OWN_NOTE = "own_note"


class Quotation(Record):
    """A stretch of a source, letter for letter: `text` is what stands at `start`..`end` of it (code points)."""

    side: Side
    sha256: Sha256
    start: Annotated[int, Field(ge=0)]
    end: Annotated[int, Field(ge=1)]
    text: Annotated[str, Field(min_length=1)]


class TransferRef(Record):
    """Names one transfer by its cell, replicate and conditioned generation, and what was read of it by digest."""

    model: str
    problem: int
    source_dsl: str
    target_dsl: str
    replicate: int = 1
    generation: int = 1
    source_note_sha256: Sha256 | None = None
    solo_kernel_sha256: Sha256 | None = None
    conditioned_kernel_sha256: Sha256 | None = None
    own_note_sha256: Sha256 | None = None

    @property
    def key(self) -> str:
        tail = f"_g{self.generation}" if self.generation > 1 else ""
        return f"{self.model}/p{self.problem:02d}_r{self.replicate}_{self.source_dsl}2{self.target_dsl}{tail}"


class Attribution(Record):
    """One rater's cause and adherence for one transfer (a line of `attributions.jsonl`).

    Where `cause_asked` is false only the adherence was due: the transfer was not harmed.
    """

    transfer: TransferRef
    rater: Rater
    cause: str | None = None
    second_cause: str | None = None
    adherence: str | None = None
    note_unused: bool = False
    cause_asked: bool = True
    quotations: tuple[Quotation, ...] = ()
    rationale: str | None = None
    cuts: tuple[str, ...] = ()
    unscored: str | None = None
    raw: str | None = None
    usage: Usage | None = None
    at: UtcTime | None = None

    @model_validator(mode="after")
    def _possible(self) -> Self:
        scored = self.cause is not None or self.adherence is not None
        if scored == (self.unscored is not None):
            raise ValueError("an attribution has either labels or the reason why it has none")
        if self.second_cause is not None and self.second_cause == self.cause:
            raise ValueError("second_cause repeats cause")
        return self

    @property
    def item(self) -> str:
        return self.transfer.key


class Fate(Record):
    """One rater's fate of one unsupported claim of a source note in the conditioned attempt's own note."""

    transfer: TransferRef
    note_sha256: Sha256
    start: Annotated[int, Field(ge=0)]
    end: Annotated[int, Field(ge=1)]
    next_note_sha256: Sha256
    rater: Rater
    fate: str | None = None
    quotation: Quotation | None = None
    similarity: float | None = None
    unscored: str | None = None
    raw: str | None = None
    usage: Usage | None = None
    at: UtcTime | None = None

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if (self.fate is None) != (self.unscored is not None):
            raise ValueError("a fate has either a label or the reason why it has none")
        return self

    @property
    def item(self) -> str:
        return f"{self.transfer.key}:{self.start}-{self.end}"


class Adjudication(Record):
    """A person's decision on one item (a line of `adjudications.jsonl`).

    `task` is content, attribution or fate; `item` names what was judged (note digest, transfer key, or claim item);
    `decision` holds the labels in the same fields as the rater records (for content: `claims`). `gold` marks the
    settled decision, `how` says how it was settled. `reviewer` is the name whose tasks were answered, `trap` marks an
    item whose answer was settled before, `withdrawn` an answer that its person took back: its earlier lines stand no
    more. Of several lines of one answer the last counts (`annotators.review.answers.standing`).
    """

    task: Annotated[str, Field(pattern=r"^(content|attribution|fate)$")]
    item: str
    person: Annotated[str, Field(min_length=1)]
    rubric_id: str
    rubric_sha256: Sha256
    decision: dict[str, Any]
    gold: bool = False
    origin: dict[str, int] = Field(default_factory=dict)
    how: str | None = None
    blind: bool | None = None
    trap: bool = False
    reviewer: str | None = None
    withdrawn: bool = False
    lead_time_s: Seconds | None = None
    comment: str | None = None
    label_studio: dict[str, int | str] = Field(default_factory=dict)
    at: UtcTime | None = None
