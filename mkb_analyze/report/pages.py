"""Which pages a report has, in order, each rendered when it is asked for, so that memory does not grow with them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from mkb_analyze import figures, figures_study
from mkb_analyze.analysis import Analysis, plural
from mkb_analyze.report import cases, chapters, html, lists, svg
from mkb_analyze.report.html import Picture
from mkb_analyze.report.site import CASES, FINDINGS, Page, Site, clipped
from mkb_analyze.table import Column, Table, show
from mkb_analyze.tables.groups import direction_name
from mkb_analyze.transfers import Transfer


class Pages:
    """Renders every page of one report and draws its figures into `out`."""

    def __init__(self, site: Site, environment: jinja2.Environment, out: Path):
        self.site, self.data, self.environment, self.out = site, site.data, environment, out
        self.chapters = chapters.chapters(site.data)
        self._pictures: dict[str, Picture | None] = {}

    def all(self) -> Iterator[Page]:
        yield self._overview()
        for chapter in self.chapters:
            yield self._chapter(chapter)
        yield from self._lists()
        order = self.data.transfers
        for i, t in enumerate(order):
            before, after = order[i - 1] if i else None, order[i + 1] if i + 1 < len(order) else None
            yield self._transfer(t, before, after)
        yield from (self._problem(p, ts) for p, ts in self.site.by_problem.items())
        yield from self._categories()

    def _render(self, template: str, path: str, title: str, section: str = "", **context: Any) -> Page:
        root = "../" * path.count("/")
        text = self.environment.get_template(template).render(
            title=title, root=root, here=section or path, findings_nav=FINDINGS, cases_nav=CASES, **context
        )
        return Page(path, text)

    def picture(self, name: str) -> Picture | None:
        """The figure of that name, drawn and saved once; None where the study has nothing to draw."""
        if name not in self._pictures:
            drawn = figures_study.draw(name, self.data)
            if drawn is not None:
                figures.save(drawn.figure, self.out / "figures", name)
            self._pictures[name] = Picture(name, drawn.reading, drawn.alt, drawn.table) if drawn is not None else None
        return self._pictures[name]

    # Findings --------------------------------------------------------------------------------------------------

    def _overview(self) -> Page:
        data, site = self.data, self.site
        return self._render(
            "index.html",
            "index.html",
            "What the notes were worth",
            subtitle=_subtitle(data),
            sentences=data.findings,
            groups=lists.groups_to_review(site).rows,
            warnings=data.warnings,
            tiles=_tiles(data),
            figures=Markup("").join(html.figure(self.picture(n)) for n in ("outcomes", "paired_ratios")),
            losses=[self._loss(t) for t in chapters.losses(data, 5)],
            chapters=self.chapters,
        )

    def _loss(self, t: Transfer) -> dict[str, Any]:
        blame = self.site.blame(t)
        return {
            "link": self.site.link(t, f"{t.model}, problem {t.problem}, {direction_name(t)}"),
            "ratio": t.ratio,
            "blame": self.site.link(t, clipped(blame.text, 220), blame.place) if blame else None,
            "by": blame.by if blame else None,
        }

    def _chapter(self, chapter: chapters.Chapter) -> Page:
        parts = []
        for kind, name in chapter.blocks:
            parts.append(html.figure(self.picture(name)) if kind == "figure" else html.table(self.data.by_name[name]))
        if chapter.path == "robustness.html":
            parts += [html.table(t) for t in chapters.unplaced(self.data)]
        if chapter.path == "content.html":
            parts.append(
                Markup('<p><a href="categories.html">Each category with its meaning and real examples</a></p>')
            )
        if chapter.path == "raters.html":
            parts.append(Markup("<h2>Calibration</h2>") + _calibration(self.data))
            parts.append(Markup('<p><a href="review.html#doubtful">The labels that raters doubt most</a></p>'))
        return self._render(
            "chapter.html",
            chapter.path,
            chapter.title,
            question=chapter.question,
            answer=chapter.answer,
            body=Markup("").join(parts),
        )

    # Lists -----------------------------------------------------------------------------------------------------

    def _lists(self) -> Iterator[Page]:
        site, data = self.site, self.data
        yield self._list(
            "review.html",
            "Review list",
            "What a person should look at first. A link leads to the case, a sentence to its place in the note.",
            [
                ("groups", "Groups that the notes harmed", [lists.groups_to_review(site)]),
                ("losses", "Largest losses", [lists.largest_losses(site)]),
                ("doubtful", "Doubtful labels", [lists.doubtful(site)]),
            ],
        )
        yield from self._parts(
            lists.transfers(site), "Transfers", "From a figure to the sentence: open a transfer.", "transfers.html"
        )
        yield self._list(
            "problems.html", "Problems", "Every problem with all its transfers.", [("", "", [lists.problems(site)])]
        )
        effort = data.by_name["effort"]
        yield from self._parts(
            lists.attempts(site), "Attempts", "Every attempt with its final verdict.", "attempts.html", effort
        )
        yield self._list(
            "quality.html",
            "Data quality",
            "Each row is one case that a figure does not rest on, with its reason.",
            [("", "", list(lists.amiss(site)))],
        )
        yield self._render(
            "about.html",
            "about.html",
            "About this report",
            tables=list(data.tables()),
            pictures=[p for p in map(self.picture, figures_study.FIGURES) if p is not None],
            rubrics=[data.rubric(task) for task in ("content", "attribution", "fate")],
        )

    def _list(
        self, path: str, title: str, lead: str, sections: Sequence[tuple[str, str, list[Table]]], **more: Any
    ) -> Page:
        body = []
        for id_, heading, tables in sections:
            if heading:
                body.append(Markup('<h2 id="{}">{}</h2>').format(id_, heading))
            body += [html.table(t) for t in tables]
        return self._render("list.html", path, title, lead=lead, body=Markup("").join(body), **more)

    def _parts(
        self, parts: Sequence[tuple[str, str, Table]], title: str, lead: str, section: str, first: Table | None = None
    ) -> Iterator[Page]:
        links = [(path, name) for path, name, _ in parts] if len(parts) > 1 else []
        for i, (path, name, table) in enumerate(parts):
            named = f"{title}: {name}" if links else title
            tables = [table] if first is None or i else [first, table]
            yield self._list(path, named, lead, [("", "", tables)], parts=links, part=path, section=section)

    # Cases -----------------------------------------------------------------------------------------------------

    def _transfer(self, t: Transfer, before: Transfer | None, after: Transfer | None) -> Page:
        path = self.site.files[t.key]
        context = cases.context(self.site, t, before, after)
        return self._render("transfer.html", path, t.key, "transfers.html", **context)

    def _problem(self, problem: int, transfers: list[Transfer]) -> Page:
        site, first = self.site, transfers[0]
        rows: dict[str, list] = {}
        for t in transfers:
            if t.resolved:
                rows.setdefault(f"{t.model}, {direction_name(t)}", []).append((t.ratio, t.outcome))
        listed = html.table(lists.outcomes.transfer_rows(transfers, site.files), "../")
        return self._render(
            "problem.html",
            site.problem_file(problem),
            f"Problem {problem}" + (f": {first.problem_name}" if first.problem_name else ""),
            "problems.html",
            family=first.family,
            n_resolved=sum(t.resolved for t in transfers),
            n_all=len(transfers),
            strip=svg.strip(list(rows.items()), self.data.settings.band, f"Paired ratios of problem {problem}"),
            losses=[self._loss(t) for t in chapters.losses(self.data, len(self.data.resolved)) if t.problem == problem][
                :5
            ],
            table=listed,
        )

    def _categories(self) -> Iterator[Page]:
        content, rows = self.data.rubric("content"), []
        for row, about in lists.categories(self.site):
            if about["label"]:
                rows.append(row)
            name = about.pop("name")
            title = f"Category: {name.replace('_', ' ')}"
            yield self._render("category.html", self.site.category_file(name), title, "categories.html", **about)
        lead = f"{content.title}. {content.unit}"
        yield self._list("categories.html", "Claim categories", lead, [("", "", [lists.category_table(rows)])])


def _subtitle(data: Analysis) -> str:
    models = f"{', '.join(data.models[:6])}{' …' if len(data.models) > 6 else ''}"
    return f"{models or 'no model'} · {plural(len({a.problem for a in data.attempts}), 'problem')}"


def _tiles(data: Analysis) -> list[dict[str, str]]:
    n_solo = sum(a.source_dsl is None for a in data.attempts)
    n_pass = sum(bool(a.verdict and a.verdict.passed) for a in data.attempts)
    raters = ", ".join(data.labels.raters[:3]) + (" …" if len(data.labels.raters) > 3 else "")
    return [
        {
            "name": "transfers resolved",
            "value": f"{len(data.resolved)} of {len(data.transfers)}",
            "detail": f"{plural(len(data.attempts), 'attempt')}, {n_solo} of them solo",
            "href": "transfers.html",
        },
        {
            "name": "attempts passed",
            "value": f"{n_pass} of {len(data.attempts)}",
            "detail": "by their final verdicts",
            "href": "attempts.html",
        },
        {
            "name": "notes labelled",
            "value": str(len(data.labels.notes)),
            "detail": f"by {raters or 'no rater yet'}",
            "href": "raters.html",
        },
        {
            "name": "transfers attributed",
            "value": str(len(data.labels.transfers)),
            "detail": f"{plural(len(data.labels.fates), 'claim')} traced on",
            "href": "attribution.html",
        },
    ]


def _calibration(data: Analysis) -> Markup:
    """The rater against gold where a calibration was given, else how to make one."""
    c = data.calibration
    if c is None:
        return Markup(
            "<p>No calibration was given, so that rates stand as labelled. <code>mkb-analyze calibrate</code> scores a "
            "rater against settled labels, and <code>report --calibration FILE</code> corrects the rates by it.</p>"
        )
    columns = [f"said {name}" for name in c.labels] + ["no label"]
    rows = [
        {"gold": name, **dict(zip(columns, map(int, row), strict=True))}
        for name, row in zip(c.labels, c.confusion, strict=True)
    ]
    table = Table(
        "confusion",
        f"{c.rater.name} against gold",
        f"{c.n_gold} gold claims of {c.n_notes} notes; a row is the settled label, a column what the rater said. "
        f"Accuracy {show(c.accuracy, 'share')}, κ {show(c.kappa, 'number')}, macro F1 {show(c.macro_f1, 'number')}.",
        (Column("gold", "gold"), *(Column(name, name, "number") for name in columns)),
        tuple(rows),
        exported=False,
    )
    return html.table(table)
