"""Small charts that are part of a page: drawn by hand, coloured by the page's sheet, one of them a case."""

import math
from collections.abc import Sequence

from markupsafe import Markup

from mkb_analyze.report.texts import safe
from mkb_analyze.transfers import Outcome

_W, _H, _LEFT, _RIGHT, _TOP, _FOOT = 720, 250, 52, 150, 14, 40


def timeline(lines: Sequence[tuple[str, Sequence[float | None]]], title: str) -> Markup:
    """Speedups of submissions in order, one line an attempt, on a log scale; a failed one is a cross at the foot.

    `lines`: (name, speedup of each submission or None where it failed), at most three.
    """
    known = [s for _, speedups in lines for s in speedups if s]
    n = max((len(s) for _, s in lines), default=0)
    if not n:
        return Markup("")
    low, high = min([*known, 1.0]) / 1.25, max([*known, 1.0]) * 1.25
    width, height = _W - _LEFT - _RIGHT, _H - _TOP - _FOOT - 14

    def x(i: int) -> float:
        return _LEFT + (width * i / (n - 1) if n > 1 else width / 2)

    def y(speedup: float) -> float:
        return _TOP + height * (1 - math.log(speedup / low) / math.log(high / low))

    parts = []
    for tick in _ticks(low, high):
        kind = "one" if tick == 1 else "grid"
        parts.append(f'<line class="{kind}" x1="{_LEFT}" x2="{_W - _RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y(tick) + 4:.1f}" class="end">{tick:g}×</text>')
    step = max(1, -(-n // 12))
    parts += [f'<text x="{x(i):.1f}" y="{_H - 20}" class="mid">{i + 1}</text>' for i in range(0, n, step)]
    parts.append(
        f'<text x="{x(0) + width / 2 if n > 1 else x(0):.1f}" y="{_H - 4}" class="mid dimmed">submission</text>'
    )
    names = []
    for k, (name, speedups) in enumerate(lines):
        points = [(x(i), y(s)) for i, s in enumerate(speedups) if s]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        parts.append(f'<polyline class="s{k}" points="{path}"/>')
        parts += [_mark(k, a, b) for a, b in points]
        foot = _TOP + height + 6 + 5 * k
        parts += [
            f'<path class="s{k}" d="M{x(i) - 4:.1f} {foot - 4}l8 8m0 -8l-8 8"/>'
            for i, s in enumerate(speedups)
            if not s
        ]
        # The name stands where the line ends; a name that would cover another moves down.
        at = points[-1][1] if points else foot
        while any(abs(at - other) < 15 for other in names):
            at += 15
        names.append(at)
        parts.append(f'<text class="t{k}" x="{_W - _RIGHT + 14}" y="{at + 4:.1f}">{safe(name)}</text>')
    alt = f"{title}. " + "; ".join(
        f"{name}: {', '.join(f'{s:.2f}' if s else 'failed' for s in speedups)}" for name, speedups in lines
    )
    return Markup(
        f'<svg class="chart" viewBox="0 0 {_W} {_H}" role="img" aria-label="{safe(alt)}">{"".join(parts)}</svg>'
    )


def _mark(k: int, x: float, y: float) -> str:
    if k == 0:
        return f'<circle class="s{k}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
    if k == 1:
        return f'<rect class="s{k}" x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"/>'
    return f'<path class="s{k} full" d="M{x:.1f} {y - 5:.1f}l5 9h-10z"/>'


def _ticks(low: float, high: float) -> list[float]:
    powers = [2.0**k for k in range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)]
    step = max(1, -(-len(powers) // 6))
    kept = powers[::step]
    return sorted({*kept, 1.0})


def strip(rows: Sequence[tuple[str, Sequence[tuple[float, Outcome]]]], band: float, title: str) -> Markup:
    """Paired ratios on one log axis, one line a name, with the neutral band; each point coloured by its outcome."""
    ratios = [r for _, points in rows for r, _ in points]
    if not ratios:
        return Markup("")
    edge = max(*(abs(math.log(r)) for r in ratios), 2 * math.log1p(band), math.log(1.2)) * 1.1
    left, right, line = 250, 24, 26
    width, height = _W - left - right, line * len(rows)

    def x(ratio: float) -> float:
        return left + width * (math.log(ratio) + edge) / (2 * edge)

    parts = [
        f'<rect class="band" x="{x(1 / (1 + band)):.1f}" y="0" width="{x(1 + band) - x(1 / (1 + band)):.1f}" '
        f'height="{height}"/>'
    ]
    for tick in _ticks(math.exp(-edge), math.exp(edge)):
        kind = "one" if tick == 1 else "grid"
        parts.append(f'<line class="{kind}" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="0" y2="{height}"/>')
        parts.append(f'<text x="{x(tick):.1f}" y="{height + 18}" class="mid">{tick:g}×</text>')
    for i, (name, points) in enumerate(rows):
        at = line * i + line / 2
        shown = name if len(name) <= 34 else name[:16] + "…" + name[-16:]
        parts.append(f'<text x="{left - 10}" y="{at + 4:.1f}" class="end">{safe(shown)}</text>')
        parts += [f'<circle class="f-{o.value}" cx="{x(r):.1f}" cy="{at:.1f}" r="5"/>' for r, o in points]
    alt = f"{title}. " + "; ".join(f"{name}: {', '.join(f'{r:.2f} {o.value}' for r, o in p)}" for name, p in rows)
    return Markup(
        f'<svg class="chart" viewBox="0 0 {_W} {height + 26}" role="img" aria-label="{safe(alt)}">'
        f"{''.join(parts)}</svg>"
    )
