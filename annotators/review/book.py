"""What a study keeps of its reviews beside its tables: its name on servers, and what was sent to whom."""

import json
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from runner.records import Record, Sha256, UtcTime
from runner.study import Study, set_aside_torn_tail


class Sent(Record):
    """One task for one reviewer. `landed` is False before the server has it: the line is written first, so that a push
    that was killed knows afterwards what was blind. `project` is its number and birth, `said` the panel's decision at
    the time, `cause_due` whether a cause must be given."""

    external_id: str
    url: str
    project: str = ""
    task: str
    item: str
    reviewer: str
    blind: bool
    trap: bool
    rubric_sha256: Sha256
    data_sha256: Sha256
    said: dict[str, Any] = {}
    cause_due: bool = True
    landed: bool = False
    at: UtcTime | None = None


def folder(study: Study) -> Path:
    """The study's folder for reviews, made where it is missing."""
    path = study.path / "review"
    path.mkdir(exist_ok=True)
    return path


def study_id(study: Study) -> str:
    """The study's name on servers, drawn once and kept in the manifest. Call inside `writing()`."""
    if "review_id" not in study.manifest:
        study.update_manifest(review_id=secrets.token_hex(8))
    return str(study.manifest["review_id"])


def sent(study: Study) -> dict[str, Sent]:
    """What was sent, by external id; the last line counts."""
    file = study.path / "review" / "sent.jsonl"
    found: dict[str, Sent] = {}
    if file.exists():
        set_aside_torn_tail(file)
        with open(file, encoding="ascii") as stream:
            for line in stream:
                record = Sent.model_validate_json(line)
                found[record.external_id] = record
    return found


def note(study: Study, records: Iterable[Sent]) -> None:
    """Append lines durably. Call inside `writing()`."""
    file = folder(study) / "sent.jsonl"
    set_aside_torn_tail(file)
    with open(file, "ab") as stream:
        for r in records:
            stream.write((json.dumps(r.line(), ensure_ascii=True, sort_keys=True) + "\n").encode("ascii"))
        stream.flush()
        os.fsync(stream.fileno())
