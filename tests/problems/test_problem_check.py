"""The refusal table over every problem, and the quality bar against problems that are broken on purpose."""

from pathlib import Path

import numpy as np
import pytest

from problems import precision
from runner import catalogue, problem_check
from tests.problems.support import quality

EVERY = [problem.number for problem in catalogue.problems_in()]

SOUND = '''"""Sum of squares of each row's even columns."""
from problems import precision
SOURCE, INVARIANT, OUTPUTS = "a test", "shapes", ("bf16",)
SIZES = {"full": {"n": 1 << 16}, "small": {"n": 8}}

def make_inputs(xp, rng, size="full"):
    n = SIZES[size]["n"]
    return (rng.standard_normal((n, 1024), dtype=xp.float32) * rng.random((n, 1), dtype=xp.float32),)

def reference(xp, x):
    x = x[:, ::2]
    return precision.narrow(precision.total(xp, x * x, keepdims=False), "bf16")

def work(size="full"):
    return {"n_bytes": SIZES[size]["n"] * 4096, "n_operations": SIZES[size]["n"] * 2048, "unit": "f32"}
'''


@pytest.mark.parametrize("number", EVERY)
@pytest.mark.parametrize("mutant", problem_check.MUTANTS)
def test_accuracy_rule_refuses(number, mutant):
    check = quality(number).refusals[mutant]
    assert not check.ok, f"{mutant} passes on problem {number:02d}: {check.error_ratio}"
    assert check.reason


def broken(tmp_path: Path, old: str, new: str) -> problem_check.Quality:
    """The bar's findings on the sound problem with one text replaced."""
    assert SOUND.count(old) == 1
    path = tmp_path / "01_broken.py"
    path.write_text(SOUND.replace(old, new), "utf-8")
    problem = catalogue.Problem(1, tmp_path.name.replace("-", "_"), f"t_{tmp_path.name}", path)
    return problem_check.quality(problem)


def test_a_sound_problem_has_no_faults(tmp_path):
    assert broken(tmp_path, "a test", "a test").faults == ()


@pytest.mark.parametrize(
    "old, new, fault",
    [
        ("x = x[:, ::2]", "x *= 1.5", "changes its inputs"),
        ("rng.standard_normal(", "xp.random.default_rng().standard_normal(", "one seed draws two"),
        (
            "rng.standard_normal((n, 1024), dtype=xp.float32) * rng.random((n, 1), dtype=xp.float32)",
            "xp.arange(8192, dtype=xp.float32).reshape(8, 1024)",
            "two seeds draw the same",
        ),
        ('"small": {"n": 8}', '"small": {"n": 8, "scale": 0.5}', "plain integers"),
        ("* 2048", "* 0", "not positive"),
        ("1 << 16", "1 << 6", "ms are due"),
        ("x * x, keepdims", "x * x * 0, keepdims", "zeros passes"),
        ("1024), dtype", "4), dtype", "half_accumulation passes"),
        ("precision.total(xp, x * x, keepdims=False)", "(x * x).sum(axis=1)", "half_accumulation passes"),
        ('("bf16",)', '("f32",)', "breaks its own contract"),
        ("x = x[:, ::2]", "x = xp.roll(x, 1, axis=1)", "axis_shift passes"),
        ("x * x, keepdims=False", "(x * x - x * x) / 0, keepdims=False", "breaks its own contract"),
        ("SOURCE, INVARIANT", "SOURCES, INVARIANT", "SOURCE is missing"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_broken_problem_is_named(tmp_path, old, new, fault):
    assert any(fault in found for found in broken(tmp_path, old, new).faults), broken(tmp_path, old, new).faults


def test_an_output_that_hangs_on_the_order_of_sums_is_named(tmp_path):
    path = tmp_path / "01_order.py"
    total = "precision.total(xp, x * x, keepdims=False)"
    text = SOUND.replace(f'precision.narrow({total}, "bf16")', f"xp.floor({total} * 2 ** 16).astype(xp.int64)")
    path.write_text(text.replace('("bf16",)', '("i64",)'), "utf-8")
    found = problem_check.quality(catalogue.Problem(1, "order", f"t_{tmp_path.name}", path))
    assert any("another order" in fault and "values differ" in fault for fault in found.faults)


def test_shapes_that_change_between_draws_are_named(tmp_path):
    found = broken(tmp_path, "(n, 1024)", "(n, 1000 + int(rng.integers(0, 1000)))")
    assert "shapes or types differ between draws" in found.faults


def test_half_mutant_of_a_problem_takes_the_place_of_half_sums(tmp_path):
    path = tmp_path / "01_own.py"
    path.write_text(SOUND + "\ndef half_mutant(xp, x):\n    return reference(xp, x)\n", "utf-8")
    found = problem_check.refusals(catalogue.Problem(1, "own", "t_own_mutant", path))
    assert found["half_accumulation"].ok and not found["zeros"].ok


def test_listing_gives_the_floor_of_the_slower_of_memory_and_arithmetic(tmp_path):
    device = problem_check.Device("toy", 1e6, {"f32": 2e6})
    assert problem_check.floor_ms({"n_bytes": 4000, "n_operations": 2000, "unit": "f32"}, device) == pytest.approx(4)
    assert problem_check.floor_ms({"n_bytes": 4, "n_operations": 20000, "unit": "f32"}, device) == pytest.approx(10)


def test_listing_has_a_row_for_every_problem():
    rows = problem_check.listing()
    assert [row["number"] for row in rows] == EVERY
    assert all(row["floor_ms"] > 0 and row["formats"] and row["title"].endswith(".") for row in rows)


def test_peak_memory_counts_inputs_and_work(tmp_path):
    number = 28 if 28 in EVERY else EVERY[0]
    problem = catalogue.problem(number)
    inputs = problem.module.make_inputs(np, np.random.default_rng(0), "small")
    n_bytes = sum(x.nbytes for x in inputs if hasattr(x, "nbytes"))
    assert problem_check.peak_bytes(problem) >= n_bytes
    assert precision.wide_type() == np.float32
