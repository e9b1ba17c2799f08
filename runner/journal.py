"""The events of one attempt under way, on disk as they happen, so that a killed attempt goes on where it was."""

import json
import os
from pathlib import Path
from typing import Any

from runner import digests, plain_json
from runner.study import set_aside_torn_tail, write_atomically


class Journal:
    """One file of JSON Lines below `open/` of a study; its first line names what the attempt is made from.

    Args:
        path: the file, or None to keep the events in memory alone.
    """

    def __init__(self, path: Path | None):
        self.path = path
        self.events: list[dict[str, Any]] = []

    @classmethod
    def of(cls, study: Path, key: str) -> "Journal":
        """The journal of an attempt of a study, by the attempt's key."""
        return cls(study / "open" / f"{digests.of_text(key)[:32]}.jsonl")

    def begin(self, head: dict[str, Any]) -> list[dict[str, Any]]:
        """Open with this head and return the events after it: those of an earlier start, if it had the same head.

        What was begun from something else (another prompt, note or problem) is set aside and never read again.
        """
        head = {"event": "head", **head}
        self.events = self._read()
        if self.events and self.events[0] == json.loads(json.dumps(head)):
            return self.events[1:]
        if self.events:
            os.replace(self.path, self.path.with_suffix(".superseded"))
        self.events = []
        self.write(head)
        return []

    def write(self, event: dict[str, Any]) -> None:
        """Append one event, durably."""
        line = json.dumps(event, sort_keys=True, ensure_ascii=True, allow_nan=False)
        self.events.append(json.loads(line))
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "ab", buffering=0) as stream:
            data = memoryview(f"{line}\n".encode("ascii"))
            while data:
                data = data[stream.write(data) :]
            os.fsync(stream.fileno())

    def text(self) -> str:
        """All events as JSON Lines: the attempt's transcript."""
        return "".join(json.dumps(e, sort_keys=True, ensure_ascii=True) + "\n" for e in self.events)

    def remove(self) -> None:
        """Forget the attempt's events: its record holds their digest, the study their text."""
        self.events = []
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def _read(self) -> list[dict[str, Any]]:
        if self.path is None or not self.path.exists():
            return []
        set_aside_torn_tail(self.path)
        try:
            found = [plain_json.loads(line) for line in self.path.read_bytes().splitlines()]
        except ValueError:
            return [{"event": "unreadable"}]
        return found if all(isinstance(e, dict) for e in found) else [{"event": "unreadable"}]


def keep(study: Path, text: str) -> str:
    """Keep a finished transcript under its digest below `transcripts/`, and return the digest."""
    sha256 = digests.of_text(text)
    target = study / "transcripts" / f"{sha256}.jsonl"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, text)
    return sha256
