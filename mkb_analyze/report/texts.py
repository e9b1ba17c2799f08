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
_LEXER = PythonLexer(stripnl=False, ensurenl=False)
_FORMATTER = HtmlFormatter(nowrap=True)
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
    if text.isprintable():
        return escape(text)
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
            out.append(Markup('<span class="spot" id="{}"></span>').format(name))
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
        out.append(Markup("<sup>{}</sup></mark>").format(" · ".join([label.replace("_", " "), *_flags(claim)])))
    plain(len(cut))
    if len(text) > MAX_SHOWN:
        out.append(Markup("\n<em>… {} more characters are in the study's file.</em>").format(len(text) - MAX_SHOWN))
    return Markup("").join(out)


def _flags(claim: LabelledClaim) -> list[str]:
    """The flags that are set, short enough to stand in the text: a yes as its name, any other value as it is."""
    said = {k.replace("_", " "): str(v).lower() for k, v in claim.flags.items()}
    return [k if v == "true" else f"{k} {v}" for k, v in said.items() if v != "false"]


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


def kernel_lines(text: str) -> list[str]:
    """The lines of Python source as escaped HTML in colour; long files are cut."""
    shown = _INVISIBLE.sub(lambda m: f"⟨U+{ord(m[0]):04X}⟩", lines_joined(text[:MAX_SHOWN]))
    return highlight(shown, _LEXER, _FORMATTER).removesuffix("\n").split("\n")


def lines_joined(text: str) -> str:
    """The text with every line ended by one line feed, as the lexer counts lines."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def line_of(text: str, at: int) -> int:
    """The number, from 1, of the line that holds offset `at` (code points)."""
    return lines_joined(text[:at]).count("\n") + 1


def kernel(lines: Sequence[str], prefix: str) -> Markup:
    """Coloured source with numbered lines, each a place (`prefix-L12`) that a link can lead to."""
    body = "".join(f'<span class="l" id="{prefix}-L{i}">{line}\n</span>' for i, line in enumerate(lines, 1))
    return Markup(f'<pre class="code" tabindex="0">{body}</pre>')


def code_css() -> str:
    """The sheet for coloured source in light and dark."""
    light = HtmlFormatter(style="default", cssclass="code").get_style_defs(".code")
    dark = HtmlFormatter(style="github-dark", cssclass="code").get_style_defs(".code")
    light = "\n".join(l for l in light.splitlines() if "background" not in l or ".err" in l)
    dark = "\n".join("  " + l for l in dark.splitlines() if "background:" not in l.split("}")[0] or " ." in l)
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"


def difference(before: Sequence[str], after: Sequence[str], context: int = 3, max_lines: int = 4000) -> Markup:
    """The difference of two kernels in coloured lines, with both line numbers; empty when they are equal."""
    a, b = before[:max_lines], after[:max_lines]
    out = []
    for group in difflib.SequenceMatcher(None, a, b).get_grouped_opcodes(context):
        if out:
            out.append('<span class="gap">⋯</span>')
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                out += [_diff_line(" ", i1 + k + 1, j1 + k + 1, a[i1 + k]) for k in range(i2 - i1)]
                continue
            out += [_diff_line("−", i + 1, None, a[i]) for i in range(i1, i2)]
            out += [_diff_line("+", None, j + 1, b[j]) for j in range(j1, j2)]
    return Markup(f'<pre class="code diff" tabindex="0">{"".join(out)}</pre>') if out else Markup("")


def _diff_line(sign: str, i: int | None, j: int | None, line: str) -> str:
    kind = {"−": "del", "+": "add", " ": "same"}[sign]
    return f'<span class="{kind}"><i>{i or "":>4} {j or "":>4} {sign} </i>{line}\n</span>'
