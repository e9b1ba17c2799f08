"""Names for content: SHA-256 of texts, files and plain records, the same bytes for the same content."""

import hashlib
import json
from pathlib import Path
from typing import Any


def of_text(text: str) -> str:
    """SHA-256 (64 hex digits) of the UTF-8 bytes of `text`; lone surrogates are kept, not refused."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def of_file(path: Path) -> str:
    """SHA-256 of a file's bytes, read in blocks so that size does not matter."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces: the one spelling of a plain value that digests are taken of."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def of_value(value: Any) -> str:
    """SHA-256 of the canonical JSON of a plain value (dicts, lists, strings, numbers, booleans, None)."""
    return of_text(canonical(value))
