"""Verbs on a study as a whole: is it all there."""

from pathlib import Path
from typing import Any

from mkb_analyze.console import NEGATIVE, OK, Answer
from mkb_analyze.verbs.parse import switch


def checked(study: Any, repair: Any) -> Answer:
    """What a check of every line and text found; status 1 while something recorded cannot be read."""
    from mkb_analyze.check import check

    seen = check(Path(str(study)), switch(repair, "repair"))
    lines = [f"{f.level}: {f.where}: {f.what}; {f.cure}" for f in seen.findings]
    counts = ", ".join(f"{n} {name}" for name, n in {**seen.n_lines, **seen.n_texts}.items() if n)
    verdict = "whole" if seen.whole else "NOT whole"
    lines.append(f"{study}: {verdict} ({counts or 'empty'})")
    data = {
        "whole": seen.whole,
        "n_lines": seen.n_lines,
        "n_texts": seen.n_texts,
        "findings": [f.line() for f in seen.findings],
    }
    return Answer("\n".join(lines), data, OK if seen.whole else NEGATIVE)
