"""What can be attempted: problems by number, their families, DSL names and the patterns that pick them."""

import fnmatch
import importlib.util
import re
import sys
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from runner import digests
from runner.errors import UserError

FAMILIES = ("attention", "kv_cache", "mlp_norm", "moe", "quantization", "linear_attention")
BASELINE = "the problem's reference in CuPy or NumPy"
STUDY_PAIR = ("cutedsl", "tirx")
# The published problem set's numbering: last number of each family, in the order of FAMILIES.
_LAST_NUMBER = (18, 26, 43, 51, 61, 74)
_FILE = re.compile(r"(\d{2,3})_([a-z0-9_]+)\.py")


@dataclass(frozen=True)
class Problem:
    """One DSL-neutral computation: its number, name, family and file."""

    number: int
    name: str
    family: str
    path: Path

    @cached_property
    def module(self) -> ModuleType:
        """The problem's code: `make_inputs(xp, rng, size)`, `reference(xp, *inputs)`, `OUTPUTS`, `work(size)`."""
        name = f"problems.{self.family}.p{self.path.stem}"
        if name in sys.modules:
            return sys.modules[name]
        spec = importlib.util.spec_from_file_location(name, self.path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        return module

    @cached_property
    def sha256(self) -> str:
        """Digest of the problem's text and of the code it shares with others: what a verdict is stale against."""
        return digests.of_value([digests.of_file(self.path), *shared_digests(self.path.parents[1])])

    @property
    def title(self) -> str:
        return (self.module.__doc__ or self.name).strip().splitlines()[0]

    def statement(self) -> str:
        """The problem file's text, which is what an agent is told."""
        return self.path.read_text("utf-8")

    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self.module, name, default)

    @property
    def baseline(self) -> str:
        """What a speedup over this problem's reference is taken against."""
        return BASELINE

    def size(self, device: str, asked: str | None = None) -> str:
        """The size that was asked for; by default full on the GPU and small on the processor."""
        return asked or ("full" if device == "cuda" else "small")


def shared_digests(root: Path) -> list[str]:
    """Digests of the files of a problem set that every problem may import."""
    return [digests.of_file(p) for p in sorted(root.glob("*.py")) if p.name != "__init__.py"]


def family_of(number: int) -> str | None:
    """The family that the published numbering gives a problem number, None outside 1 to 74."""
    if number < 1:
        return None
    return next((family for family, last in zip(FAMILIES, _LAST_NUMBER, strict=False) if number <= last), None)


@cache
def problem_root() -> Path:
    """The folder of the problem set that ships with the project."""
    import problems

    return Path(problems.__file__).resolve().parent


def problems_in(root: Path | None = None, compiled: bool = False) -> list[Problem]:
    """All problems of a set by number: ours, one laid out as ours, or a checkout of one of others (`runner.foreign`).

    Args:
        compiled: for a set in PyTorch, that `torch.compile` makes the baseline.

    Raises:
        UserError: two files have one number; a folder that was named holds no problem.
    """
    if root is not None:
        from runner import foreign

        if not root.is_dir():
            raise UserError(f"{root}: no such folder; --problem-set takes a checkout of a problem set")
        if (theirs := foreign.problems_of(root, compiled)) is not None:
            return list(theirs)
    if compiled:
        raise UserError("--compile-baseline: only problems in PyTorch (--problem-set) have such a baseline")
    ours = _numbered(root or problem_root())
    if root is not None and not ours:
        raise UserError(
            f"{root}: holds no problem; a problem set has <family>/<NN_name>.py files, KernelBench level*/<NN_name>.py"
        )
    return ours


def _numbered(root: Path) -> list[Problem]:
    found: dict[int, Problem] = {}
    for family in FAMILIES:
        for path in sorted((root / family).glob("*.py")):
            match = _FILE.fullmatch(path.name)
            if not match:
                continue
            number = int(match[1])
            if number in found:
                raise UserError(f"{path}: problem {number} exists twice (also {found[number].path.name}); renumber one")
            found[number] = Problem(number, match[2], family, path)
    return [found[n] for n in sorted(found)]


def problem(number: Any, root: Path | None = None, compiled: bool = False) -> Problem:
    """The problem of that number; UserError names the nearest thing to do."""
    try:
        wanted = int(str(number).strip())
    except ValueError:
        raise UserError(
            f"{number!r}: a problem is named by its number, such as 28; `mkb-analyze problems` lists them"
        ) from None
    for candidate in problems_in(root, compiled):
        if candidate.number == wanted:
            return candidate
    raise UserError(f"{wanted}: no problem has that number; `mkb-analyze problems` lists them")


def select(pattern: Any, root: Path | None = None, compiled: bool = False) -> list[Problem]:
    """Problems by a comma list of numbers, globs over NN (`6*`), ranges (`28-36`), names or families."""
    if isinstance(pattern, (tuple, list)):
        pattern = ",".join(str(p) for p in pattern)
    everything = problems_in(root, compiled)
    chosen: dict[int, Problem] = {}
    for part in (p.strip() for p in str(pattern).split(",")):
        if not part:
            continue
        span = re.fullmatch(r"(\d+)-(\d+)", part)
        hits = [
            p
            for p in everything
            if part == "all"
            or part == p.family
            or fnmatch.fnmatch(f"{p.number:02d}", part)
            or fnmatch.fnmatch(str(p.number), part)
            or fnmatch.fnmatch(p.name, part)
            or (span and int(span[1]) <= p.number <= int(span[2]))
        ]
        if not hits:
            raise UserError(
                f"{part!r}: picks no problem; use numbers, 28-36, 6*, a family or all "
                "(`mkb-analyze problems` lists them)"
            )
        chosen.update((p.number, p) for p in hits)
    if not chosen:
        raise UserError(f"{pattern!r}: picks no problem; use numbers, 28-36, 6*, a family or all")
    return [chosen[n] for n in sorted(chosen)]


def set_digest(root: Path | None = None, compiled: bool = False) -> str:
    """One digest of the whole problem set, which every study records."""
    return digests.of_value({f"{p.number:02d}_{p.name}": p.sha256 for p in problems_in(root, compiled)})
