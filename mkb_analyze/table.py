"""A table as data: named columns, cells that may be estimates, and the spellings CSV, Markdown, LaTeX and JSON."""

import csv
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkb_analyze.stats.estimate import Estimate
from runner.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Column:
    """`kind` is text, number, share (shown as %), points (percentage points), ratio, p, or estimate kinds thereof."""

    key: str
    label: str
    kind: str = "text"


@dataclass(frozen=True)
class Table:
    """`reading` is the one sentence that says how to read it; `notes` hold what a reader must know.

    `exported` tables have a CSV in the report. In a notebook a table shows itself.
    """

    name: str
    title: str
    reading: str
    columns: tuple[Column, ...]
    rows: tuple[dict[str, Any], ...]
    notes: tuple[str, ...] = ()
    exported: bool = True

    def flat(self) -> tuple[list[str], list[list[Any]]]:
        """Header and rows of plain values; an estimate becomes value, low, high, n, p, q, method and reason."""
        header: list[str] = []
        wide = {c.key for c in self.columns if any(isinstance(r.get(c.key), Estimate) for r in self.rows)}
        for column in self.columns:
            header.append(column.key)
            if column.key in wide:
                header += [
                    f"{column.key}_{part}"
                    for part in ("low", "high", "level", "n", "p", "q", "method", "reason", "notes")
                ]
        body = []
        for row in self.rows:
            line: list[Any] = []
            for column in self.columns:
                value = row.get(column.key)
                if column.key in wide:
                    line += _parts(value) if isinstance(value, Estimate) else [value] + [None] * 9
                else:
                    line.append(value)
            body.append([plain(v) for v in line])
        return header, body

    def frame(self) -> "pd.DataFrame":
        header, body = self.flat()
        return frame_of(header, body)

    def csv(self) -> str:
        """CSV whose text cells cannot become formulas in a spreadsheet."""
        header, body = self.flat()
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(header)
        writer.writerows([[neutral_cell(v) for v in row] for row in body])
        return out.getvalue()

    def parquet(self, path: str | Path) -> None:
        """Write the flat table as Parquet; a column that mixes texts and numbers is written as texts.

        Raises:
            UserError: pyarrow is not installed.
        """
        try:
            import pyarrow as pa
            from pyarrow import parquet
        except ImportError:
            raise UserError("--format parquet: pyarrow is missing; pip install 'mkb-analyze[parquet]'") from None
        header, body = self.flat()
        columns = {}
        for k, name in enumerate(header):
            values = [row[k] for row in body]
            if any(isinstance(v, str) for v in values):
                values = [None if v is None else _utf8(str(v)) for v in values]
            columns[name] = pa.array(values)
        parquet.write_table(pa.table(columns), path)

    def html(self) -> str:
        """The table as HTML, every text escaped: caption, header, rows, then how to read it."""
        head = "".join(f"<th>{escape(c.label)}</th>" for c in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(show(r.get(c.key), c.kind))}</td>" for c in self.columns) + "</tr>"
            for r in self.rows
        )
        tail = "".join(f"<p>{escape(line)}</p>" for line in (self.reading, *self.notes) if line)
        caption = f"<caption>{escape(self.title)}</caption>"
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{tail}"

    _repr_html_ = html

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, estimates as objects."""
        return {
            "name": self.name,
            "title": self.title,
            "reading": self.reading,
            "notes": list(self.notes),
            "rows": [
                {
                    c.key: (r[c.key].to_dict() if isinstance(r.get(c.key), Estimate) else plain(r.get(c.key)))
                    for c in self.columns
                }
                for r in self.rows
            ],
        }

    def markdown(self) -> str:
        lines = [
            "| " + " | ".join(c.label for c in self.columns) + " |",
            "|" + "|".join(" --- " for _ in self.columns) + "|",
        ]
        lines += ["| " + " | ".join(_md(show(r.get(c.key), c.kind)) for c in self.columns) + " |" for r in self.rows]
        return "\n".join(lines) + "\n"

    def latex(self) -> str:
        spec = "".join("l" if c.kind == "text" else "r" for c in self.columns)
        lines = [
            rf"\begin{{tabular}}{{{spec}}}",
            r"\toprule",
            " & ".join(_tex(c.label) for c in self.columns) + r" \\",
            r"\midrule",
        ]
        lines += [" & ".join(_tex(show(r.get(c.key), c.kind)) for c in self.columns) + r" \\" for r in self.rows]
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def frame_of(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> "pd.DataFrame":
    """A frame whose texts stay Python's own: an Arrow column refuses half a surrogate pair, which a note may hold."""
    import pandas as pd

    made = {}
    for k, name in enumerate(columns):
        values = [row[k] for row in rows]
        made[name] = pd.Series(values, dtype=object if not values or any(isinstance(v, str) for v in values) else None)
    return pd.DataFrame(made, columns=pd.Index(list(columns), dtype=object))


