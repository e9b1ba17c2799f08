"""Tables to pictures: seaborn figures, saved as SVG and PNG with the same bytes for the same numbers."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from mkb_analyze.stats.estimate import Estimate
from mkb_analyze.table import Table

HELPED, NEUTRAL, HARMED = "#1a7f4b", "#9aa1ab", "#b3261e"
OUTCOME_COLOURS = {"helped": HELPED, "neutral": NEUTRAL, "harmed": HARMED}
# A hostile name must not be read as mathematics, and text in the SVG stays text that can be searched and pasted.
_STYLE = {
    "svg.hashsalt": "mkb-analyze",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "axes.grid.axis": "x",
    "font.family": "DejaVu Sans",
    "savefig.bbox": "tight",
    "figure.dpi": 100,
}


def save(figure: Figure, folder: Path, name: str) -> tuple[Path, Path]:
    """Write `name.svg` and `name.png`; no date goes into either."""
    folder.mkdir(parents=True, exist_ok=True)
    svg, png = folder / f"{name}.svg", folder / f"{name}.png"
    with matplotlib.rc_context(_STYLE):
        figure.savefig(svg, metadata={"Date": None, "Creator": "mkb-analyze"})
        figure.savefig(png, dpi=160, metadata={"Software": "mkb-analyze"})
    plt.close(figure)
    return svg, png


def _axes(n_rows: float, width: float = 7.2, height: float = 0.34, base: float = 1.0) -> tuple[Figure, Any]:
    with matplotlib.rc_context(_STYLE):
        sns.set_theme(style="whitegrid", rc=_STYLE)
        return plt.subplots(figsize=(width, base + height * max(n_rows, 2)))


def short(text: Any, limit: int = 46) -> str:
    """A label that fits: control characters out, long names cut in the middle."""
    clean = "".join(c if c.isprintable() else "·" for c in str(text))
    return clean if len(clean) <= limit else clean[: limit // 2 - 1] + "…" + clean[-(limit // 2 - 1) :]


def paired_ratios(rows: pd.DataFrame, band: float) -> Figure:
    """Sorted paired ratios, one point a transfer, the neutral band shaded; axis in powers of two."""
    rows = rows.sort_values(["ratio", "transfer"]).reset_index(drop=True)
    figure, axes = _axes(min(len(rows), 60), height=0.26)
    few = len(rows) <= 60
    axes.axvspan(1 / (1 + band), 1 + band, color=NEUTRAL, alpha=0.25, lw=0, label=f"neutral band ±{100 * band:g}%")
    for outcome, part in rows.groupby("outcome", sort=True):
        axes.scatter(
            part["ratio"],
            part.index,
            color=OUTCOME_COLOURS[str(outcome)],
            s=42 if few else 9,
            label=str(outcome),
            zorder=3,
        )
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}×")
    axes.set_xlabel("conditioned ÷ solo speedup (clipped)")
    axes.set_yticks(range(len(rows)) if few else [], [short(t) for t in rows["transfer"]] if few else [])
    axes.legend(loc="lower right", frameon=True, fontsize=9)
    return figure


def intervals(table: Table, label: str, value: str, xlabel: str, unit: float = 100.0, zero: bool = True) -> Figure:
    """One estimate a row with its interval; rows without an estimate are left out and counted in the caption."""
    rows = [r for r in table.rows if isinstance(r[value], Estimate) and not math.isnan(r[value].estimate)]
    figure, axes = _axes(len(rows))
    for y, row in enumerate(reversed(rows)):
        e: Estimate = row[value]
        colour = (
            NEUTRAL if not zero or math.isnan(e.low) or e.low <= 0 <= e.high else HARMED if e.estimate > 0 else HELPED
        )
        if not math.isnan(e.low):
            axes.plot([unit * e.low, unit * e.high], [y, y], color=colour, lw=2.2, solid_capstyle="round")
        axes.plot([unit * e.estimate], [y], "o", color=colour, ms=7)
    axes.set_yticks(range(len(rows)), [short(r[label]) for r in reversed(rows)])
    if zero:
        axes.axvline(0, color="#57606a", lw=1)
    axes.set_xlabel(xlabel)
    axes.set_ylim(-0.7, max(len(rows) - 0.3, 0.7))
    return figure


def stacked(names: Sequence[str], parts: Sequence[tuple[str, Sequence[float], str]], xlabel: str) -> Figure:
    """Horizontal bars that add up, one a name; `parts` are (label, values, colour)."""
    figure, axes = _axes(len(names), height=0.42)
    left = [0.0] * len(names)
    for label, values, colour in parts:
        axes.barh(range(len(names)), values, left=left, color=colour, label=label, edgecolor="white")
        for y, (start, value) in enumerate(zip(left, values, strict=False)):
            if value > 0:
                axes.text(start + value / 2, y, f"{value:g}", ha="center", va="center", fontsize=9, color="white")
        left = [a + b for a, b in zip(left, values, strict=False)]
    axes.set_yticks(range(len(names)), [short(n) for n in names])
    axes.invert_yaxis()
    axes.set_xlabel(xlabel)
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.16 - 0.3 / max(len(names), 1)), ncols=4, frameon=False, fontsize=9
    )
    return figure


def timeline(points: Sequence[tuple[str, Sequence[float], Sequence[float | None]]]) -> Figure:
    """Speedup over submissions, one line an attempt; a failed submission is a cross on the floor line."""
    figure, axes = _axes(8, height=0.28)
    for k, (label, indices, speedups) in enumerate(points):
        colour = sns.color_palette("colorblind")[k % 10]
        known = [(i, s) for i, s in zip(indices, speedups, strict=False) if s is not None]
        axes.plot([i for i, _ in known], [s for _, s in known], "o-", color=colour, label=label)
        axes.plot(
            [i for i, s in zip(indices, speedups, strict=False) if s is None],
            [0.02 + 0.025 * k] * sum(s is None for s in speedups),
            "x",
            color=colour,
            transform=axes.get_xaxis_transform(),
            ms=8,
        )
    axes.axhline(1, color=NEUTRAL, lw=1, ls="--")
    axes.set_xlabel("submission (× failed)")
    axes.set_ylabel("speedup over the reference")
    axes.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(integer=True))
    axes.legend(fontsize=9)
    return figure
