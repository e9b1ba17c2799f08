"""Imports run down the floors only: problems and rubrics below runner, runner below annotators, annotators below mkb_analyze."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MAY_IMPORT = {
    "problems": {"problems"},
    "runner": {"runner", "problems"},
    "annotators": {"annotators", "runner"},
    "mkb_analyze": {"mkb_analyze", "annotators", "runner"},
}
FILES = sorted(p for floor in MAY_IMPORT for p in (ROOT / floor).rglob("*.py"))
ONLY_ROOM = {"openai": {"runner/llm.py"}, "label_studio_sdk": {"annotators/label_studio.py"}}


def imported(path: Path) -> set[str]:
    """Every module that a file imports anywhere in it, by its full dotted name."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_floor(path):
    floor = path.relative_to(ROOT).parts[0]
    up = {m for m in imported(path) if m.split(".")[0] in MAY_IMPORT and m.split(".")[0] not in MAY_IMPORT[floor]}
    assert not up, f"{path.relative_to(ROOT)} imports {', '.join(sorted(up))}, which lies on a higher floor"


@pytest.mark.parametrize("library, rooms", ONLY_ROOM.items())
def test_one_room_speaks_to_the_outside(library, rooms):
    users = {str(p.relative_to(ROOT)) for p in FILES if any(m.split(".")[0] == library for m in imported(p))}
    assert users <= rooms


def test_the_reader_of_imports_sees_an_upward_one(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text("def f():\n    from mkb_analyze import cli\n")
    assert imported(bad) == {"mkb_analyze"}
