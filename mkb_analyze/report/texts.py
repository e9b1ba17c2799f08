"""Hostile text to safe HTML: notes with their claims marked, kernels in colour, the difference of two kernels."""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from mkb_analyze.labels import LabelledClaim

MAX_SHOWN = 200_000
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


@dataclass(frozen=True)
class Palette:
    """The colour class and the short name of each label, in the rubric's order."""

    css: dict[str, str]
    unsupported: frozenset[str]

    @classmethod
    def of(cls, labels: Sequence[str], none_label: str | None, unsupported: Sequence[str]) -> "Palette":
        css = {name: f"c{i % 11}" for i, name in enumerate(labels)}
        if none_label:
            css[none_label] = "c11"
        return cls(css, frozenset(unsupported))


def safe(text: str) -> Markup:
    """Text as HTML: escaped, and characters that are invisible or turn the direction shown as their code."""
    return Markup(_INVISIBLE.sub(lambda m: f"⟨U+{ord(m[0]):04X}⟩", str(escape(text))))


def note(
    text: str,
    claims: Sequence[LabelledClaim],
    palette: Palette,
    prefix: str = "claim",
    anchors: Sequence[tuple[int, int, str]] = (),
) -> Markup:
    """A note letter for letter with each claim in a coloured mark.

    Args:
        anchors: (start, end, id) of quotations; an empty element with that id is put at each start.
    """
    cut = text[:MAX_SHOWN]
    spots = sorted({(min(start, len(cut)), name) for start, _, name in anchors})
    out, at = [], 0

    def plain(until: int) -> None:
        nonlocal at
        while at < until:
            following = next(((s, n) for s, n in spots if at <= s < until), None)
            if following is None:
                out.append(safe(cut[at:until]))
                at = until
                return
            start, name = following
            out.append(safe(cut[at:start]))
            out.append(Markup('<span id="{}"></span>').format(name))
            spots.remove(following)
            at = start

    for _index, claim in enumerate(claims):
        if claim.start < at or claim.end > len(cut):
            continue
        plain(claim.start)
        label = claim.label or "no majority"
        title = _describe(claim)
        bad = Markup(" data-unsupported") if claim.label in palette.unsupported else ""
        out.append(
            Markup('<mark class="claim {}" id="{}-{}-{}" title="{}"{}>').format(
                palette.css.get(claim.label or "", "c11"), prefix, claim.start, claim.end, title, bad
            )
        )
        plain(claim.end)
        out.append(Markup("<sup>{}</sup></mark>").format(label.replace("_", " ")))
    plain(len(cut))
    if len(text) > MAX_SHOWN:
        out.append(Markup("\n<em>… {} more characters are in the study's file.</em>").format(len(text) - MAX_SHOWN))
    return Markup("").join(out)


def _describe(claim: LabelledClaim) -> str:
    parts = [claim.label or "no majority"]
    parts += [f"{k.replace('_', ' ')}: {v}" for k, v in claim.flags.items()]
    if claim.probability is not None:
        parts.append(f"probability {claim.probability:.2f}")
    if len(claim.votes.by_rater) > 1:
        parts.append(f"doubt {claim.votes.doubt:.2f}")
        parts += [f"{rater}: {label or 'unscored'}" for rater, label in sorted(claim.votes.by_rater.items())]
    return "; ".join(parts)


def legend(palette: Palette, used: Sequence[str]) -> Markup:
    """The colours that occur, each with its name."""
    items = [
        Markup('<li class="{}">{}</li>').format(css, name.replace("_", " "))
        for name, css in palette.css.items()
        if name in used
    ]
    return Markup('<ul class="legend" aria-label="Categories">{}</ul>').format(Markup("").join(items))


def kernel(text: str) -> Markup:
    """Python source in colour, escaped; long files are cut and say so."""
    shown = _INVISIBLE.sub(lambda m: f"⟨U+{ord(m[0]):04X}⟩", text[:MAX_SHOWN])
    html = highlight(shown, PythonLexer(stripnl=False, ensurenl=False), HtmlFormatter(cssclass="code"))
    return Markup(html.replace("<pre>", '<pre tabindex="0">', 1))


def code_css() -> str:
    """The sheet for coloured source in light and dark."""
    light = HtmlFormatter(style="default", cssclass="code").get_style_defs(".code")
    dark = HtmlFormatter(style="github-dark", cssclass="code").get_style_defs(".code")
    light = "\n".join(l for l in light.splitlines() if "background" not in l or ".err" in l)
    dark = "\n".join("  " + l for l in dark.splitlines() if "background:" not in l.split("}")[0] or " ." in l)
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"


def difference(before: str, after: str, max_lines: int = 4000) -> Markup:
    """A unified difference of two kernels as HTML; empty when they are equal."""
    a, b = before.splitlines()[:max_lines], after.splitlines()[:max_lines]
    lines = []
    for line in difflib.unified_diff(a, b, "solo", "conditioned", lineterm="", n=3):
        kind = "add" if line.startswith("+") else "del" if line.startswith("-") else ""
        lines.append(Markup('<span class="{}">{}</span>\n').format(kind, safe(line)) if kind else safe(line) + "\n")
    return Markup('<pre class="diff" tabindex="0">{}</pre>').format(Markup("").join(lines)) if lines else Markup("")
