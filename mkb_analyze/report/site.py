"""Where everything of one report stands: the file of each page, the way between pages, and the texts they share."""

import re
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from annotators.records import Attribution, Quotation, Side
from mkb_analyze.analysis import Analysis
from mkb_analyze.labels import Votes
from mkb_analyze.report import texts
from mkb_analyze.report.colours import Colours
from mkb_analyze.tables.groups import direction_name
from mkb_analyze.transfers import Transfer
from runner import digests
from runner.errors import UserError
from runner.study import Study

# (file, name) in reading order; the second part are lists of cases.
FINDINGS = (
    ("index.html", "Overview"),
    ("outcomes.html", "Outcomes"),
    ("standing.html", "Relative standing"),
    ("content.html", "Skill content"),
    ("attribution.html", "Attribution"),
    ("propagation.html", "Propagation"),
    ("raters.html", "Raters"),
    ("robustness.html", "Robustness"),
)
CASES = (
    ("review.html", "Review list"),
    ("transfers.html", "Transfers"),
    ("problems.html", "Problems"),
    ("categories.html", "Claim categories"),
    ("attempts.html", "Attempts"),
    ("quality.html", "Data quality"),
    ("about.html", "About this report"),
)
# A list longer than this stands on several pages: one a model, then by number.
MAX_ROWS = 1000


@dataclass(frozen=True)
class Page:
    path: str
    html: str


@dataclass(frozen=True)
class Blame:
    """The sentence that a transfer's outcome is laid to: its text and the place on the transfer's page."""

    text: str
    place: str
    by: str


@dataclass
class Site:
    """One report's study, analysis and files."""

    study: Study
    data: Analysis
    colours: Colours
    files: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.files = {t.key: f"transfers/{slug(t.key)}.html" for t in self.data.transfers}
        content = self.data.rubric("content")
        self.palette = texts.Palette.of(content.ids, content.none_label, content.role("unsupported"))
        self.text = lru_cache(maxsize=4096)(self._text)

    def problem_file(self, problem: int) -> str:
        return f"problems/p{problem:02d}.html"

    def category_file(self, category: str) -> str:
        return f"categories/{slug(category)}.html"

    def link(self, t: Transfer, text: str | None = None, place: str = "") -> dict[str, str]:
        """A link to a transfer's page, seen from the root."""
        return {"href": self.files[t.key] + (f"#{place}" if place else ""), "text": text or t.key}

    @cached_property
    def by_problem(self) -> dict[int, list[Transfer]]:
        out: dict[int, list[Transfer]] = {}
        for t in self.data.transfers:
            out.setdefault(t.problem, []).append(t)
        return dict(sorted(out.items()))

    @cached_property
    def by_note(self) -> dict[str, list[Transfer]]:
        """The transfers that each note was given to."""
        out: dict[str, list[Transfer]] = {}
        for t in self.data.transfers:
            if t.source_note_sha256 and not t.skipped:
                out.setdefault(t.source_note_sha256, []).append(t)
        return out

    @cached_property
    def by_cell(self) -> dict[tuple, Transfer]:
        return {
            (t.model, t.problem, t.source_dsl, t.target_dsl, t.replicate, t.generation): t for t in self.data.transfers
        }

    def _text(self, folder: str, sha: str | None) -> str | None:
        if sha is None:
            return None
        try:
            return self.study.text(folder, sha)
        except UserError:
            return None

    def note(self, sha: str | None) -> str | None:
        return self.text("notes", sha)

    def records(self, t: Transfer) -> tuple[Attribution, ...]:
        return self.data.labels.transfers[t.key].records if t.key in self.data.labels.transfers else ()

    def blame(self, t: Transfer) -> Blame | None:
        """The note's sentence that raters quote for the transfer, else its first claim without support."""
        for k, r in enumerate(self.records(t)):
            for j, q in enumerate(r.quotations):
                if q.side is Side.NOTE:
                    return Blame(q.text, f"quote-{k}-{j}", f"quoted for {(r.cause or 'the outcome').replace('_', ' ')}")
        note = self.note(t.source_note_sha256)
        for c in self.data.labels.notes.get(t.source_note_sha256 or "", ()) if note else ():
            if c.label in self.palette.unsupported:
                return Blame(note[c.start : c.end], f"claim-{c.start}-{c.end}", f"labelled {c.label.replace('_', ' ')}")
        return None

    def cause(self, t: Transfer) -> Votes | None:
        return self.data.labels.transfers[t.key].cause if t.key in self.data.labels.transfers else None

    def neighbours(self, t: Transfer) -> list[tuple[str, list[dict[str, str]]]]:
        """Where to go from a transfer: the reverse direction, other models, other replicates, each with its outcome."""
        same = self.by_problem[t.problem]

        def named(ts: list[Transfer], name: Any) -> list[dict[str, str]]:
            return [self.link(o, f"{name(o)} ({o.outcome or 'unresolved'})") for o in ts]

        cell = (t.model, t.replicate, t.generation)
        reverse = [
            o
            for o in same
            if (o.model, o.replicate, o.generation) == cell and o.direction == f"{t.target_dsl}2{t.source_dsl}"
        ]
        alike = [o for o in same if o.direction == t.direction and o.generation == t.generation and o is not t]
        return [
            ("reverse direction", named(reverse, direction_name)),
            (
                "other models",
                named([o for o in alike if o.model != t.model and o.replicate == t.replicate], lambda o: o.model),
            ),
            ("other replicates", named([o for o in alike if o.model == t.model], lambda o: f"replicate {o.replicate}")),
        ]


def slug(key: str) -> str:
    """A file name for a key: readable where its parts are plain, unique by a digest, never a path."""
    plain = re.sub(r"[^A-Za-z0-9]+", "-", key).strip("-").lower()[:80]
    return f"{plain}-{digests.of_text(key)[:8]}"


def section_of(q: Quotation) -> str:
    """The place on a transfer's page where a quotation's source stands."""
    return {Side.SOLO_KERNEL: "solo-kernel", Side.CONDITIONED_KERNEL: "conditioned-kernel"}.get(q.side, "verdicts")


def clipped(text: str, limit: int = 300) -> str:
    """One line of at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
