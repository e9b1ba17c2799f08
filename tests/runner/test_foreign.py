"""Problem sets of others: found by their text, run in a process of their own, graded by the same contract."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from runner import catalogue, foreign_check
from runner.errors import UserError
from runner.evaluate import evaluate
from runner.foreign import COMPILED, EAGER

DATA = Path(__file__).parents[1] / "data" / "foreign"
KERNELBENCH, PUBLISHED, KERNELS = DATA / "kernelbench", DATA / "published", DATA / "kernels"
HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="pip install torch (extra `torch`)")
needs_numba = pytest.mark.skipif(importlib.util.find_spec("numba") is None, reason="pip install numba")
PROBLEM = """
import torch
{extra}
def reference(x):
    return {result}
def make_inputs():
    return [torch.rand(8, 8, dtype=torch.{dtype})]
"""


def published(tmp_path, extra="", result="x * 2", dtype="float32"):
    (tmp_path / "moe").mkdir()
    (tmp_path / "moe" / "44_made_up.py").write_text(PROBLEM.format(extra=extra, result=result, dtype=dtype))
    return catalogue.problem(44, tmp_path)


def test_layouts_are_told_apart_and_numbered_by_text_alone():
    found = catalogue.problems_in(KERNELBENCH)
    assert [(p.number, p.family, p.name) for p in found] == [
        (1003, "level1", "Affine_Relu"),
        (2003, "level2", "Dropped"),
    ]
    assert found[0].title == "An affine map of every row, negative values cut off."
    assert "named_parameters" in found[0].statement()
    (theirs,) = catalogue.problems_in(PUBLISHED)
    assert (theirs.number, theirs.kind, theirs.baseline) == (28, "published", EAGER)
    assert [p.number for p in catalogue.select("1*", KERNELBENCH)] == [1003]
    assert len(catalogue.problems_in(catalogue.problem_root())) == len(catalogue.problems_in())


def test_listing_runs_nothing_of_a_problem(tmp_path):
    trap = f"open({str(tmp_path / 'ran')!r}, 'w'); raise SystemExit"
    problem = published(tmp_path, trap)
    assert problem.title == "made_up" and problem.sha256 and catalogue.set_digest(tmp_path)
    with pytest.raises(UserError, match="not imported"):
        problem.module  # noqa: B018
    assert not (tmp_path / "ran").exists()


def test_the_baseline_is_part_of_the_digest():
    eager, compiled = (catalogue.problem(1003, KERNELBENCH, c) for c in (False, True))
    assert compiled.baseline == COMPILED and eager.sha256 != compiled.sha256


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda root: root / "none", "no such folder"),
        (lambda root: root, "holds no problem"),
    ],
)
def test_a_folder_without_problems_is_a_users_mistake(tmp_path, make, words):
    with pytest.raises(UserError, match=words):
        catalogue.problems_in(make(tmp_path))


def test_two_files_of_one_number_a_small_size_and_a_compiled_baseline_of_ours_are_users_mistakes(tmp_path):
    problem = published(tmp_path)
    with pytest.raises(UserError, match="one size"):
        problem.size("cpu", "small")
    (tmp_path / "mlp").mkdir()
    (tmp_path / "mlp" / "44_other.py").write_text(problem.path.read_text())
    with pytest.raises(UserError, match="exists twice"):
        catalogue.problems_in(tmp_path)
    with pytest.raises(UserError, match="compile-baseline"):
        catalogue.problem(28, compiled=True)


@pytest.mark.skipif(HAS_TORCH, reason="PyTorch is installed")
@needs_numba
def test_without_torch_the_cure_is_named():
    with pytest.raises(UserError, match="pip install torch"):
        evaluate(catalogue.problem(1003, KERNELBENCH), "numba", KERNELS / "affine_relu_numba.py", device="cpu")


@needs_torch
@needs_numba
@pytest.mark.parametrize(
    "root, number, kernel",
    [(KERNELBENCH, 1003, "affine_relu_numba.py"), (PUBLISHED, 28, "row_scale_numba.py")],
)
def test_a_real_kernel_passes_against_pytorch_which_never_enters_this_process(root, number, kernel):
    verdict = evaluate(catalogue.problem(number, root), "numba", KERNELS / kernel, device="cpu", timeout_s=120)
    assert verdict.passed, verdict.reason
    assert verdict.baseline == EAGER and verdict.reference_ms > 0 and verdict.size == "full"
    assert "torch" not in sys.modules and "problem" not in sys.modules


@needs_torch
@needs_numba
def test_inductor_can_be_the_baseline():
    problem = catalogue.problem(1003, KERNELBENCH, compiled=True)
    verdict = evaluate(problem, "numba", KERNELS / "affine_relu_numba.py", device="cpu", timeout_s=200)
    assert verdict.passed and verdict.baseline == COMPILED, verdict.reason


@needs_torch
@needs_numba
def test_a_kernel_that_forgets_the_bias_is_refused(tmp_path):
    text = (KERNELS / "affine_relu_numba.py").read_text().replace("np.float64(bias[j])", "0.0")
    (tmp_path / "kernel.py").write_text(text)
    verdict = evaluate(catalogue.problem(1003, KERNELBENCH), "numba", tmp_path / "kernel.py", device="cpu")
    assert not verdict.passed and verdict.stage == "correctness" and "exceeds its limit" in verdict.reason


@needs_torch
def test_what_cannot_be_graded_on_is_said(monkeypatch, tmp_path):
    dropped = foreign_check.quality(catalogue.problem(2003, KERNELBENCH), "cpu")
    assert not dropped.ok and "random numbers within" in dropped.faults[0]
    good = foreign_check.quality(catalogue.problem(28, PUBLISHED), "cpu")
    assert good.ok and good.reference_ms > 0
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    nosy = "import os\nif 'OPENAI_API_KEY' not in os.environ: raise KeyError(f'no key in {os.getpid()}')"
    fault = foreign_check.quality(published(tmp_path, nosy), "cpu").faults[0]
    assert "KeyError" in fault and f"no key in {os.getpid()}'" not in fault


@needs_torch
def test_a_problem_whose_type_the_contract_does_not_know_is_named(tmp_path):
    fault = foreign_check.quality(published(tmp_path, dtype="complex64"), "cpu").faults[0]
    assert "complex64" in fault
