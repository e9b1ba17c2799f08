"""What a rater sees of one transfer: its texts by side, long ones cut in the middle by rule, each cut recorded."""

from dataclasses import dataclass

from annotators.records import Side, TransferRef
from runner import digests
from runner.pairing import Triple
from runner.records import Attempt, Submission, Verdict
from runner.study import Study

# Characters of each text that are shown. What is cut is the middle: notes and kernels say what they are about at the
# top, and how it ended at the bottom.
ROOM = {
    "source note": 24_000,
    "target solo kernel": 14_000,
    "target solo submissions": 4_000,
    "conditioned kernel": 14_000,
    "conditioned submissions": 4_000,
    "own note": 12_000,
}
SUBMISSION_KERNELS_ROOM = 18_000
MAX_SUBMISSION_KERNELS = 3
MAX_REMARK_CHARS = 300


@dataclass(frozen=True)
class Source:
    """One text that quotations may come from: whole, as it is stored, and as it is shown."""

    name: str
    side: Side | None  # None: shown, but no source of evidence (what the solo attempt submitted)
    text: str
    shown: str

    @property
    def sha256(self) -> str:
        return digests.of_text(self.text)


@dataclass(frozen=True)
class TransferView:
    """One item of the attribution task. `facts` are short lines on the two attempts; `cuts` say what is not shown."""

    ref: TransferRef
    triple: Triple
    facts: str
    sources: tuple[Source, ...]
    cuts: tuple[str, ...]
    cause_asked: bool = True

    @property
    def key(self) -> str:
        return item_key(self.ref, self.cause_asked)

    def source(self, name: str) -> Source | None:
        """The source of that name; None when the transfer has none."""
        return next((s for s in self.sources if s.name == name), None)

    def of_side(self, *sides: Side) -> tuple[Source, ...]:
        return tuple(s for s in self.sources if s.side in sides)


def item_key(ref: TransferRef, cause_asked: bool) -> str:
    """Names what was asked: the transfer, the digests of what was read, and whether its cause was due."""
    return f"{digests.of_value(ref.line())}:{'cause' if cause_asked else 'adherence'}"


def ref_of(triple: Triple) -> TransferRef:
    """The transfer's name with the digests of what raters read of it."""
    conditioned, solo = triple.conditioned, triple.target_solo
    note = (conditioned.source_note_sha256 if conditioned else None) or (
        triple.source.note_sha256 if triple.source else None
    )
    return TransferRef(
        model=triple.model,
        problem=triple.problem,
        source_dsl=triple.source_dsl,
        target_dsl=triple.target_dsl,
        replicate=triple.replicate,
        generation=triple.generation,
        source_note_sha256=note,
        solo_kernel_sha256=solo.kernel_sha256 if solo else None,
        conditioned_kernel_sha256=conditioned.kernel_sha256 if conditioned else None,
        own_note_sha256=conditioned.note_sha256 if conditioned else None,
    )


def cut_middle(text: str, room: int) -> tuple[str, int]:
    """The text within `room` characters, its middle replaced by a line that says how much; and how much that was."""
    if len(text) <= room:
        return text, 0
    head = room * 3 // 5
    tail = room - head
    n_cut = len(text) - head - tail
    return f"{text[:head]}\n[... {n_cut} characters are not shown ...]\n{text[len(text) - tail :]}", n_cut


