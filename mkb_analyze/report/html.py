"""Tables and figures to HTML: one pass over the cells, so that thousands of pages cost seconds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from mkb_analyze.report.texts import safe
from mkb_analyze.stats.estimate import FEW_CASES, Estimate
from mkb_analyze.table import Column, Table, one, plain, show
from mkb_analyze.transfers import Outcome

_OUTCOMES = ("helped", "neutral", "harmed")
_COUNTS = tuple(f"n_{name}" for name in _OUTCOMES)
BAR_WIDTH = 120


@dataclass(frozen=True)
class Picture:
    """A figure on disk: the sentence that says how to read it, what a screen reader says, and the table behind it."""

    name: str
    reading: str
    alt: str
    table: str | None = None


def table(t: Table, root: str = "") -> Markup:
    """A table with its caption, reading and CSV link; `root` leads from the page to the report's folder.

    Rows that count outcomes (`n_helped`, `n_neutral`, `n_harmed`) get a bar of their shares.
    """
    bars = bool(t.rows) and all(k in t.rows[0] for k in _COUNTS)
    head = "".join(
        f'<th scope="col"{_class(c)}>{escape(c.label) if c.label else "<span class=sr>mark</span>"}</th>'
        for c in t.columns
    )
    parts = [
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(t.title)}">'
        f'<table data-name="{escape(t.name)}"{"" if t.exported else " data-own"}><caption>{escape(t.title)}</caption>'
        f"<thead><tr>{head}{'<th scope=col>shares</th>' if bars else ''}</tr></thead><tbody>"
    ]
    for row in t.rows:
        cells = [_cell(row.get(c.key), c, root) for c in t.columns]
        if bars:
            cells.append(f"<td>{bar([row[k] for k in _COUNTS])}</td>")
        parts.append(f"<tr>{''.join(cells)}</tr>\n")
    if not t.rows:
        parts.append(f'<tr><td colspan="{len(t.columns)}" class="dim">nothing to show: no case</td></tr>')
    parts.append(f'</tbody></table></div><p class="reading">{escape(" ".join((t.reading, *t.notes)))}')
    if t.exported:
        parts.append(
            f' <span class="files"><a href="{root}tables/{t.name}.csv">CSV'
            f'<span class="sr"> of {escape(t.title)}</span></a></span>'
        )
    parts.append("</p>\n")
    return Markup("".join(parts))


def _class(c: Column) -> str:
    return "" if c.kind == "text" else ' class="num"'


def _cell(value: Any, c: Column, root: str) -> str:
    if isinstance(value, Estimate):
        return _estimate(value, c.kind)
    if isinstance(value, (dict, list)):
        return f"<td>{', '.join(link(v, root) for v in ([value] if isinstance(value, dict) else value))}</td>"
    if isinstance(value, Outcome):
        return f'<td class="{value.value}">{value.value}</td>'
    value = plain(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f'<td class="num" data-value="{value}">{escape(show(value, c.kind))}</td>'
    if value is None:
        return f'<td{_class(c)} data-value=""><span class="dim">–</span></td>'
    return f"<td{_class(c)}>{safe(str(value))}</td>"


def link(target: dict[str, Any], root: str = "") -> str:
    """`{"href", "text"}` as a link; a place on the same page (`#…`) stays, anything else is seen from the root."""
    href = target["href"] if target["href"].startswith("#") else root + target["href"]
    return f'<a href="{escape(href)}">{safe(str(target["text"]))}</a>'


def _estimate(e: Estimate, kind: str) -> str:
    if e.estimate != e.estimate:
        return f'<td class="num" data-value=""><span class="dim">– {escape(e.reason or "not defined")}</span></td>'
    title = e.method + (f"; p = {e.p:.3g}" if e.p == e.p else "") + "".join(f"; {n}" for n in e.notes)
    interval = f' <span class="interval">[{one(e.low, kind)}, {one(e.high, kind)}]</span>' if e.low == e.low else ""
    few = ' <span class="mark" title="fewer than 5 cases: a mark, not a finding">few</span>' if e.n < FEW_CASES else ""
    return (
        f'<td class="num" data-value="{e.estimate:.9g}" title="{escape(title)}">{escape(one(e.estimate, kind))}'
        f'{interval} <span class="dim">n={e.n}</span>{few}</td>'
    )


def bar(counts: Sequence[int]) -> str:
    """Shares of helped, neutral and harmed as one bar; the numbers stand beside it, so that it is hidden to readers."""
    total, at, parts = sum(counts), 0.0, []
    for name, count in zip(_OUTCOMES, counts, strict=True):
        if count:
            width = BAR_WIDTH * count / total
            parts.append(f'<rect class="f-{name}" x="{at:.2f}" y="0" width="{width:.2f}" height="12"/>')
            at += width
    return f'<svg class="bar" viewBox="0 0 {BAR_WIDTH} 12" aria-hidden="true">{"".join(parts)}</svg>'


def figure(p: Picture | None, root: str = "") -> Markup:
    """A figure with its reading and the ways to its files; nothing where there is no figure."""
    if p is None:
        return Markup("")
    base = f"{root}figures/{escape(p.name)}"
    sr = f'<span class="sr"> of {escape(p.name.replace("_", " "))}</span>'
    files = [f'<a href="{base}.svg">SVG{sr}</a>', f'<a href="{base}.png">PNG{sr}</a>']
    if p.table:
        files.append(f'<a href="{root}tables/{escape(p.table)}.csv">CSV{sr}</a>')
    return Markup(
        f'<figure><div class="wide"><img src="{base}.svg" alt="{escape(p.alt)}" loading="lazy"></div>'
        f"<figcaption><b>How to read it.</b> "
        f'{escape(p.reading)} <span class="files">{" · ".join(files)}</span></figcaption></figure>\n'
    )
