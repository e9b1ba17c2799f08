"""Reads JSON from outside: whatever is wrong with the text, nesting without end included, is one ValueError."""

import json
from typing import Any


def loads(raw: str | bytes) -> Any:
    """The value of a JSON text; ValueError where it is none (a text nested too deep would be a RecursionError)."""
    try:
        return json.loads(raw)
    except RecursionError:
        raise ValueError("nested too deep") from None