def view(study: Study, triple: Triple, cause_asked: bool = True) -> TransferView:
    """Reads a transfer's texts from the study.

    Raises:
        UserError: a text that a record names is missing or was changed.
    """
    ref = ref_of(triple)
    solo, conditioned = triple.target_solo, triple.conditioned
    sources: list[Source] = []
    cuts: list[str] = []

    def add(name: str, side: Side | None, text: str | None, room: int) -> None:
        if not text:
            return
        shown, n_cut = cut_middle(text, room)
        if n_cut:
            cuts.append(f"{name}: {n_cut} of {len(text)} characters cut from the middle")
        sources.append(Source(name, side, text, shown))

    def kernel(sha256: str | None) -> str | None:
        return study.kernel(sha256) if sha256 else None

    add(
        "source note",
        Side.NOTE,
        study.note(ref.source_note_sha256) if ref.source_note_sha256 else None,
        ROOM["source note"],
    )
    add("target solo kernel", Side.SOLO_KERNEL, kernel(ref.solo_kernel_sha256), ROOM["target solo kernel"])
    add("target solo submissions", None, ledger(solo), ROOM["target solo submissions"])
    add(
        "conditioned kernel", Side.CONDITIONED_KERNEL, kernel(ref.conditioned_kernel_sha256), ROOM["conditioned kernel"]
    )
    add("conditioned submissions", Side.SUBMISSION, ledger(conditioned), ROOM["conditioned submissions"])
    chosen = _told_apart(conditioned)
    for submission in chosen:
        add(
            f"conditioned submission {submission.index}",
            Side.SUBMISSION,
            kernel(submission.kernel_sha256),
            SUBMISSION_KERNELS_ROOM // len(chosen),
        )
    add("own note", Side.OWN_NOTE, study.note(ref.own_note_sha256) if ref.own_note_sha256 else None, ROOM["own note"])
    facts = "\n".join(
        (
            f"problem: {triple.problem_name or triple.problem}",
            f"source DSL: {triple.source_dsl}",
            f"target DSL: {triple.target_dsl}",
            f"source attempt: {verdict_line(triple.source)}",
            f"target solo attempt: {verdict_line(solo)}",
            f"conditioned attempt: {verdict_line(conditioned)}",
        )
    )
    return TransferView(ref, triple, facts, tuple(sources), tuple(cuts), cause_asked)


def verdict_line(attempt: Attempt | None) -> str:
    """How an attempt ended, in one line."""
    if attempt is None:
        return "missing"
    timed_out = ", time ran out" if attempt.timed_out else ""
    return f"{_verdict(attempt.verdict)}{timed_out}, {len(attempt.submissions)} submissions"


def ledger(attempt: Attempt | None) -> str:
    """An attempt's submissions, a line each: when, how it was graded, what was remarked."""
    if attempt is None or not attempt.submissions:
        return ""
    return "\n".join(
        f"{s.index}. {f'{s.at_s:.0f} s, ' if s.at_s is not None else ''}{_verdict(s.verdict)}"
        f"{'' if s.counted else ' (not counted)'}{f'; remark: {_one_line(s.remark)}' if s.remark else ''}"
        for s in attempt.submissions
    )


def _verdict(verdict: Verdict | None) -> str:
    if verdict is None:
        return "no verdict"
    if verdict.passed:
        time = (
            f" ({verdict.kernel_ms:.4g} ms against {verdict.reference_ms:.4g} ms)"
            if verdict.kernel_ms is not None and verdict.reference_ms is not None
            else ""
        )
        return f"passed, speedup {verdict.speedup:.3f}{time}"
    return f"failed at {verdict.stage.value}: {_one_line(verdict.reason or '')}"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:MAX_REMARK_CHARS]


def _told_apart(attempt: Attempt | None) -> list[Submission]:
    """The submissions whose kernels are shown: first, best and last, each once, the final kernel left out."""
    if attempt is None:
        return []
    having = [s for s in attempt.submissions if s.kernel_sha256 and s.kernel_sha256 != attempt.kernel_sha256]
    if not having:
        return []
    best = max(having, key=lambda s: (s.verdict.speedup if s.verdict and s.verdict.speedup else 0.0, -s.index))
    out: dict[str, Submission] = {}
    for submission in (having[0], best, having[-1]):
        out.setdefault(submission.kernel_sha256, submission)
    return sorted(out.values(), key=lambda s: s.index)[:MAX_SUBMISSION_KERNELS]
