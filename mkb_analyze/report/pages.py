"""Which pages a report has and what stands on each."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from annotators.records import Quotation, Side
from mkb_analyze import figures, labels
from mkb_analyze.analysis import Analysis
from mkb_analyze.report import texts
from mkb_analyze.table import Column, Table
from mkb_analyze.tables import outcomes
from mkb_analyze.tables.attribution import fates_of
from mkb_analyze.transfers import Transfer
from runner.errors import UserError
from runner.records import Attempt
from runner.study import Study

NAV = (
    ("index.html", "Overview"),
    ("index.html#outcomes", "Outcomes"),
    ("index.html#content", "Content"),
    ("index.html#attribution", "Attribution"),
    ("index.html#agreement", "Agreement"),
    ("index.html#robustness", "Robustness"),
    ("index.html#transfers", "Transfers"),
)


@dataclass(frozen=True)
class Page:
    path: str
    html: str


@dataclass(frozen=True)
class Picture:
    """A figure on disk with the sentence that says how to read it and what a screen reader says."""

    name: str
    reading: str
    alt: str
    table: str | None = None


@dataclass(frozen=True)
class Section:
    id: str
    title: str
    question: str
    figures: tuple[Picture | None, ...]
    tables: tuple[Table, ...]


class Pages:
    """Renders every page of one report, one at a time, so that memory does not grow with their number."""

    def __init__(self, study: Study, data: Analysis, environment: jinja2.Environment, out: Path, files: dict[str, str]):
        self.study, self.data, self.environment, self.out, self.files = study, data, environment, out, files
        content = data.rubric("content")
        self.palette = texts.Palette.of(content.ids, content.none_label, content.role("unsupported"))
        self.n_written = 0

    def all(self) -> Iterator[Page]:
        yield self._index()
        order = self.data.transfers
        for i, transfer in enumerate(order):
            yield self._transfer(transfer, order[i - 1] if i else None, order[i + 1] if i + 1 < len(order) else None)

    def _render(self, template: str, path: str, title: str, **context: Any) -> Page:
        root = "../" * path.count("/")
        html = self.environment.get_template(template).render(title=title, root=root, here=path, nav=NAV, **context)
        return Page(path, html)

    # Overview --------------------------------------------------------------------------------------------------

    def _index(self) -> Page:
        data, t = self.data, self.data.by_name
        resolved = data.resolved
        sections = (
            Section(
                "outcomes",
                "Did the note help or harm?",
                "Each conditioned attempt is compared with the solo attempt on the same problem "
                "and DSL; the note is all that differs.",
                (self._ratios(), self._rates()),
                (t["outcomes"], t["families"], t["attainment"]),
            ),
            Section(
                "standing",
                "Whose note was it?",
                "A note from an attempt that did better than the target's solo has something to give.",
                (self._standing(),),
                (t["standing"], t["reverse"]),
            ),
            Section(
                "content",
                "What stands in the notes, and what goes with harm?",
                "Every claim of a note has one category; a note has a category when any of its claims does.",
                (self._categories(),),
                (t["categories"], t["content"]),
            ),
            Section(
                "attribution",
                "Why did transfers harm?",
                "A harmed transfer's cause, named by raters with quotations from both sides.",
                (self._causes(),),
                (t["causes"], t["adherence"], t["propagation"], t["fates"], t["generations"]),
            ),
            Section(
                "agreement",
                "Can the labels be trusted?",
                "Raters that label the same items, compared beyond chance.",
                (),
                (t["agreement"], t["doubtful"]),
            ),
            Section(
                "robustness",
                "Would other settings or the clock's noise say something else?",
                "The neutral band must be wider than the timing noise, and a conclusion should survive other clips.",
                (),
                (t["noise"], t["sensitivity"], t["variance"]),
            ),
            Section(
                "rule",
                "Could harm have been foreseen?",
                "A rule from standing, adherence and categories, judged on problems that it never saw.",
                (),
                (t["rule"],),
            ),
            Section(
                "transfers",
                "Every case",
                "From a figure to the sentence: open a transfer.",
                (),
                (outcomes.transfer_rows(data.transfers, self.files), t["attempts"], t["quality"]),
            ),
        )
        n_solo = sum(a.source_dsl is None for a in data.attempts)
        n_pass = sum(bool(a.verdict and a.verdict.passed) for a in data.attempts)
        tiles = [
            {
                "name": "transfers resolved",
                "value": f"{len(resolved)} of {len(data.transfers)}",
                "detail": f"{len(data.attempts)} attempts, {n_solo} of them solo",
            },
            {"name": "attempts passed", "value": f"{n_pass} of {len(data.attempts)}", "detail": "final verdicts"},
            {
                "name": "notes labelled",
                "value": str(len(data.labels.notes)),
                "detail": f"by {', '.join(data.labels.raters) or 'no rater yet'}",
            },
            {
                "name": "transfers attributed",
                "value": str(len(data.labels.transfers)),
                "detail": f"{len(data.labels.fates)} claims traced on",
            },
        ]
        title = f"What the notes were worth: {', '.join(data.models[:4]) or 'a study'}{' …' if len(data.models) > 4 else ''}"
        return self._render(
            "index.html",
            "index.html",
            title,
            findings=data.findings,
            alarms=data.alarms,
            sections=sections,
            tiles=tiles,
        )

    def _picture(self, figure: Any, name: str, reading: str, alt: str, table: str | None) -> Picture:
        figures.save(figure, self.out / "figures", name)
        return Picture(name, reading, alt, table)

    def _ratios(self) -> Picture | None:
        if not self.data.resolved:
            return None
        from mkb_analyze.transfers import frame

        rows = frame(self.data.resolved)
        band = self.data.settings.band
        low, high = rows["ratio"].min(), rows["ratio"].max()
        return self._picture(
            figures.paired_ratios(rows, band),
            "paired_ratios",
            "One point a transfer, sorted; right of the shaded band the note helped, left of it it harmed.",
            f"Paired ratios of {len(rows)} transfers from {low:.2f} to {high:.2f}.",
            "transfers",
        )

    def _rates(self) -> Picture | None:
        rows = [r for r in self.data.by_name["outcomes"].rows if r["n"]]
        if not rows:
            return None
        names = [f"{r['model']}, {r['direction']}" for r in rows]
        parts = [(k, [r[f"n_{k}"] for r in rows], figures.OUTCOME_COLOURS[k]) for k in ("helped", "neutral", "harmed")]
        return self._picture(
            figures.stacked(names, parts, "transfers"),
            "outcomes",
            "Counts of transfers by outcome in each group.",
            "; ".join(
                f"{n}: {r['n_helped']} helped, {r['n_neutral']} neutral, {r['n_harmed']} harmed"
                for n, r in zip(names, rows, strict=False)
            ),
            "outcomes",
        )

    def _standing(self) -> Picture | None:
        rows = [r for r in self.data.by_name["standing"].rows if r["n"]]
        if not rows:
            return None
        names = [f"{r['model']}: source {r['standing']}" for r in rows]
        parts = [(k, [r[f"n_{k}"] for r in rows], figures.OUTCOME_COLOURS[k]) for k in ("helped", "neutral", "harmed")]
        return self._picture(
            figures.stacked(names, parts, "transfers"),
            "standing",
            "Outcomes within each relative standing of the source.",
            "; ".join(
                f"{n}: {r['n_helped']} helped, {r['n_harmed']} harmed of {r['n']}"
                for n, r in zip(names, rows, strict=False)
            ),
            "standing",
        )

    def _categories(self) -> Picture | None:
        table = self.data.by_name["categories"]
        rows = tuple(r for r in table.rows if r["model"] == "all" and r["difference"].defined)
        if not rows:
            return None
        part = Table(table.name, table.title, table.reading, table.columns, rows)
        return self._picture(
            figures.intervals(part, "category", "difference", "P(category | harmed) − P(category | helped), points"),
            "categories",
            "Right of 0 a category stands more often in notes that harmed; a grey line includes 0.",
            "; ".join(f"{r['category']}: {100 * r['difference'].estimate:+.0f} points" for r in rows),
            "categories",
        )

    def _causes(self) -> Picture | None:
        rows = tuple(
            r for r in self.data.by_name["causes"].rows if r["cause"] != "any of the group" and r["share"].defined
        )
        top = {r["model"] for r in rows}
        rows = tuple(r for r in rows if r["model"] == ("all" if "all" in top else r["model"]))
        if not rows or not any(r["n"] for r in rows):
            return None
        table = self.data.by_name["causes"]
        part = Table(table.name, table.title, table.reading, table.columns, rows)
        return self._picture(
            figures.intervals(part, "cause", "share", "share of harmed transfers, %", zero=False),
            "causes",
            "Share of each primary cause among harmed transfers with its interval.",
            "; ".join(f"{r['cause']}: {r['n']}" for r in rows),
            "causes",
        )

    # One transfer ------------------------------------------------------------------------------------------------

    def _transfer(self, t: Transfer, before: Transfer | None, after: Transfer | None) -> Page:
        data = self.data
        path = self.files[t.key]
        note, own = self._text("notes", t.source_note_sha256), self._text("notes", t.own_note_sha256)
        solo = self._text("kernels", t.target_solo.kernel_sha256 if t.target_solo else None)
        final = self._text("kernels", t.conditioned.kernel_sha256 if t.conditioned else None)
        labelled = data.labels.transfers.get(t.key)
        attributions, anchors = self._attributions(labelled.records if labelled else (), t)
        claims = data.labels.notes.get(t.source_note_sha256 or "", ())
        used = {c.label for c in claims if c.label}
        link = lambda other: {"href": Path(self.files[other.key]).name, "text": other.key} if other else None  # noqa: E731
        return self._render(
            "transfer.html",
            path,
            t.key,
            t=t,
            before=link(before),
            after=link(after),
            verdicts=self._verdicts(t),
            timeline=self._timeline(t, Path(path).stem),
            attributions=attributions,
            note=texts.note(note, claims, self.palette, anchors=anchors.get(Side.NOTE, ()))
            if note is not None
            else None,
            legend=texts.legend(self.palette, sorted(used)),
            claims=self._claims(note, claims, path) if claims and note else None,
            fates=self._fates(t, note),
            own_note=texts.note(
                own,
                data.labels.notes.get(t.own_note_sha256 or "", ()),
                self.palette,
                "own",
                anchors.get(Side.OWN_NOTE, ()),
            )
            if own is not None
            else None,
            solo_kernel=texts.kernel(solo) if solo is not None else None,
            conditioned_kernel=texts.kernel(final) if final is not None else None,
            diff=texts.difference(solo, final) if solo is not None and final is not None else None,
            solo_line=_verdict_line(t.target_solo),
            conditioned_line=_verdict_line(t.conditioned),
        )

    def _text(self, folder: str, sha: str | None) -> str | None:
        if sha is None:
            return None
        try:
            return self.study.text(folder, sha)
        except UserError:
            return None

    def _verdicts(self, t: Transfer) -> Table:
        rows = []
        for role, a in (("source solo", t.source), ("target solo", t.target_solo), ("conditioned", t.conditioned)):
            if a is None:
                continue
            for s in a.submissions:
                v = s.verdict
                rows.append(
                    {
                        "attempt": f"{role} ({a.dsl})",
                        "step": f"submission {s.index}",
                        "at_s": s.at_s,
                        **_verdict_cells(v),
                        "why": (v.reason if v else None) or s.remark,
                    }
                )
            rows.append(
                {
                    "attempt": f"{role} ({a.dsl})",
                    "step": "final",
                    "at_s": None,
                    **_verdict_cells(a.verdict),
                    "why": a.verdict.reason if a.verdict else a.reason,
                }
            )
        return Table(
            "verdicts",
            "Verdicts in order",
            "Speedup is reference ÷ kernel; a failed verdict names its stage and reason.",
            (
                Column("attempt", "attempt"),
                Column("step", "step"),
                Column("at_s", "at, s", "number"),
                Column("result", "result"),
                Column("speedup", "speedup", "ratio"),
                Column("kernel_ms", "kernel, ms", "number"),
                Column("reference_ms", "reference, ms", "number"),
                Column("why", "why"),
            ),
            tuple(rows),
            exported=False,
        )

    def _timeline(self, t: Transfer, stem: str) -> Picture | None:
        points = []
        for role, a in (("source solo", t.source), ("target solo", t.target_solo), ("conditioned", t.conditioned)):
            if a is not None and a.submissions:
                points.append(
                    (
                        f"{role} ({a.dsl})",
                        [s.index for s in a.submissions],
                        [s.verdict.speedup if s.verdict else None for s in a.submissions],
                    )
                )
        # One picture a transfer is worth its time in a study that people leaf through, not in one of thousands.
        if not any(len(p[1]) > 1 for p in points) or len(self.data.transfers) > 400:
            return None
        return self._picture(
            figures.timeline(points),
            f"timeline-{stem}",
            "Speedup of each submission in order; × at the foot failed.",
            "; ".join(f"{n}: {', '.join('failed' if s is None else f'{s:.2f}' for s in ss)}" for n, _, ss in points),
            None,
        )

    def _attributions(self, records: Any, t: Transfer) -> tuple[list[dict], dict[Side, list]]:
        out, anchors = [], {}
        for k, r in enumerate(records):
            quotes = []
            for j, q in enumerate(r.quotations):
                name = f"quote-{k}-{j}"
                inside = q.side in (Side.NOTE, Side.OWN_NOTE)
                if inside:
                    anchors.setdefault(q.side, []).append((q.start, q.end, name))
                quotes.append(
                    {
                        "where": q.side.value.replace("_", " "),
                        "text": texts.safe(q.text),
                        "anchor": name if inside else _section_of(q),
                    }
                )
            out.append(
                {
                    "rater": labels.rater_name(r.rater),
                    "cause": r.cause,
                    "second_cause": r.second_cause,
                    "adherence": r.adherence,
                    "note_unused": r.note_unused,
                    "rationale": r.rationale,
                    "unscored": r.unscored,
                    "quotations": quotes,
                }
            )
        return out, anchors

    def _claims(self, note: str, claims: Any, path: str) -> Table:
        rows = [
            {
                "claim": {"href": f"#claim-{c.start}-{c.end}", "text": texts.safe(note[c.start : c.end][:300])},
                "category": c.label,
                **dict(c.flags.items()),
                "probability": c.probability,
                "doubt": c.votes.doubt,
            }
            for c in claims
        ]
        return Table(
            "claims",
            "Claims of the note",
            "Every claim with its category, flags and doubt.",
            (
                Column("claim", "claim"),
                Column("category", "category"),
                *(Column(f.id, f.id.replace("_", " ")) for f in self.data.rubric("content").flags),
                Column("probability", "probability", "number"),
                Column("doubt", "doubt", "number"),
            ),
            tuple(rows),
            exported=False,
        )

    def _fates(self, t: Transfer, note: str | None) -> Table | None:
        rows = []
        for votes, records in self.data.labels.fates_by_transfer.get(t.key, ()):
            first = records[0] if records else None
            if first is None:
                continue
            quote = next((r.quotation for r in records if r.quotation), None)
            rows.append(
                {
                    "claim": {
                        "href": f"#claim-{first.start}-{first.end}",
                        "text": texts.safe((note or "")[first.start : first.end][:300]),
                    },
                    "fate": votes.label,
                    "doubt": votes.doubt,
                    "quotation": texts.safe(quote.text[:300]) if quote else None,
                }
            )
        if not rows and not fates_of(self.data.labels, t):
            return None
        return Table(
            "fates_of_transfer",
            "Unsupported claims of the note and their fate",
            "What the conditioned attempt's own note says of each.",
            (
                Column("claim", "claim"),
                Column("fate", "fate"),
                Column("doubt", "doubt", "number"),
                Column("quotation", "in its own words"),
            ),
            tuple(rows),
            exported=False,
        )


def _section_of(q: Quotation) -> str:
    return {Side.SOLO_KERNEL: "solo-kernel", Side.CONDITIONED_KERNEL: "conditioned-kernel"}.get(q.side, "verdicts")


def _verdict_cells(v: Any) -> dict[str, Any]:
    if v is None:
        return {"result": "no verdict", "speedup": None, "kernel_ms": None, "reference_ms": None}
    return {
        "result": "passed" if v.passed else f"failed at {v.stage.value}",
        "speedup": v.speedup,
        "kernel_ms": v.kernel_ms,
        "reference_ms": v.reference_ms,
    }


def _verdict_line(a: Attempt | None) -> Markup | str:
    if a is None or a.verdict is None:
        return ""
    return (
        f": {a.verdict.speedup:.2f}× ({a.verdict.kernel_ms:.4g} ms)"
        if a.verdict.passed and a.verdict.kernel_ms
        else (f": {a.verdict.speedup:.2f}×" if a.verdict.passed else f": failed at {a.verdict.stage.value}")
    )
