"""Tables to pictures: seaborn figures, saved as SVG (light and dark) and PNG, the same bytes for the same numbers."""

import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from mkb_analyze.stats.estimate import Estimate

HELPED, NEUTRAL, HARMED = "#1a7f4b", "#9aa1ab", "#b3261e"
OUTCOME_COLOURS = {"helped": HELPED, "neutral": NEUTRAL, "harmed": HARMED}
INK, GRID, ACCENT, PALE = "#24292f", "#d8dee4", "#2f5fa7", "#eceff3"
# Eight colours for parts that have no order; each at least 3 : 1 on white, neighbours far apart.
PARTS = ("#2f5fa7", "#c2571a", "#6b8e23", "#7d4fa0", "#00798c", "#a23b5b", "#7a6a00", "#5c6670")
# What is written on a colour: dark where the colours are light.
ON_COLOUR = "#fefefe"
# What a colour becomes where the page is dark; a viewer that knows no such mode keeps the first.
_DARK = {
    ON_COLOUR: "#12161b",
    INK: "#e3e7ec", GRID: "#39424d", ACCENT: "#8ab0ee", PALE: "#242d37", HELPED: "#5bc98c", NEUTRAL: "#8b949e",
    HARMED: "#f08078", "#2f5fa7": "#8ab0ee", "#c2571a": "#f0a070", "#6b8e23": "#b3d15c", "#7d4fa0": "#c9a3e8",
    "#00798c": "#5cc8d8", "#a23b5b": "#ee8fae", "#7a6a00": "#d8c44a", "#5c6670": "#aeb8c2",
}  # fmt: skip
# A hostile name must not be read as mathematics, and text in the SVG stays text that can be searched and pasted.
_STYLE = {
    "svg.hashsalt": "mkb-analyze",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "axes.grid": True,
    "axes.grid.axis": "x",
    "axes.axisbelow": True,
    "axes.edgecolor": GRID,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "ytick.left": False,
    "xtick.bottom": False,
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "savefig.bbox": "tight",
    "figure.dpi": 100,
}


def save(figure: Figure, folder: Path, name: str) -> tuple[Path, Path]:
    """Write `name.svg` and `name.png`; no date goes into either. The SVG follows the reader's light or dark mode."""
    folder.mkdir(parents=True, exist_ok=True)
    svg, png = folder / f"{name}.svg", folder / f"{name}.png"
    with matplotlib.rc_context(_STYLE):
        figure.savefig(svg, metadata={"Date": None, "Creator": "mkb-analyze"}, transparent=True)
        figure.savefig(png, dpi=160, metadata={"Software": "mkb-analyze"})
    plt.close(figure)
    svg.write_text(_with_dark_mode(svg.read_text("utf-8")), "utf-8")
    return svg, png


def _with_dark_mode(svg: str) -> str:
    rules = "".join(
        f'[style*="{what}: {light}"]{{{what}:{dark} !important}}'
        for light, dark in _DARK.items()
        for what in ("fill", "stroke")
    )
    sheet = f"<style>@media (prefers-color-scheme: dark){{{rules}}}</style>"
    at = svg.index(">", svg.index("<svg")) + 1
    return svg[:at] + sheet + svg[at:].replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, 'Noto Sans', sans-serif")


def _styled(draw: Any) -> Any:
    """Run a drawing function under the report's style, and leave the caller's matplotlib as it was."""

    @functools.wraps(draw)
    def styled(*args: Any, **how: Any) -> Figure:
        with matplotlib.rc_context({**sns.axes_style("white"), **_STYLE}):
            return draw(*args, **how)

    return styled


def _axes(n_rows: float, width: float = 7.6, height: float = 0.34, base: float = 1.0) -> tuple[Figure, Any]:
    return plt.subplots(figsize=(width, base + height * max(n_rows, 2)))


def short(text: Any, limit: int = 46) -> str:
    """A label that fits: control characters out, long names cut in the middle."""
    clean = "".join(c if c.isprintable() else "·" for c in str(text))
    return clean if len(clean) <= limit else clean[: limit // 2 - 1] + "…" + clean[-(limit // 2 - 1) :]


@_styled
def paired_ratios(rows: pd.DataFrame, band: float) -> Figure:
    """Paired ratios, one line a problem sorted by its geometric mean, one point a transfer; the neutral band shaded."""
    means = rows.groupby("problem")["log_ratio"].mean().sort_values(kind="stable")
    place = {problem: y for y, problem in enumerate(means.index)}
    figure, axes = _axes(len(means), height=0.26 if len(means) <= 30 else 0.15, base=1.2)
    axes.axvspan(1 / (1 + band), 1 + band, color=PALE, lw=0, label=f"neutral band ±{100 * band:g}%")
    for outcome in ("harmed", "neutral", "helped"):
        part = rows[rows["outcome"].astype(str) == outcome]
        if len(part):
            # Points of one problem at one ratio would hide one another: a small, fixed offset tells them apart.
            y = part["problem"].map(place) + 0.28 * np.sin(np.arange(len(part)) * 2.4)
            size = 34 if len(rows) <= 120 else 9
            axes.scatter(part["ratio"], y, color=OUTCOME_COLOURS[outcome], s=size, label=outcome, alpha=0.85, lw=0)
    axes.plot(np.exp(means.to_numpy()), range(len(means)), "|", color=INK, ms=9, mew=1.6, label="geometric mean")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}×")
    axes.set_xlabel("conditioned ÷ solo speedup (clipped)")
    names = rows.drop_duplicates("problem").set_index("problem")["problem_name"]
    few = len(means) <= 30
    labels = [short(f"{p} {names[p] or ''}".strip() if few else p, 34) for p in means.index]
    axes.set_yticks(range(len(means)), labels, fontsize=9 if few else 6)
    axes.set_ylim(-0.8, len(means) - 0.2)
    _legend_below(axes, figure)
    return figure


