"""Is a study whole: every line, every text, every digest that a line names; and the few repairs that lose nothing."""

import hashlib
import re
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from annotators.progress import tracked
from annotators.records import Adjudication, Annotation, Attribution, Fate
from runner import digests, plain_json
from runner.errors import UserError
from runner.records import Attempt
from runner.study import TABLES, Study, set_aside_torn_tail

_KINDS = dict(zip(TABLES, (Attempt, Annotation, Attribution, Fate, Adjudication), strict=True))
_TEXTS = {"kernels": ".py", "notes": ".md"}
_LEFTOVER = re.compile(r"\..+\.\d+\.tmp")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Level(StrEnum):
    """How bad: a fault means something recorded cannot be read; a remark is what a crash leaves and resuming mends."""

    FAULT = "fault"
    REMARK = "remark"


@dataclass(frozen=True)
class Finding:
    """One thing found: where, what, and the cure; `repaired` when `repair` mended it just now."""

    level: Level
    where: str
    what: str
    cure: str
    repaired: bool = False

    def line(self) -> dict[str, Any]:
        return {**asdict(self), "level": self.level.value}


@dataclass(frozen=True)
class Checked:
    """What a check saw: lines by table, texts by folder, and the findings, worst first."""

    n_lines: dict[str, int]
    n_texts: dict[str, int]
    findings: tuple[Finding, ...]

    @property
    def whole(self) -> bool:
        """No fault that stands: everything recorded can be read and is what its digest says."""
        return not any(f.level is Level.FAULT and not f.repaired for f in self.findings)


def check(path: str | Path, repair: bool = False) -> Checked:
    """Read every line and every text of a study once; with `repair`, set torn tails aside and delete leftovers.

    Nothing else is ever changed: a broken line in mid-file, a missing text or a changed one needs a person or a copy.

    Args:
        path: the study's folder.
        repair: hold the study's write lock and mend what a crash left.

    Raises:
        UserError: there is no study, its manifest cannot be read, or (repair) another process writes to it.
    """
    study = Study(path)
    if repair:
        with study.writing():
            return _checked(study, repair=True)
    return _checked(study, repair=False)


def _checked(study: Study, repair: bool) -> Checked:
    findings: list[Finding] = list(_leftovers(study.path, repair))
    named: dict[str, dict[str, str]] = {folder: {} for folder in _TEXTS}
    n_lines: dict[str, int] = {}
    for table in TABLES:
        n_lines[table] = 0
        for found in tracked(_table(study, table, named, repair), f"check {table}"):
            if isinstance(found, Finding):
                findings.append(found)
            else:
                n_lines[table] += 1
    n_texts = {}
    for folder in _TEXTS:
        present, told = _texts(study.path / folder, _TEXTS[folder])
        n_texts[folder] = len(present)
        findings += told
        findings += [
            Finding(
                Level.FAULT,
                where,
                f"names {folder}/{sha256}{_TEXTS[folder]}, which is missing",
                "restore that file from a copy of the study",
            )
            for sha256, where in named[folder].items()
            if sha256 not in present
        ]
        n_unnamed = sum(sha256 not in named[folder] for sha256 in present)
        if n_unnamed:
            findings.append(
                Finding(
                    Level.REMARK,
                    folder,
                    f"{n_unnamed} text(s) that no line names: written before a crash, or by an attempt under way",
                    "none needed; the resumed run names them or writes its own",
                )
            )
    order = {Level.FAULT: 0, Level.REMARK: 1}
    return Checked(n_lines, n_texts, tuple(sorted(findings, key=lambda f: (order[f.level], f.where, f.what))))