def _parts(e: Estimate) -> list[Any]:
    return [e.estimate, e.low, e.high, e.level, e.n, e.p, e.q, e.method, e.reason, "; ".join(e.notes)]


def plain(value: Any) -> Any:
    """NaN as None, enums and numpy scalars as plain values."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if hasattr(value, "item") and not isinstance(value, str):
        value = value.item()
    if isinstance(value, float):
        return None if math.isnan(value) else value
    return str(value) if isinstance(value, str) else value


def neutral_cell(value: Any) -> Any:
    """A text that a spreadsheet would run as a formula gets an apostrophe in front; numbers stay numbers."""
    if isinstance(value, str):
        # A bare carriage return is not quoted by the writer and begins a new row in a spreadsheet.
        lines = value.replace("\r\n", "\n").replace("\r", "\n")
        return "'" + lines if value.lstrip().startswith(_FORMULA) else lines
    return "" if value is None else value


def show(value: Any, kind: str = "text") -> str:
    """A cell as people read it: shares in per cent, intervals in brackets, – where nothing was measured."""
    if isinstance(value, Estimate):
        if math.isnan(value.estimate):
            return f"– ({value.reason or 'not defined'})"
        text = one(value.estimate, kind)
        if not (math.isnan(value.low) or math.isnan(value.high)):
            text += f" [{one(value.low, kind)}, {one(value.high, kind)}]"
        return text
    value = plain(value)
    if value is None:
        return "–"
    return one(value, kind) if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


def one(value: float, kind: str) -> str:
    """One number in its unit."""
    if kind == "share":
        return f"{100 * value:.1f}%"
    if kind == "points":
        return f"{100 * value:+.1f}"
    if kind == "percent":
        return f"{value:+.1f}%"
    if kind == "p":
        return f"{value:.3f}" if value >= 0.001 else "<0.001"
    if kind == "ratio":
        return f"{value:.3g}×" if value < 100 else f"{value:.0f}×"
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value)}"
    return f"{value:.3g}"


def _md(text: str) -> str:
    text = re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", text)
    return " ".join(text.split())


_TEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "×": r"$\times$",
    "÷": r"$\div$",
    "−": r"$-$",
    "±": r"$\pm$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "→": r"$\rightarrow$",
    "α": r"$\alpha$",
    "κ": r"$\kappa$",
    "Δ": r"$\Delta$",
    "σ": r"$\sigma$",
    "–": "--",
    "…": r"\ldots{}",
}


def _tex(text: str) -> str:
    """Text that LaTeX prints as it stands: special characters escaped, control characters shown as a dot."""
    return " ".join("".join(_TEX.get(c, c if c.isprintable() or c.isspace() else "·") for c in text).split())


def _utf8(text: str) -> str:
    # Parquet holds UTF-8 alone; half a surrogate pair, which a hostile name may hold, becomes its escape.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
