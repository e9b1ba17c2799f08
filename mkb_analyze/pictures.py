"""A figure of a study as something to keep: drawn by name in a style, shown in a notebook, saved as SVG, PNG or PDF."""

import contextlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runner.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mkb_analyze.analysis import Analysis

# Every figure's name, in the order of the report; a test holds it to what `figures_study` draws.
FIGURES = (
    "outcomes",
    "paired_ratios",
    "standing",
    "categories",
    "causes",
    "cause_shares",
    "adherence",
    "propagation",
    "fates",
    "survival",
    "agreement",
    "sensitivity",
    "rule",
    "variance",
)
STYLES = ("screen", "paper")
FORMATS = (".svg", ".png", ".pdf")
PAPER_INCHES, PAPER_POINTS = 5.5, 8.0


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
        # Type 42: a journal's checker wants fonts that are no Type 3.
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
    from mkb_analyze import figures_study

    with _own_backend():
        made = figures_study.draw(name, data)
        if made is None:
            raise UserError(f"{name}: this study has nothing to draw there yet; the table of the same part says why")
        if style == "paper":
            _for_paper(made.figure)
        _closed(made.figure)
    return Picture(name, made.figure, made.reading, made.alt, made.table)


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
    try:
        matplotlib.use("Agg")
        yield
    finally:
        matplotlib.use(before)


def _closed(figure: "Figure") -> None:
    import matplotlib.pyplot as plt

    plt.close(figure)
