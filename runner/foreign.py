"""Problem sets of others, in PyTorch, found and described by reading their text alone: nothing of them runs here.

Two layouts are known: the published set (`<family>/NN_name.py` with `reference` and `make_inputs()`), and KernelBench
(`level*/NN_name.py` with `Model`, `get_inputs` and `get_init_inputs`). What they compute is run by `runner.referee`.
"""

import ast
import importlib.util
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType

from runner import digests
from runner.catalogue import Problem
from runner.errors import UserError

PUBLISHED = ("reference", "make_inputs")
KERNELBENCH = ("Model", "get_inputs", "get_init_inputs")
EAGER, COMPILED = "PyTorch eager", "PyTorch torch.compile (Inductor)"
_FILE = re.compile(r"(\d{1,3})_(\w+)\.py")
_LEVEL = re.compile(r"level(\d{1,2})")
_MAX_TEXT_BYTES = 1_000_000


@dataclass(frozen=True)
class ForeignProblem(Problem):
    """One problem of somebody else's set; `kind` says which layout, `compiled` that Inductor makes the baseline."""

    kind: str = "published"
    compiled: bool = False

    @property
    def baseline(self) -> str:
        return COMPILED if self.compiled else EAGER

    @property
    def module(self) -> ModuleType:
        raise UserError(f"{self.path}: a problem of another set runs in a process of its own and is not imported")

    @cached_property
    def sha256(self) -> str:
        """Digest of the problem's text and of what it is timed against."""
        return digests.of_value([digests.of_file(self.path), self.kind, self.baseline])

    @property
    def title(self) -> str:
        """First line of the module's docstring, or of the model's."""
        tree = ast.parse(_text(self.path))
        models = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model"]
        words = ast.get_docstring(tree) or next((ast.get_docstring(m) for m in models), None) or self.name
        return words.strip().splitlines()[0].strip()

    def statement(self) -> str:
        """The file's text, and how `solve` is called for it."""
        return f"{_text(self.path).rstrip()}\n\n\n{_CALLED[self.kind]}"

    def size(self, device: str, asked: str | None = None) -> str:
        if asked not in (None, "full"):
            raise UserError(f"--size {asked}: a problem of another set has one size; leave --size out")
        return "full"


_CALLED = {
    "published": """\
# solve(*inputs) gets what make_inputs() draws, in its order, as arrays of the kernel's own library;
# it returns what reference(*inputs) returns.
""",
    "kernelbench": """\
# solve(*inputs) gets what get_inputs() draws, then the model's parameters in the order of named_parameters(), then
# those of its buffers that have an axis in the order of named_buffers(), all drawn anew for each call, as arrays of
# the kernel's own library; it returns what Model(*get_init_inputs()) returns in its forward pass, tuples flattened.
""",
}


def problems_of(root: Path, compiled: bool = False) -> list[ForeignProblem] | None:
    """Problems of a checkout in one of the two layouts, by number; None where it is in neither.

    KernelBench counts anew in each level: level 2's problem 7 has the number 2007.

    Raises:
        UserError: two files have one number.
    """
    for folder in (root, root / "problems", root / "KernelBench"):
        found = _published(folder, compiled) or _kernelbench(folder, compiled)
        if found:
            return found
    return None


def need_torch() -> None:
    """UserError where PyTorch, which such problems are written in, is not installed."""
    if importlib.util.find_spec("torch") is None:
        raise UserError("torch: not installed, and problems of another set are written in it; pip install torch")


def _published(root: Path, compiled: bool) -> list[ForeignProblem]:
    found = []
    for path in sorted(root.glob("*/*.py")):
        match = _FILE.fullmatch(path.name)
        if match and not _LEVEL.fullmatch(path.parent.name) and _is(path, PUBLISHED):
            found.append(ForeignProblem(int(match[1]), match[2], path.parent.name, path, "published", compiled))
    return _by_number(found)


def _kernelbench(root: Path, compiled: bool) -> list[ForeignProblem]:
    found = []
    for path in sorted(root.glob("level*/*.py")):
        match, level = _FILE.fullmatch(path.name), _LEVEL.fullmatch(path.parent.name)
        if match and level and _is(path, KERNELBENCH):
            number = 1000 * int(level[1]) + int(match[1])
            found.append(ForeignProblem(number, match[2], path.parent.name, path, "kernelbench", compiled))
    return _by_number(found)


def _by_number(found: list[ForeignProblem]) -> list[ForeignProblem]:
    numbered: dict[int, ForeignProblem] = {}
    for problem in found:
        if (twin := numbered.setdefault(problem.number, problem)) is not problem:
            raise UserError(f"{problem.path}: problem {problem.number} exists twice (also {twin.path.name})")
    return [numbered[n] for n in sorted(numbered)]


def _is(path: Path, names: tuple[str, ...]) -> bool:
    """Whether a file defines these names, imports torch, and draws without being handed a generator."""
    try:
        tree = ast.parse(_text(path))
    except (UserError, SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    defined = {n.name: n for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    if any(name not in defined for name in names):
        return False
    drawn = defined.get("make_inputs")
    if isinstance(drawn, ast.FunctionDef) and drawn.args.args:
        return False
    imports = [a.name for n in tree.body if isinstance(n, ast.Import) for a in n.names]
    imports += [n.module or "" for n in tree.body if isinstance(n, ast.ImportFrom)]
    return any(name.split(".")[0] == "torch" for name in imports)


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_TEXT_BYTES:
            raise UserError(f"{path}: larger than {_MAX_TEXT_BYTES:,} bytes, which is no problem file")
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise UserError(f"{path}: cannot be read as UTF-8 text: {fault}") from None
