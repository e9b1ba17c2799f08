"""Fences around texts nobody vouches for: a model reads them as data, and nothing in them can end the fence."""

import re
import secrets
from collections.abc import Iterable

from runner import digests

N_NONCE_DIGITS = 12
_UNSHOWABLE = re.compile("[\x00\ud800-\udfff]")


def nonce(texts: Iterable[str]) -> str:
    """A random code that occurs in none of the texts (hexadecimal, 12 digits)."""
    texts = tuple(texts)
    while True:
        code = secrets.token_hex(N_NONCE_DIGITS // 2)
        if not any(code in text.lower() for text in texts):
            return code


def code_for(*texts: str) -> str:
    """A code drawn from the texts' own digest (hexadecimal, 24 digits), so that one text always gives one prompt.

    A text that held its own code would have to be found by trying 2⁹⁶ of them; the code is drawn again if one does.
    """
    code = digests.of_value(["fence", *texts])[:24]
    while any(code in text.lower() for text in texts):
        code = digests.of_text(code)[:24]
    return code


def showable(text: str) -> str:
    """The text as a request can carry it: NUL and lone surrogates, which JSON or UTF-8 cannot, become U+FFFD."""
    return _UNSHOWABLE.sub("\ufffd", text)


def fenced(code: str, name: str, text: str) -> str:
    """One text between its fences. `name` is ours, never taken from a text.

    Raises:
        ValueError: the text holds the code, so that it could close its own fence.
    """
    if code in text.lower():
        raise ValueError("the code occurs in the text; draw another")
    return f"<<<{code} {name}\n{showable(text)}\n{code}>>>"
