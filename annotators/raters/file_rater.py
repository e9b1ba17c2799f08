"""A file of labels as a rater: a person's or another tool's, held to the same rubric and the same quotations."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from annotators.raters import Outcome
from annotators.records import Rater, RaterKind
from annotators.tasks import Answer
from annotators.tasks.content import Note, chunks
from annotators.tasks.fate import TracedClaim
from annotators.views import TransferView
from runner import digests, plain_json
from runner.clock import utc_now
from runner.errors import UserError

MAX_BYTES = 500_000_000
SLACK_CHARS = 3  # how far a labelled span may lie from a claim's at either end
_NOT_THERE = "not in the file"


class FileRater:
    """Answers from JSON Lines. A line labels one claim, one transfer or one claim's fate, told apart by its fields:

    - `note_sha256`, `start`, `end`, `label` (or `category`), and the rubric's flags; or a whole annotation record;
    - `transfer` (its key or its fields), `cause`, `second_cause`, `adherence`, `note_unused`, `quotations`
      [{`source`, `text`}], `rationale`;
    - `transfer`, `start`, `end`, `fate`, `quotation`.

    What a line says is held to rubric and quotations as a model's answer is. The last line for an item counts.

    Raises:
        UserError: the file cannot be read, or a line of it is none of these.
    """

    def __init__(self, path: str | Path):
        self.path, self.name = Path(path), f"file:{path}"
        self.notes: dict[str, list[tuple[int, int, dict]]] = {}
        self.transfers: dict[str, dict] = {}
        self.fates: dict[tuple[str, int, int], dict] = {}
        try:
            if self.path.stat().st_size > MAX_BYTES:
                raise UserError(f"{self.path}: over {MAX_BYTES} bytes; split the file")
            self.sha256 = digests.of_file(self.path)
            with open(self.path, "rb") as stream:
                for number, raw in enumerate(stream, 1):
                    if raw.strip():
                        self._take(raw, number)
        except OSError as fault:
            raise UserError(f"{self.path}: cannot be read ({fault.strerror}); name a file of labels") from None

    def _take(self, raw: bytes, number: int) -> None:
        try:
            line = plain_json.loads(raw)
            if "fate" in line:
                self.fates[(_transfer_key(line["transfer"]), int(line["start"]), int(line["end"]))] = line
            elif "transfer" in line:
                self.transfers[_transfer_key(line["transfer"])] = line
            elif "claims" in line:
                for claim in line["claims"]:
                    self._claim(line["note_sha256"], claim)
            else:
                self._claim(line["note_sha256"], line)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            raise UserError(
                f"{self.path}:{number}: no label of a claim, transfer or fate; see docs/raters.md"
            ) from None

    def _claim(self, note_sha256: str, line: dict) -> None:
        start, end = int(line["start"]), int(line["end"])
        self.notes.setdefault(str(note_sha256), []).append((start, end, line))

    def identity(self, task: Any, repeat: int) -> Rater:
        return Rater(
            kind=RaterKind.FILE,
            name=self.name,
            rubric_id=task.rubric.id,
            rubric_sha256=task.rubric.sha256,
            repeat=repeat,
            settings={"file_sha256": self.sha256},
        )

    def rate_many(self, task: Any, items: Iterable[Any], repeat: int) -> Iterator[Outcome]:
        rater = self.identity(task, repeat)
        find = {"content": self._content, "attribution": self._attribution, "fate": self._fate}[task.name]
        for item in items:
            answers = find(item)
            if answers is None:
                yield Outcome(None, _NOT_THERE)
            else:
                yield Outcome(task.read(item, answers, rater, None, utc_now()))

    def _content(self, note: Note) -> list[Answer] | None:
        given = self.notes.get(note.sha256)
        if given is None:
            return None
        entries: list[dict | None] = []
        for claim in note.claims:
            line = next(
                (
                    x
                    for a, b, x in reversed(given)
                    if abs(a - claim.start) <= SLACK_CHARS and abs(b - claim.end) <= SLACK_CHARS
                ),
                None,
            )
            entries.append(_entry(line) if line is not None else None)
        return [
            _answer({"claims": [{"n": n, **e} for n, e in enumerate(entries[a:b], a + 1) if e is not None]})
            for a, b in chunks(note.claims)
        ]

    def _attribution(self, item: TransferView) -> list[Answer] | None:
        line = self.transfers.get(item.ref.key)
        return None if line is None else [_answer(line)]

    def _fate(self, item: TracedClaim) -> list[Answer] | None:
        line = self.fates.get((item.ref.key, item.claim.start, item.claim.end))
        return None if line is None else [_answer({**line, "quotation": _quoted(line.get("quotation"))})]


def _entry(line: dict) -> dict | None:
    """A line as a model would answer it; None where its label is null (the readers differed, or none was given)."""
    label = line.get("label", line.get("category"))
    if label is None:
        return None
    return {
        **{k: v for k, v in line.items() if k not in ("claims", "start", "end", "text")},
        **(line.get("flags") or {}),
        "label": label,
    }


def _quoted(value: Any) -> Any:
    return value.get("text") if isinstance(value, dict) else value


def _answer(value: dict) -> Answer:
    return Answer(json.dumps(value))


def _transfer_key(value: Any) -> str:
    if isinstance(value, str):
        return value
    from annotators.records import TransferRef

    return TransferRef.model_validate(value).key