def _table(study: Study, table: str, named: dict[str, dict[str, str]], repair: bool) -> Iterator[Finding | None]:
    """Every finding of one table, and None for each line that is a whole record."""
    file = study.path / f"{table}.jsonl"
    if not file.exists():
        return
    if not _regular(file):
        yield Finding(Level.FAULT, file.name, "is no regular file inside the study", "put a plain file in its place")
        return
    if _torn(file):
        if repair:
            set_aside_torn_tail(file)
        yield Finding(
            Level.REMARK,
            file.name,
            "the last line was cut by a crash",
            f"moved to {file.name}.torn; it is redone" if repair else "run check with --repair, or resume the run",
            repaired=repair,
        )
    seen: dict[bytes, int] = {}
    keys: dict[str, int] = {}
    with open(file, "rb") as stream:
        for number, raw in enumerate(stream, 1):
            if not raw.endswith(b"\n") or not raw.strip():
                continue
            where = f"{file.name}:{number}"
            try:
                record = _KINDS[table].model_validate(plain_json.loads(raw))
            except ValueError as fault:
                yield Finding(Level.FAULT, where, _said(fault), "mend or delete that line")
                continue
            digest = hashlib.sha256(raw).digest()
            if digest in seen:
                yield Finding(Level.REMARK, where, f"repeats line {seen[digest]}", "none needed; it counts once")
            elif isinstance(record, Attempt) and record.key in keys:
                yield Finding(Level.REMARK, where, f"runs {record.key} again", "none needed; the later line counts")
            seen.setdefault(digest, number)
            if isinstance(record, Attempt):
                keys[record.key] = number
            for folder, sha256 in _names(record):
                named[folder].setdefault(sha256, where)
            yield from _spans(study, record, where)
            yield None


def _names(record: Any) -> Iterator[tuple[str, str]]:
    """(folder, digest) of every text that a record says the study holds."""
    if isinstance(record, Attempt):
        kernels = [record.kernel_sha256, *(s.kernel_sha256 for s in record.submissions)]
        notes = [record.note_sha256, record.source_note_sha256]
    elif isinstance(record, Annotation):
        kernels, notes = [], [record.note_sha256]
    elif isinstance(record, Fate):
        kernels, notes = [], [record.note_sha256, record.next_note_sha256]
    else:
        return
    yield from (("kernels", k) for k in kernels if k)
    yield from (("notes", n) for n in notes if n)


def _spans(study: Study, record: Any, where: str) -> Iterator[Finding]:
    """Spans that lie past the end of the note which they label."""
    if not isinstance(record, Annotation) or not record.claims:
        return
    try:
        n_characters = len(study.note(record.note_sha256))
    except (UserError, OSError):
        return  # said by the check of texts
    if record.claims[-1].end > n_characters:
        yield Finding(
            Level.FAULT,
            where,
            f"a span ends at {record.claims[-1].end}, past the note's {n_characters} characters",
            "delete that line and annotate again",
        )


def _texts(folder: Path, suffix: str) -> tuple[set[str], list[Finding]]:
    """(digests present, findings) of one folder of texts, each file read once in blocks."""
    present: set[str] = set()
    findings: list[Finding] = []
    if not folder.is_dir():
        return present, findings
    for file in sorted(folder.iterdir()):
        where = f"{folder.name}/{file.name}"
        if _LEFTOVER.fullmatch(file.name):
            continue
        if file.suffix != suffix or not _DIGEST.fullmatch(file.stem):
            findings.append(Finding(Level.REMARK, where, "is no text of a study", "none needed; it is never read"))
        elif not _regular(file):
            findings.append(Finding(Level.FAULT, where, "is no regular file", "restore the text from a copy"))
        else:
            present.add(file.stem)
            if digests.of_file(file) != file.stem:
                findings.append(
                    Finding(Level.FAULT, where, "was changed after it was recorded", "restore it from a copy")
                )
    return present, findings


def _leftovers(folder: Path, repair: bool) -> Iterator[Finding]:
    """Half-written neighbours of files: a crash leaves them, nothing reads them."""
    for place in (folder, *(folder / name for name in _TEXTS)):
        for file in sorted(place.iterdir()) if place.is_dir() else ():
            if _LEFTOVER.fullmatch(file.name) and _regular(file):
                if repair:
                    file.unlink()
                cure = "deleted" if repair else "run check with --repair, or delete it"
                yield Finding(
                    Level.REMARK, str(file.relative_to(folder)), "is a half-written file", cure, repaired=repair
                )


def _torn(file: Path) -> bool:
    with open(file, "rb") as stream:
        if stream.seek(0, 2) == 0:
            return False
        stream.seek(-1, 2)
        return stream.read(1) != b"\n"


def _regular(file: Path) -> bool:
    """A plain file: no link (a stranger's study could point anywhere), no device, no pipe that would block a reader."""
    return stat.S_ISREG(file.lstat().st_mode)


def _said(fault: Exception) -> str:
    if isinstance(fault, ValidationError):
        first = fault.errors(include_url=False)[0]
        return f"{'.'.join(str(p) for p in first['loc']) or 'record'}: {first['msg']}"
    return f"broken line ({fault})"
