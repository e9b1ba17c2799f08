"""The generated figures: what is measured is shown, what is stale or absent is left empty, marks are asked for."""

import json

import pytest

from runner import catalogue, problem_table
from runner.contract import Check
from runner.errors import UserError
from runner.problem_check import MUTANTS, Quality

PROBLEM = '''"""Adds one."""
SIZES, OUTPUTS = {"full": {"n": 1}, "small": {"n": 1}}, ("f32", "i64")

def work(size="full"):
    return {"n_bytes": 8_000_000, "n_operations": 3_000_000_000, "unit": "f32"}
'''


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "attention"
    folder.mkdir()
    (folder / "07_add_one.py").write_text(PROBLEM, "utf-8")
    (tmp_path / "README.md").write_text(f"before\n{problem_table.BEGIN}\nold\n{problem_table.END}\nafter\n", "utf-8")
    yield tmp_path
    import sys

    sys.modules.pop("problems.attention.p07_add_one", None)


def found(**changed) -> Quality:
    checks = {mutant: changed.get(mutant, Check(False, 12.345, "far off")) for mutant in MUTANTS}
    return Quality(7, "add_one", 0.5, 3_000_000, 0.05, Check(True, 0.1), checks)


def record(root, **row) -> dict:
    problem = catalogue.problems_in(root)[0]
    return {
        "device": {"name": "toy", "bytes_per_s": 1e12, "operations_per_s": {"f32": 1e12}},
        "problems": {"07": {"sha256": problem.sha256, **row}},
    }


def row_of(text: str) -> list[str]:
    line = next(x for x in text.splitlines() if x.startswith("| 07 | attention"))
    return [cell.strip() for cell in line.split("|")][1:-1]


def test_measured_figures_stand_in_their_columns(root):
    text = problem_table.table(
        root,
        record(root, reference_ms=1.25, peak_bytes=2e9, own_ratio=0.25, agrees=True, agreement_ratio=0.5),
        [found()],
    )
    assert row_of(text)[:8] == ["07", "attention/add_one", "f32 i64", "0.50", "3", "8", "3", "f32"]
    assert row_of(text)[8:] == ["3.000", "1.250", "2.0", "0.25", "0.50"]


def test_figures_of_a_changed_problem_are_left_empty(root):
    stale = record(root, reference_ms=1.25)
    stale["problems"]["07"]["sha256"] = "0" * 64
    assert row_of(problem_table.table(root, stale, [found()]))[-4:] == ["", "", "", ""]


def test_disagreement_of_cupy_is_loud(root):
    assert row_of(problem_table.table(root, record(root, agrees=False), [found()]))[-1] == "**no**"


def test_refusals_are_counted_and_a_passing_mutant_is_loud(root):
    text = problem_table.table(
        root,
        None,
        [found(zeros=Check(True, 0.1), constant=Check(False, None, "x"), axis_shift=Check(False, float("inf"), "x"))],
    )
    assert "refused by the accuracy rule: 4 of 5 (1 problems x 5)" in text
    assert "| 07 | **passes** | differs | 12.3 | far | 12.3 |" in text


def test_readme_keeps_what_stands_around_the_marks(root, monkeypatch):
    monkeypatch.setattr(problem_table, "quality", lambda problem: found())
    (root / "h200.json").write_text(json.dumps(record(root, reference_ms=9.5)), "utf-8")
    text = problem_table.write_readme(root).read_text("utf-8")
    assert text.startswith("before\n") and text.endswith(f"{problem_table.END}\nafter\n")
    assert "old" not in text and row_of(text)[9] == "9.500"
    assert problem_table.write_readme(root).read_text("utf-8") == text


def test_missing_marks_and_a_foreign_record_are_user_errors(root):
    (root / "h200.json").write_text('{"device": []}', "utf-8")
    with pytest.raises(UserError, match="problems_gpu"):
        problem_table.measured(root / "h200.json")
    (root / "README.md").write_text("no marks", "utf-8")
    with pytest.raises(UserError, match="figures"):
        problem_table.write_readme(root)
