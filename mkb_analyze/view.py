"""A study in a notebook: tidy frames, tables and figures by name, each made when first asked for."""

from collections.abc import Iterator
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from annotators.records import Adjudication, Annotation, Attribution, Fate
from mkb_analyze import transfers as tr
from mkb_analyze.analysis import Analysis, analyse
from mkb_analyze.pictures import FIGURES, Picture, draw
from mkb_analyze.table import Table, frame_of
from mkb_analyze.transfers import Settings
from runner.errors import UserError
from runner.records import Attempt
from runner.study import Study

_CLAIM = ["note_sha256", "start", "end", "text", "label", "doubt", "n_raters", "probability"]
_ATTEMPT = (
    *("attempt", "model", "problem", "problem_name", "family", "dsl", "arm", "source_dsl", "replicate"),
    *("generation", "state", "reason", "passed", "stage", "speedup", "kernel_ms", "reference_ms", "device"),
    *("n_submissions", "timed_out", "n_input_tokens", "n_output_tokens", "cost_usd", "agent_s"),
    *("kernel_sha256", "note_sha256", "source_note_sha256", "at"),
)
_LABEL = ["task", "item", "start", "end", "question", "rater", "repeat", "label", "unscored", "rubric_sha256"]


class View:
    """One study read with one choice of settings and labels; nothing of it is ever written.

    Args:
        path: the study's folder.
        labels: which labels count: `panel`, `gold` or `rater:NAME`.
        seed, resamples: of the bootstrap intervals.
        calibration: a file of `mkb-analyze calibrate`, for the table `corrected`.
        settings: floor, cap, band, tier_edge, baseline; what is not given is the study's own, else the default.

    Raises:
        UserError: there is no study, or a setting that cannot be.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        labels: str = "panel",
        seed: int = 0,
        resamples: int = 2000,
        calibration: str | Path | None = None,
        **settings: Any,
    ):
        unknown = set(settings) - set(Settings.__dataclass_fields__)
        if unknown:
            known = ", ".join(Settings.__dataclass_fields__)
            raise UserError(f"{', '.join(sorted(unknown))}: no such setting; there are {known}")
        self.study = Study(path)
        self.settings = Settings.of(self.study.manifest, **settings)
        self._which, self._seed, self._resamples = labels, seed, resamples
        self._calibration = calibration

    @cached_property
    def analysis(self) -> Analysis:
        """The analysis behind every table and figure."""
        from mkb_analyze.verbs.numbers import calibration_of

        return analyse(
            self.study,
            settings=self.settings,
            which=self._which,
            seed=self._seed,
            n_resamples=self._resamples,
            calibration=calibration_of(self._calibration),
        )

    def transfers(self) -> pd.DataFrame:
        """One row a transfer, resolved or not: names, tiers, speedups, paired ratio, outcome, digests."""
        return tr.frame(self.analysis.transfers)

    def attempts(self) -> pd.DataFrame:
        """One row an attempt: names, verdict, speedup, times in ms, tokens, digests."""
        return frame_of(_ATTEMPT, [_attempt(a) for a in self.analysis.attempts])

    def claims(self) -> pd.DataFrame:
        """One row a claim of an annotated note: its text, the label that counts, doubt and the rubric's flags."""
        found = [(sha, c) for sha, claims in self.analysis.labels.notes.items() for c in claims]
        texts = {sha: self.study.note(sha) for sha, _ in found}
        flags = sorted({name for _, c in found for name in c.flags})
        rows = [
            (sha, c.start, c.end, texts[sha][c.start : c.end], c.label, c.votes.doubt, c.votes.n_raters, c.probability)
            + tuple(c.flags.get(name) for name in flags)
            for sha, c in found
        ]
        return frame_of([*_CLAIM, *flags], rows)

    def labels(self) -> pd.DataFrame:
        """One row a rater's answer: task, item, question (category, cause, adherence, fate), rater, label or why none.

        `item` is the note's digest or the transfer's key; `start` and `end` are code points of a claim.
        """
        return frame_of(_LABEL, list(_labels(self.study)))

    def table(self, name: str) -> Table:
        """One table of the report; in a notebook it shows itself, `.frame()` gives its numbers.

        Raises:
            UserError: no table of that name; the message lists them.
        """
        return self.analysis.table(name)

    def tables(self) -> tuple[str, ...]:
        """The names of all tables."""
        return tuple(t.name for t in self.analysis.tables())

    def figure(self, name: str, style: str = "screen") -> Picture:
        """One figure of the report; in a notebook it shows itself, `.save(path)` writes .svg, .png or .pdf.

        Raises:
            UserError: no figure of that name, or nothing to draw.
        """
        return draw(self.analysis, name, style)

    def figures(self) -> tuple[str, ...]:
        """The names of all figures."""
        return FIGURES

    def report(self, out: str | Path) -> Path:
        """Write the whole report to a folder; returns its index.html."""
        from mkb_analyze.report import build

        calibration = self.analysis.calibration
        made = build.report(
            self.study.path,
            Path(out),
            settings=self.settings,
            labels=self._which,
            seed=self._seed,
            n_resamples=self._resamples,
            calibration=calibration,
        )
        return made.index

    def __repr__(self) -> str:
        a = self.analysis
        return f"<study {self.study.path}: {len(a.attempts)} attempts, {len(a.resolved)} resolved transfers>"

    def _repr_html_(self) -> str:
        lines = "".join(f"<li>{escape(line)}</li>" for line in (*self.analysis.findings, *self.analysis.alarms))
        scope = escape(self.analysis.scope)
        return f"<p><b>{escape(str(self.study.path))}</b></p><ul>{lines}</ul><p>{scope}</p>"


