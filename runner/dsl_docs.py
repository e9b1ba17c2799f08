"""The documentation of a DSL as passages searched offline: a folder's texts, or what the package carries."""

import importlib.util
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner import digests, dsls
from runner.errors import UserError

N_PASSAGES = 5
MAX_PASSAGE_CHARS = 1800
MAX_FILE_BYTES = 2_000_000
MAX_FILES = 20_000
_TEXTS = (".md", ".rst", ".txt")
_LEFT_OUT = {"tests", "test", "testing", "__pycache__", "node_modules", ".git"}
# A definition with its docstring; parsing every module of a large package takes ten times as long.
_DOCUMENTED = re.compile(
    r"^[ \t]*((?:async )?(?:def|class)[ \t]+\w+(?:\([^\"]{0,2000}?\))?[^\"\n]{0,200}):"
    r"[ \t]*\n[ \t]*[rR]?\"\"\"(.*?)\"\"\"",
    re.M | re.S,
)
_MODULE_DOC = re.compile(r"\A(?:#[^\n]*\n|\s)*[rR]?\"\"\"(.*?)\"\"\"", re.S)


@dataclass(frozen=True)
class Passage:
    """A stretch of a file: where it stands (relative to its root) and its text."""

    where: str
    text: str


class Docs:
    """One DSL's documentation; the index is built by the first search, and any thread may search.

    Args:
        dsl: the DSL's name.
        folder: texts and examples to search instead of the installed package; `folder/<dsl>` where there is one.

    Raises:
        UserError: there is no such folder.
    """

    def __init__(self, dsl: str, folder: Path | str | None = None):
        self.dsl = dsl
        self._lock = threading.Lock()
        self._index: tuple[list[Passage], Any, Any] | None = None
        self.folder = None if folder is None else Path(folder)
        if self.folder is not None:
            if not self.folder.is_dir():
                raise UserError(f"--docs {folder}: no such folder; give a folder of .md, .rst, .txt or .py files")
            if (self.folder / dsl).is_dir():
                self.folder = self.folder / dsl

    def sha256(self) -> str | None:
        """Digest of a given folder's texts; None for the installed package, whose version is recorded anyway."""
        if self.folder is None:
            return None
        return digests.of_value({str(f.relative_to(self.folder)): digests.of_file(f) for f in _files(self.folder)})

    def search(self, query: str) -> str:
        """The best passages for a query, best first, as one text; a sentence where nothing matches."""
        from sklearn.metrics.pairwise import linear_kernel

        with self._lock:
            if self._index is None:
                self._index = self._build()
        passages, vectors, matrix = self._index
        if matrix is None:
            return f"There is no documentation of {self.dsl} here."
        scores = linear_kernel(vectors.transform([query]), matrix)[0]
        best = sorted(range(len(passages)), key=lambda i: (-scores[i], passages[i].where))[:N_PASSAGES]
        found = [f"## {passages[i].where}\n{passages[i].text[:MAX_PASSAGE_CHARS]}" for i in best if scores[i] > 0]
        return "\n\n".join(found) or "Nothing matches; try other names."

    def _build(self) -> tuple[list[Passage], Any, Any]:
        from sklearn.feature_extraction.text import TfidfVectorizer

        passages = list(self._passages())
        # Identifiers count whole and by their parts: `make_tensor_layout` is also found by `tensor layout`.
        vectors = TfidfVectorizer(tokenizer=_words, token_pattern=None, lowercase=False, sublinear_tf=True)
        return (passages, vectors, vectors.fit_transform([p.text for p in passages])) if passages else ([], None, None)

    def _passages(self) -> Iterator[Passage]:
        for root in self._roots():
            whole = self.folder is not None
            for file in _files(root):
                where = str(file.relative_to(root))
                text = file.read_bytes().decode("utf-8", "replace")
                example = any("example" in part for part in file.relative_to(root).parts)
                if file.suffix == ".py" and not whole and not example:
                    yield from _docstrings(where, text)
                else:
                    yield from _stretches(where, text)

    def _roots(self) -> list[Path]:
        if self.folder is not None:
            return [self.folder]
        plugin = dsls.plugin(self.dsl)
        name = getattr(plugin, "DOCS_PACKAGE", plugin.PACKAGE)
        spec = importlib.util.find_spec(name)
        return [Path(p) for p in (spec.submodule_search_locations or [])] if spec else []


def _files(root: Path) -> list[Path]:
    """The texts below a root, small and plain ones only, in a fixed order."""
    found = [
        f
        for f in sorted(root.rglob("*"))
        if f.suffix in (*_TEXTS, ".py")
        and not _LEFT_OUT & set(f.relative_to(root).parts)
        and f.is_file()
        and f.stat().st_size <= MAX_FILE_BYTES
    ]
    return found[:MAX_FILES]


def _docstrings(where: str, text: str) -> Iterator[Passage]:
    if (module := _MODULE_DOC.match(text)) and len(module[1].strip()) > 80:
        yield Passage(where, module[1].strip())
    for found in _DOCUMENTED.finditer(text):
        head = " ".join(found[1].split())
        name = re.search(r"(?:def|class)\s+(\w+)", head)[1]
        if not name.startswith("_"):
            yield Passage(f"{where}: {name}", f"{head}\n{found[2].strip()}")


def _stretches(where: str, text: str) -> Iterator[Passage]:
    """A text cut at blank lines into stretches of at most MAX_PASSAGE_CHARS."""
    n, kept = 0, ""
    for block in re.split(r"\n\s*\n", text):
        for start in range(0, max(len(block), 1), MAX_PASSAGE_CHARS):
            part = block[start : start + MAX_PASSAGE_CHARS]
            if kept and len(kept) + len(part) + 2 > MAX_PASSAGE_CHARS:
                n += 1
                yield Passage(f"{where} ({n})", kept)
                kept = ""
            kept = f"{kept}\n\n{part}" if kept else part
    if kept.strip():
        yield Passage(f"{where} ({n + 1})", kept)


def _words(text: str) -> list[str]:
    out: list[str] = []
    for word in re.findall(r"[A-Za-z_][A-Za-z_0-9]+", text):
        out.append(word.lower())
        parts = [p for p in re.split(r"_+|(?<=[a-z0-9])(?=[A-Z])", word) if len(p) > 1]
        if len(parts) > 1:
            out += [p.lower() for p in parts]
    return out
