"""Reads the hand-written training notes and writes each out in several wordings, with a label on every claim."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

HOME = Path(__file__).resolve().parents[1] / "data" / "authored"

# one letter a category, so that a line of the source stays readable
CODES = {
    "c": "workload_census",
    "m": "measured_bottleneck",
    "r": "verified_reformulation",
    "h": "hardware_mapping",
    "n": "numerics_constraint",
    "o": "offload_boundary",
    "f": "bounded_failure_diagnosis",
    "v": "verification_recipe",
    "q": "open_question",
    "u": "unverified_claim",
    "x": "unsupported_closure",
    "z": "none",
}
EVIDENCE = {"M": "measured", "R": "reasoned", "N": "none"}

_LABELLED = re.compile(
    r"^(?P<mark>\||-{1,3}|\d\.)?(?P<code>[cmrhnofvquxz])(?P<evidence>[MRN])(?P<dsl>\+?) (?P<text>.+)$"
)
_TITLE = re.compile(r"^(?P<mark>-{1,3})~ (?P<text>.+)$")
_SLOT = re.compile(r"\{([^{}]*\|[^{}]*)\}")


@dataclass(frozen=True)
class Labelled:
    """A labelled stretch of a written note."""

    start: int
    end: int
    category: str
    evidence: str
    dsl_specific: bool


def _fill(line: str, draw: np.random.Generator) -> str:
    """The line with one wording drawn for each {a|b|c}."""
    return _SLOT.sub(lambda m: (o := m[1].split("|"))[int(draw.integers(len(o)))], line)


def _columns(mark: str) -> str:
    return mark + " " if mark.endswith(".") else "  " * (len(mark) - 1) + "- "


def write(source: list[str], draw: np.random.Generator) -> tuple[str, list[Labelled]]:
    """One wording of a note: its Markdown and the labelled stretches."""
    text, labels, previous = "", [], ""
    for raw in source:
        line = _fill(raw.rstrip("\n"), draw)
        found = _LABELLED.match(line)
        title = None if found else _TITLE.match(line)
        if found is None and title is None:
            text += line + "\n"
            if line.startswith("| ") and not previous.startswith("|"):
                text += "|" + "---|" * (line.count("|") - 1) + "\n"
            previous = line
            continue
        mark = (found or title)["mark"] or ""
        body = (found or title)["text"]
        if previous and (previous[0] in "-|" or previous[0].isdigit()) != bool(mark) and previous.strip():
            text += "\n"
        text += "| " if mark == "|" else (_columns(mark) if mark else "")
        start = len(text)
        text += body
        if found:
            stop = len(text.rstrip(" |")) if mark == "|" else len(text)
            labels.append(Labelled(start, stop, CODES[found["code"]], EVIDENCE[found["evidence"]], bool(found["dsl"])))
        text += "\n"
        previous = (mark or "p") + "x"
    return text, labels


def sources(folder: Path = HOME) -> Iterator[tuple[str, str | None, list[str]]]:
    """(name, the labelled note whose manner it follows or None, lines) of every hand-written note, in order."""
    for path in sorted(folder.glob("*.txt")):
        part: list[str] = []
        follows, n = None, 0
        for line in [*path.read_text(encoding="utf-8").splitlines(), "==="]:
            if line == "===" or line.startswith("=== "):
                if any(p.strip() for p in part):
                    n += 1
                    yield f"{path.stem}#{n}", follows, part
                part, follows = [], line[3:].strip() or None
            else:
                part.append(line)
