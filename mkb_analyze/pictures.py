"""Every figure of a study by name, with the sentence that says how to read it, and the files it can be saved as."""

import contextlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkb_analyze.table import Table
from runner.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mkb_analyze.analysis import Analysis

FIGURES = ("paired_ratios", "outcomes", "standing", "categories", "causes")
STYLES = ("screen", "paper")
FORMATS = (".svg", ".png", ".pdf")
PAPER_INCHES, PAPER_POINTS = 5.5, 8.0
_OUTCOMES = ("helped", "neutral", "harmed")


@dataclass(frozen=True)
class Picture:
    """A drawn figure: `reading` says how to read it, `alt` what a screen reader says, `table` where its numbers are.

    In a notebook it shows itself.
    """

    name: str
    figure: "Figure"
    reading: str
    alt: str
    table: str

    def save(self, path: str | Path) -> Path:
        """Write .svg, .png or .pdf by the file's ending; the same numbers give the same bytes.

        Raises:
            UserError: another ending.
        """
        target = Path(path)
        if target.suffix.lower() not in FORMATS:
            raise UserError(f"{target}: a name that ends in {', '.join(FORMATS)} is due")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(self.bytes(target.suffix.lower()))
        return target

    def bytes(self, suffix: str) -> bytes:
        """The figure in the format that a file with this suffix holds."""
        import matplotlib

        from mkb_analyze.figures import _STYLE

        told = {
            ".svg": {"Date": None, "Creator": "mkb-analyze"},
            ".png": {"Software": "mkb-analyze"},
            ".pdf": {"CreationDate": None, "Creator": "mkb-analyze", "Producer": "mkb-analyze"},
        }[suffix]
        out = io.BytesIO()
        with matplotlib.rc_context({**_STYLE, "pdf.fonttype": 42}):
            self.figure.savefig(out, format=suffix[1:], dpi=300, metadata=told)
        return out.getvalue()

    def _repr_svg_(self) -> str:
        return self.bytes(".svg").decode("utf-8")


def draw(data: "Analysis", name: str, style: str = "screen") -> Picture:
    """Draw one figure.

    Args:
        name: one of FIGURES.
        style: `screen`, or `paper`: as wide as a column of text (5.5 inches), 8-point type.

    Raises:
        UserError: an unknown name or style, or a study that has nothing to draw there.
    """
    if name not in FIGURES:
        raise UserError(f"{name!r}: no such figure; one of {', '.join(FIGURES)}")
    if style not in STYLES:
        raise UserError(f"--style {style}: one of {', '.join(STYLES)} is due")
    with _own_backend():
        made = _DRAWN[name](data)
        if made is None:
            raise UserError(f"{name}: nothing to draw in this study yet (`mkb-analyze table {_TABLE[name]}` says why)")
        if style == "paper":
            _for_paper(made[0])
        _closed(made[0])
    return Picture(name, *made, _TABLE[name])


Made = tuple[Any, str, str] | None


def _paired_ratios(data: "Analysis") -> Made:
    from mkb_analyze import figures
    from mkb_analyze.transfers import frame

    if not data.resolved:
        return None
    rows = frame(data.resolved)
    return (
        figures.paired_ratios(rows, data.settings.band),
        "One point a transfer, sorted; right of the shaded band the note helped, left of it it harmed.",
        f"Paired ratios of {len(rows)} transfers from {rows['ratio'].min():.2f} to {rows['ratio'].max():.2f}.",
    )


def _counted(data: "Analysis", table: str, named: Callable[[dict[str, Any]], str], reading: str) -> Made:
    from mkb_analyze import figures

    rows = [r for r in data.by_name[table].rows if r["n"]]
    if not rows:
        return None
    names = [named(r) for r in rows]
    parts = [(k, [r[f"n_{k}"] for r in rows], figures.OUTCOME_COLOURS[k]) for k in _OUTCOMES]
    said = (
        f"{n}: {r['n_helped']} helped, {r['n_harmed']} harmed of {r['n']}" for n, r in zip(names, rows, strict=True)
    )
    return figures.stacked(names, parts, "transfers"), reading, "; ".join(said)


def _outcomes(data: "Analysis") -> Made:
    return _counted(
        data, "outcomes", lambda r: f"{r['model']}, {r['direction']}", "Counts of transfers by outcome in each group."
    )


def _standing(data: "Analysis") -> Made:
    return _counted(
        data,
        "standing",
        lambda r: f"{r['model']}: source {r['standing']}",
        "Outcomes within each relative standing of the source.",
    )


def _categories(data: "Analysis") -> Made:
    from mkb_analyze import figures

    table = data.by_name["categories"]
    rows = tuple(r for r in table.rows if r["model"] == "all" and r["difference"].defined)
    if not rows:
        return None
    part = Table(table.name, table.title, table.reading, table.columns, rows)
    return (
        figures.intervals(part, "category", "difference", "P(category | harmed) − P(category | helped), points"),
        "Right of 0 a category stands more often in notes that harmed; a grey line includes 0.",
        "; ".join(f"{r['category']}: {100 * r['difference'].estimate:+.0f} points" for r in rows),
    )


def _causes(data: "Analysis") -> Made:
    from mkb_analyze import figures

    table = data.by_name["causes"]
    rows = tuple(r for r in table.rows if r["cause"] != "any of the group" and r["share"].defined)
    pooled = any(r["model"] == "all" for r in rows)
    rows = tuple(r for r in rows if r["model"] == "all" or not pooled)
    if not any(r["n"] for r in rows):
        return None
    part = Table(table.name, table.title, table.reading, table.columns, rows)
    return (
        figures.intervals(part, "cause", "share", "share of harmed transfers, %", zero=False),
        "Share of each primary cause among harmed transfers with its interval.",
        "; ".join(f"{r['cause']}: {r['n']}" for r in rows),
    )


_DRAWN: dict[str, Callable[["Analysis"], Made]] = {
    "paired_ratios": _paired_ratios,
    "outcomes": _outcomes,
    "standing": _standing,
    "categories": _categories,
    "causes": _causes,
}
_TABLE = {"paired_ratios": "transfers", **{n: n for n in FIGURES[1:]}}


def _for_paper(figure: "Figure") -> None:
    from matplotlib.text import Text

    width, height = figure.get_size_inches()
    figure.set_size_inches(PAPER_INCHES, height * PAPER_INCHES / width)
    for text in figure.findobj(Text):
        text.set_fontsize(PAPER_POINTS)


@contextlib.contextmanager
def _own_backend() -> Iterator[None]:
    """Drawing uses Agg; the backend of whoever called (a notebook's) is put back."""
    import matplotlib

    before = matplotlib.get_backend()
    matplotlib.use("Agg")
    try:
        yield
    finally:
        matplotlib.use(before)


def _closed(figure: "Figure") -> None:
    import matplotlib.pyplot as plt

    plt.close(figure)