def _legend_below(axes: Any, figure: Figure) -> None:
    # 0.55 inches below the axes, whatever their height, clears the ticks and the label
    inches = figure.get_size_inches()[1] * axes.get_position().height
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.55 / inches), ncols=5, frameon=False)


@_styled
def intervals(
    rows: Sequence[tuple[str, Estimate]], xlabel: str, unit: float = 100.0, zero: bool = True, good: int = -1
) -> Figure:
    """One estimate a row with its interval, from the top; q stands at the right where a row has one.

    Where `zero` is drawn, an interval on one side of it is coloured: `good` is the sign that is to be wished for
    (-1: below 0), 0 where neither is. A row without an estimate has no place here.
    """
    figure, axes = _axes(len(rows), height=0.32)
    for y, (_, e) in enumerate(reversed(rows)):
        known = not math.isnan(e.low)
        clear = zero and known and not e.low <= 0 <= e.high
        colour = ACCENT if not zero else NEUTRAL if not clear else ACCENT
        if clear and good:
            colour = HELPED if e.estimate * good > 0 else HARMED
        if known:
            axes.plot([unit * e.low, unit * e.high], [y, y], color=colour, lw=2.4, solid_capstyle="round")
        axes.plot([unit * e.estimate], [y], "o", color=colour, ms=7)
        if not math.isnan(e.q):
            text = f"q {e.q:.3f}" if e.q >= 0.001 else "q <0.001"
            axes.text(1.01, y, text, transform=axes.get_yaxis_transform(), va="center", fontsize=8)
    axes.set_yticks(range(len(rows)), [short(name) for name, _ in reversed(rows)])
    if zero:
        axes.axvline(0, color=INK, lw=1)
    axes.set_xlabel(xlabel)
    axes.set_ylim(-0.7, max(len(rows) - 0.3, 0.7))
    return figure


@_styled
def stacked(names: Sequence[str], parts: Sequence[tuple[str, Sequence[float], str]], xlabel: str) -> Figure:
    """Bars of shares that add up to 100%, one a name, each part with its count; `parts` are (label, counts, colour)."""
    figure, axes = _axes(len(names), height=0.4)
    totals = [sum(values[i] for _, values, _ in parts) for i in range(len(names))]
    left = [0.0] * len(names)
    for label, values, colour in parts:
        shares = [100 * v / t if t else 0.0 for v, t in zip(values, totals, strict=True)]
        axes.barh(range(len(names)), shares, left=left, color=colour, label=label, height=0.68, lw=0)
        for y, (start, share, value) in enumerate(zip(left, shares, values, strict=True)):
            if share >= 4:
                axes.text(start + share / 2, y, f"{value:g}", ha="center", va="center", fontsize=9, color=ON_COLOUR)
        left = [a + b for a, b in zip(left, shares, strict=True)]
    for y, total in enumerate(totals):
        axes.text(101, y, f"n = {total:g}", va="center", fontsize=8.5)
    axes.set_yticks(range(len(names)), [short(n) for n in names])
    axes.set_xlim(0, 100)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}%")
    axes.invert_yaxis()
    axes.set_xlabel(xlabel)
    _legend_below(axes, figure)
    return figure


@_styled
def calibration(curves: Sequence[tuple[str, Sequence[tuple[float, Estimate]]]]) -> Figure:
    """What a rule predicted against what was seen, one curve a name with intervals; the diagonal is a perfect rule."""
    figure, axes = _axes(11, width=5.2, height=0.3)
    axes.plot([0, 1], [0, 1], color=NEUTRAL, lw=1, ls="--", label="as predicted")
    for (name, points), colour in zip(curves, (HELPED, HARMED, *PARTS), strict=False):
        x = [p for p, _ in points]
        axes.errorbar(
            x,
            [e.estimate for _, e in points],
            [[max(e.estimate - e.low, 0) for _, e in points], [max(e.high - e.estimate, 0) for _, e in points]],
            fmt="o-",
            color=colour,
            label=name,
            lw=1.4,
            ms=5,
        )
    axes.set_xlabel("share predicted")
    axes.set_ylabel("share seen")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    _legend_below(axes, figure)
    return figure


@_styled
def settings_grid(rows: Sequence[tuple[str, Estimate, bool]]) -> Figure:
    """Paired lift under each setting of floor, cap and band; the chosen one stands out."""
    figure, axes = _axes(len(rows), height=0.2)
    for y, (_, e, chosen) in enumerate(reversed(rows)):
        colour = ACCENT if chosen else NEUTRAL
        if not math.isnan(e.low):
            axes.plot([e.low, e.high], [y, y], color=colour, lw=2.4 if chosen else 1.4)
        axes.plot([e.estimate], [y], "o", color=colour, ms=7 if chosen else 4)
    axes.axvline(0, color=INK, lw=1)
    labels = [f"{name}  ◂ chosen" if chosen else name for name, _, chosen in reversed(rows)]
    axes.set_yticks(range(len(rows)), labels, fontsize=7.5)
    axes.set_xlabel("paired lift, %")
    axes.set_ylim(-0.8, len(rows) - 0.2)
    return figure
