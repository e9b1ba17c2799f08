"""Prints which share of the reference spans the splitter finds, and which share of its claims is a reference span."""

import json
import os
import sys
from pathlib import Path

from annotators.claims import split

HOME = Path(__file__).parents[1] / "data" / "notes"
_EDGE = " \t\r\n.,;:!?。！？；：…|*_\"'`"


def _norm(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start] in " \t\r\n":
        start += 1
    while end > start and text[end - 1] in _EDGE:
        end -= 1
    return start, end


def measure(folder: Path = HOME) -> tuple[int, int, int, list]:
    """(reference spans found, reference spans, claims made, the missed ones) over a folder of labelled notes."""
    reference: dict[str, list[dict]] = {}
    for line in (folder / "gold.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        reference.setdefault(row["note"], []).append(row)
    n_found = n_reference = n_claims = 0
    missed = []
    for note, rows in sorted(reference.items()):
        text = (folder / "notes" / note).read_bytes().decode("utf-8")
        made = {_norm(text, c.start, c.end) for c in split(text)}
        n_claims += len(made)
        for row in rows:
            n_reference += 1
            if _norm(text, row["start"], row["end"]) in made:
                n_found += 1
            else:
                missed.append((note, row["start"], row["end"], row["text"]))
    return n_found, n_reference, n_claims, missed


if __name__ == "__main__":
    where = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(os.environ.get("MKB_NOTES", HOME))
    found, n, made, missed = measure(where)
    print(
        f"found {found} of {n} reference spans ({found / n:.1%}); {made} claims made ({found / made:.1%} of them found)"
    )
    for note, start, end, text in missed:
        print(f"  missed {note} {start}-{end} {text!r}")
