"""A folder of Markdown notes (a skill library) as a study that can be annotated."""

from dataclasses import dataclass
from pathlib import Path

from annotators.progress import tracked
from runner import digests
from runner.errors import UserError
from runner.study import Study

MAX_NOTE_BYTES = 2_000_000


@dataclass(frozen=True)
class Imported:
    """What an import did: counts, and one line for everything that was left out."""

    n_new: int
    n_present: int
    left_out: tuple[str, ...]


def import_notes(folder: str | Path, out: str | Path, pattern: str = "**/*.md") -> Imported:
    """Put every Markdown file below `folder` into the study `out`; a repeated call adds only what is new.

    A note is kept letter for letter. The manifest's `notes` maps each relative path to its digest. Symbolic links and
    files over 2 MB or not UTF-8 are left out, each with its reason.

    Raises:
        UserError: the folder is missing or holds no Markdown file.
    """
    root = Path(folder)
    if not root.is_dir():
        raise UserError(f"{root}: no such folder; give a folder of Markdown notes")
    study = Study.create(out, origin={"kind": "notes"}, notes={})
    known: dict[str, str] = dict(study.manifest.get("notes", {}))
    files = sorted(p for p in root.glob(pattern) if p.is_file() or p.is_symlink())
    if not files:
        raise UserError(f"{root}: holds no file that matches {pattern}; give a folder of Markdown notes")
    left_out, n_new, n_present = [], 0, 0
    with study.writing():
        for file in tracked(files, "import notes"):
            name = file.relative_to(root).as_posix()
            text, fault = _read(file)
            if text is None:
                left_out.append(f"{name}: {fault}")
            elif known.get(name) == digests.of_text(text):
                study.put_text("notes", text)
                n_present += 1
            else:
                known[name] = study.put_text("notes", text)
                n_new += 1
        study.update_manifest(notes=dict(sorted(known.items())))
    return Imported(n_new, n_present, tuple(left_out))


def _read(file: Path) -> tuple[str | None, str | None]:
    if file.is_symlink():
        return None, "a symbolic link is not followed"
    if file.stat().st_size > MAX_NOTE_BYTES:
        return None, f"larger than {MAX_NOTE_BYTES} bytes"
    try:
        text = file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as fault:
        return None, f"not UTF-8 (byte {fault.start})"
    return (text, None) if text.strip() else (None, "empty")
