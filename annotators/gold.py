"""Reads gold: settled labels of claims, with the notes that they stand in."""

import bisect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from annotators.claims import Claim
from annotators.rubric import Rubric
from annotators.tasks.content import Note
from runner import digests, plain_json
from runner.errors import UserError

SLACK_CHARS = 3  # a gold span and a claim are the same where both ends lie this near


def read_gold(path: Path, rubric: Rubric) -> list[dict[str, Any]]:
    """The lines of a gold file that hold a settled label of the rubric."""
    lines = []
    number = 0
    try:
        with open(path, "rb") as stream:
            for number, raw in enumerate(stream, 1):
                if not raw.strip():
                    continue
                line = plain_json.loads(raw)
                if line["category"] is None:
                    continue
                if line["category"] not in rubric.answers:
                    raise UserError(f"{path}:{number}: category {line['category']!r} is not in rubric {rubric.id}")
                lines.append(
                    {
                        "note": str(line["note"]),
                        "note_sha256": str(line["note_sha256"]),
                        "start": int(line["start"]),
                        "end": int(line["end"]),
                        "category": line["category"],
                    }
                )
    except OSError as fault:
        raise UserError(f"{path}: cannot be read ({fault.strerror}); name a gold file") from None
    except (ValueError, KeyError, TypeError, OverflowError):
        raise UserError(f"{path}:{number}: no gold line (note, note_sha256, start, end, category)") from None
    if not lines:
        raise UserError(f"{path}: holds no settled label; a gold line has a category")
    return lines


def note(gold: Path, name: str, sha256: str) -> Note:
    """The note of that name in the folder `notes` beside a gold file; UserError where it is missing or was changed."""
    file = gold.parent / "notes" / Path(name).name
    try:
        text = file.read_bytes().decode("utf-8", "surrogatepass")
    except (OSError, UnicodeDecodeError):
        raise UserError(f"{file}: a note that the gold file names is missing or unreadable") from None
    if digests.of_text(text) != sha256:
        raise UserError(f"{file}: was changed after it was labelled; restore it")
    return Note.of(text, sha256)


def match(claims: Sequence[Claim], start: int, end: int) -> int | None:
    """The index of the claim with that span, give or take `SLACK_CHARS` at either end."""
    n = bisect.bisect_left([c.start for c in claims], start - SLACK_CHARS)
    while n < len(claims) and claims[n].start <= start + SLACK_CHARS:
        if abs(claims[n].end - end) <= SLACK_CHARS:
            return n
        n += 1
    return None
