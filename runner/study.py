"""One study folder: read, append, lock, and survive a torn last line."""

import errno
import fcntl
import json
import os
import stat
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from runner import digests, plain_json
from runner.errors import UserError
from runner.records import SCHEMA_VERSION, Attempt, Record

R = TypeVar("R", bound=Record)
TABLES = ("attempts", "annotations", "attributions", "fates", "adjudications")
_FOLDERS = ("kernels", "notes")


class TornLine(UserWarning):
    """The last line of a file was cut by a crash; it was set aside and is redone."""


class Study:
    """A study folder; every method can be stopped at any instant and called again.

    Args:
        path: the folder. It must hold `study.json` unless it is made by `Study.create`.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        manifest = self.path / "study.json"
        if not manifest.is_file():
            raise UserError(
                f"{self.path}: no study here (study.json is missing); give the folder that a run or import made"
            )
        try:
            self.manifest: dict[str, Any] = plain_json.loads(manifest.read_text("utf-8"))
        except (ValueError, OSError) as fault:
            raise UserError(f"{manifest}: unreadable ({fault}); restore it from a copy of the study") from None
        version = self.manifest.get("schema_version") if isinstance(self.manifest, dict) else None
        if not isinstance(version, int):
            raise UserError(f"{manifest}: schema_version is {version!r}, not a whole number; is this a study?")
        if version > SCHEMA_VERSION:
            raise UserError(
                f"{manifest}: schema version {version} is newer than {SCHEMA_VERSION}, "
                f"the newest this release reads; upgrade mkb-analyze"
            )

    @classmethod
    def create(cls, path: str | Path, **manifest: Any) -> "Study":
        """Make a new study with `manifest` (DSL pair, device, budgets, origin …), or open the one that is there."""
        folder = Path(path)
        if not (folder / "study.json").exists():
            folder.mkdir(parents=True, exist_ok=True)
            content = {"schema_version": SCHEMA_VERSION, **manifest}
            write_atomically(folder / "study.json", json.dumps(content, indent=1, sort_keys=True) + "\n")
        return cls(folder)

    def update_manifest(self, **fields: Any) -> None:
        """Set fields of `study.json`, keeping all others."""
        self.manifest = {**self.manifest, **fields}
        write_atomically(self.path / "study.json", json.dumps(self.manifest, indent=1, sort_keys=True) + "\n")

    # Lines -----------------------------------------------------------------------------------------------------

    def lines(self, table: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield (line number from 1, plain record) of one table, streamed; a torn last line is left out with a warning.

        Raises:
            UserError: a broken line that is not the last one; it names file and line.
        """
        file = self._file(table)
        if not file.exists():
            return
        refuse_irregular(file)
        with open(file, "rb") as stream:
            number = 0
            for number, raw in enumerate(stream, 1):
                whole = raw.endswith(b"\n")
                if not raw.strip():
                    continue
                try:
                    value = plain_json.loads(raw)
                    if not isinstance(value, dict):
                        raise ValueError("not an object")
                except ValueError as fault:
                    if not whole:
                        warnings.warn(
                            f"{file}:{number}: the last line is torn; it is left out and will be redone",
                            TornLine,
                            stacklevel=3,
                        )
                        return
                    raise UserError(f"{file}:{number}: broken line ({fault}); mend or delete that line") from None
                yield number, value

    def read(self, table: str, kind: type[R]) -> Iterator[R]:
        """Yield the records of one table as `kind`, in file order."""
        for number, value in self.lines(table):
            try:
                yield kind.model_validate(value)
            except ValidationError as fault:
                first = fault.errors(include_url=False)[0]
                where = ".".join(str(p) for p in first["loc"]) or "record"
                raise UserError(
                    f"{self._file(table)}:{number}: {where}: {first['msg']}; mend or delete that line"
                ) from None

    def attempts(self) -> list[Attempt]:
        """All attempts; where one key stands twice (an attempt that was run again) the later line counts."""
        latest: dict[str, Attempt] = {}
        for attempt in self.read("attempts", Attempt):
            latest[attempt.key] = attempt
        return list(latest.values())

    def append(self, table: str, records: Iterable[Record] | Record) -> int:
        """Append records, each as one whole line, durably; return how many. Call inside `writing()`."""
        if isinstance(records, Record):
            records = (records,)
        file = self._file(table)
        set_aside_torn_tail(file)
        n_written = 0
        with open(file, "ab", buffering=0) as stream:
            for record in records:
                line = json.dumps(record.line(), ensure_ascii=True, sort_keys=True, allow_nan=False) + "\n"
                _write_all(stream, line.encode("ascii"))
                n_written += 1
            os.fsync(stream.fileno())
        return n_written

    @contextmanager
    def writing(self) -> Iterator["Study"]:
        """Hold the study's one write lock; the kernel drops it when the process dies, however it dies."""
        handle = os.open(self.path / ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as fault:
                if fault.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
                holder = os.read(handle, 40).decode("ascii", "replace").strip() or "another process"
                raise UserError(
                    f"{self.path}: in use by process {holder}; one writer at a time, wait for it or stop it"
                ) from None
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode("ascii"), 0)
            yield self
        finally:
            os.close(handle)

    # Texts -----------------------------------------------------------------------------------------------------

    def put_text(self, folder: str, text: str) -> str:
        """Keep a kernel or note under its SHA-256, which is returned; the text comes back letter for letter."""
        name = digests.of_text(text)
        target = self._text_file(folder, name)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(target, text)
        return name

    def text(self, folder: str, sha256: str) -> str:
        """The kernel or note of that digest; UserError if it is missing or was changed after it was recorded."""
        target = self._text_file(folder, sha256)
        if target.exists():
            refuse_irregular(target)
        try:
            text = target.read_bytes().decode("utf-8", "surrogatepass")
        except FileNotFoundError:
            raise UserError(
                f"{target}: missing, though a record names it; restore it from a copy of the study"
            ) from None
        except UnicodeDecodeError:
            raise UserError(f"{target}: not UTF-8; it was changed after it was recorded, restore it") from None
        if digests.of_text(text) != sha256:
            raise UserError(
                f"{target}: its content no longer has that digest; it was changed after it was recorded, restore it"
            )
        return text

    def note(self, sha256: str) -> str:
        return self.text("notes", sha256)

    def kernel(self, sha256: str) -> str:
        return self.text("kernels", sha256)

    def digest(self) -> str:
        """One digest of everything the study's tables and manifest hold: what a report names as its input."""
        parts = {"study.json": digests.of_file(self.path / "study.json")}
        for table in TABLES:
            file = self._file(table)
            if file.exists():
                parts[file.name] = digests.of_file(file)
        return digests.of_value(parts)

    def _file(self, table: str) -> Path:
        if table not in TABLES:
            raise ValueError(f"{table!r} is no table of a study ({', '.join(TABLES)})")
        return self.path / f"{table}.jsonl"

    def _text_file(self, folder: str, sha256: str) -> Path:
        if folder not in _FOLDERS or len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
            raise ValueError(f"{folder!r}/{sha256!r} names no text of a study")
        return self.path / folder / (sha256 + (".py" if folder == "kernels" else ".md"))


