"""Finds a quotation in its source, letter for letter, or forgiving nothing but the white space."""

import re
from dataclasses import dataclass
from enum import StrEnum

MIN_LETTERS = 3
_RUN = re.compile(r"\s+")


class Match(StrEnum):
    """How a quotation matched: `exact` letter for letter, `normalised` but for runs of white space."""

    EXACT = "exact"
    NORMALISED = "normalised"


@dataclass(frozen=True, slots=True)
class Span:
    """`source[start:end]`, in code points, is what the source says there."""

    start: int
    end: int
    match: Match

    def of(self, source: str) -> str:
        """The stretch of the source."""
        return source[self.start : self.end]


def find(quotation: str, source: str) -> Span | None:
    """Where the quotation first stands in the source; None when it does not.

    A quotation of fewer than three characters that are no white space proves nothing and is refused (None). The
    exact match is preferred; the normalised one takes any run of white space for any other and gives the span of
    the source as it is written. Time linear in both lengths.
    """
    if len("".join(quotation.split())) < MIN_LETTERS:
        return None
    at = source.find(quotation)
    if at >= 0:
        return Span(at, at + len(quotation), Match.EXACT)
    wanted = _RUN.sub(" ", quotation.strip())
    flat = _RUN.sub(" ", source)
    at = flat.find(wanted)
    if at < 0:
        return None
    return Span(*_unflatten(source, at, at + len(wanted)), Match.NORMALISED)


def _unflatten(source: str, start: int, end: int) -> tuple[int, int]:
    """Offsets into the source of a stretch of its flattened form; both ends are letters, never white space."""
    shift, first, last = 0, start, end
    for run in _RUN.finditer(source):
        flat = run.start() - shift  # where the single space stands in the flattened form
        if flat >= end:
            break
        extra = run.end() - run.start() - 1
        shift += extra
        if flat < start:
            first += extra
        last += extra
    return first, last