def _attempt(a: Attempt) -> tuple[Any, ...]:
    v, u = a.verdict, a.usage
    return (
        *(a.key, a.model, a.problem, a.problem_name, a.family, a.dsl, a.arm.value, a.source_dsl, a.replicate),
        *(a.generation, a.state.value, a.reason, v.passed if v else None, v.stage.value if v else None),
        *((v.speedup, v.kernel_ms, v.reference_ms, v.device or a.device) if v else (None, None, None, a.device)),
        *(len(a.submissions), a.timed_out),
        *((u.n_input_tokens, u.n_output_tokens, u.cost_usd, u.agent_s) if u else (None,) * 4),
        *(a.kernel_sha256, a.note_sha256, a.source_note_sha256, a.at),
    )


def _labels(study: Study) -> Iterator[tuple[Any, ...]]:
    for record in study.read("annotations", Annotation):
        of = ("content", record.note_sha256)
        if record.unscored is not None:
            yield *of, None, None, "category", *_said(record, None)
        for c in record.claims:
            yield *of, c.start, c.end, "category", *_said(record, c.label, c.unscored)
    for record in study.read("attributions", Attribution):
        for question, asked in (("cause", record.cause_asked), ("adherence", True)):
            if asked:
                told = _said(record, getattr(record, question))
                yield "attribution", record.transfer.key, None, None, question, *told
    for record in study.read("fates", Fate):
        yield "fate", record.transfer.key, record.start, record.end, "fate", *_said(record, record.fate)
    for a in study.read("adjudications", Adjudication):
        who = (f"person:{a.person}" + (" (settled)" if a.gold else ""), 1)
        for c in a.decision.get("claims", ()):
            yield "content", a.item, c["start"], c["end"], "category", *who, c.get("label"), None, a.rubric_sha256
        item, start, end = _place(a)
        for question in ("cause", "adherence", "fate"):
            if question in a.decision:
                yield a.task, item, start, end, question, *who, a.decision[question], None, a.rubric_sha256


def _said(record: Any, label: str | None, unscored: str | None = None) -> tuple[Any, ...]:
    """Rater, repeat, label, why there is none, rubric."""
    why = None if label is not None else unscored or record.unscored
    return record.rater.name, record.rater.repeat, label, why, record.rater.rubric_sha256


def _place(a: Adjudication) -> tuple[str, int | None, int | None]:
    """The transfer that was judged, and the claim's span where one claim was."""
    if a.task != "fate":
        return a.item, None, None
    transfer, _, span = a.item.rpartition(":")
    start, _, end = span.partition("-")
    return transfer, int(start), int(end)