def refuse_irregular(file: Path) -> None:
    """UserError unless `file` is a plain file: a stranger's study may hold a pipe that blocks or a device without end.

    A link to a plain file passes (large studies are kept that way); what it holds is still checked by digest or schema.
    """
    if not stat.S_ISREG(file.stat().st_mode):
        raise UserError(f"{file}: no plain file (a pipe, a device or a folder); put a plain file in its place")


def write_atomically(target: Path, text: str) -> None:
    """Write a whole file or none: to a neighbour first, then renamed over the target."""
    neighbour = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with open(neighbour, "wb") as stream:
            stream.write(text.encode("utf-8", "surrogatepass"))
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(neighbour, target)
    finally:
        neighbour.unlink(missing_ok=True)


def set_aside_torn_tail(file: Path) -> None:
    """Move what follows the last newline of a JSON Lines file to `<file>.torn`, so that appending stays whole.

    A tail that is itself a whole JSON object (only its newline was lost) gets its newline and stays.
    """
    if not file.exists():
        return
    with open(file, "r+b") as stream:
        end = stream.seek(0, os.SEEK_END)
        start, tail = end, b""
        while start > 0 and b"\n" not in tail:
            step = min(1 << 16, start)
            start -= step
            stream.seek(start)
            tail = stream.read(step) + tail
        tail = tail[tail.rfind(b"\n") + 1 :] if b"\n" in tail else tail
        if not tail:
            return
        try:
            whole = isinstance(plain_json.loads(tail), dict)
        except ValueError:
            whole = False
        if whole:
            stream.seek(0, os.SEEK_END)
            stream.write(b"\n")
            return
        with open(file.with_name(file.name + ".torn"), "ab") as aside:
            aside.write(tail + b"\n")
            aside.flush()
            os.fsync(aside.fileno())
        stream.truncate(end - len(tail))
        warnings.warn(f"{file}: a torn last line was moved to {file.name}.torn; it is redone", TornLine, stacklevel=3)


def _write_all(stream: Any, data: bytes) -> None:
    # An unbuffered write may be cut short (a full disk); what follows must not be glued to half a line.
    view = memoryview(data)
    while view:
        n_bytes = stream.write(view)
        view = view[n_bytes:]
