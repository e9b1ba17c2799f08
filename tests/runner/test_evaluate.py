"""Whole evaluations on the processor: honest kernels pass, faults are named with their stage, cheats are refused."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from runner import contract, tripwires
from runner.arrays import open_arrays
from runner.batch import Job, evaluate_many
from runner.catalogue import Problem
from runner.draws import Draws
from runner.errors import UserError
from runner.evaluate import evaluate, pick_device
from runner.pool import Pool
from runner.records import Verdict
from tests.exploits.__main__ import wrong
from tests.exploits.kinds import KINDS
from tests.exploits.preludes import PRELUDES

KERNELS = Path(__file__).parent / "kernels"
ROOT = Path(__file__).parents[2]
ROW_NORM = Problem(0, "row_norm", "mlp_norm", ROOT / "tests" / "exploits" / "row_norm.py")
numba = pytest.importorskip("numba", reason="pip install numba")


def graded(tmp_path, text, **given):
    kernel = tmp_path / "kernel.py"
    kernel.write_bytes(text if isinstance(text, bytes) else text.encode())
    return evaluate(ROW_NORM, "numba", kernel, device="cpu", **{"timeout_s": 60, **given})


def test_an_honest_kernel_passes_with_every_figure_of_the_contract_and_findings_decide_nothing(tmp_path):
    kind = next(k for k in KINDS if k.name == "C code through ctypes")
    verdict = graded(tmp_path, PRELUDES["numba", "cpu"] + kind.twin, timeout_s=90)
    assert any("ctypes: calls foreign code" in finding for finding in verdict.findings)
    assert verdict.passed, verdict.reason
    assert len(verdict.kernel_ms_samples) == contract.N_TIMED_DRAWS
    assert verdict.n_draws_passed == contract.N_CORRECTNESS_DRAWS
    assert verdict.kernel_ms == contract.median_ms(verdict.kernel_ms_samples)
    assert verdict.speedup == pytest.approx(verdict.reference_ms / verdict.kernel_ms)
    assert 0 < verdict.error_ratio <= 1
    assert 0 < verdict.draws_s < verdict.eval_s
    assert verdict.contract_sha256 == contract.digest() and verdict.size == "small"
    assert Verdict.model_validate(json.loads(json.dumps(verdict.line()))) == verdict


def test_the_other_half_of_the_processors_pair_passes():
    pytest.importorskip("tvm", reason="pip install apache-tvm")
    verdict = evaluate(ROW_NORM, "tirx", KERNELS / "row_norm_tirx_cpu.py", device="cpu", timeout_s=90)
    assert verdict.passed, verdict.reason


@pytest.mark.parametrize(
    "text, stage, words",
    [
        (b"#" * (contract.MAX_KERNEL_BYTES + 1), "load", "oversized"),
        (b"\xff\xfe\x00", "load", "unreadable"),
        ("def solve(x, w:\n", "load", "SyntaxError"),
        ("import no_such_module\n", "load", "ModuleNotFoundError"),
        ("x = 1\n", "load", "no `solve`"),
        ("solve = 3\n", "load", "no `solve`"),
        ("import sys\nsys.exit(0)\n", "load", "SystemExit"),
        ("import os\nos._exit(0)\n", "load", "the child is gone: it left with exit status 0"),
        ("import os\nos.abort()\n", "load", "the child is gone: it was ended by SIG"),
        (
            "def build():\n    raise RuntimeError('bad tile')\ndef solve(x, w):\n    return x\n",
            "compile",
            "RuntimeError: bad tile",
        ),
        ("def solve(x, w):\n    raise KeyError('k')\n", "correctness", "KeyError"),
        ("def solve(x):\n    return x\n", "correctness", "TypeError"),
        ("def solve(x, w):\n    return None\n", "correctness", "plain numpy.ndarray is due"),
        ("def solve(x, w):\n    return [[1.0]]\n", "correctness", "plain numpy.ndarray is due"),
        (
            "class Bad(Exception):\n    def __str__(self):\n        raise SystemExit\n"
            "def solve(x, w):\n    raise Bad\n",
            "correctness",
            "Bad",
        ),
    ],
)
def test_a_fault_is_named_with_its_stage(tmp_path, text, stage, words):
    verdict = graded(tmp_path, text)
    assert not verdict.passed and verdict.stage == stage and words in verdict.reason, verdict


def test_a_file_that_is_not_there_is_a_verdict_and_no_exception(tmp_path):
    verdict = evaluate(ROW_NORM, "numba", tmp_path / "none.py", device="cpu")
    assert verdict.stage == "load" and "unreadable" in verdict.reason


def test_a_hang_ends_at_the_time_limit_with_its_stage_and_tail(tmp_path):
    verdict = graded(tmp_path, "print('so far')\ndef solve(x, w):\n    while True:\n        pass\n", timeout_s=6)
    assert verdict.stage == "correctness" and "hang" in verdict.reason and "so far" in verdict.stderr_tail
    assert verdict.eval_s < 30


def test_what_a_submission_prints_is_bounded_and_harmless(tmp_path):
    verdict = graded(tmp_path, "print('\\x1b[2J' + 'x' * 100000)\nraise ValueError('end')\n")
    assert len(verdict.stderr_tail) <= 4000 and "\x1b" not in verdict.stderr_tail


CHEATS = (
    "late work in the delivery",
    "patched clock",
    "warm-up answers served while timed",
    "input mutation",
    "decoy kernel",
    "forged result",
    "work in another process",
    "harness edits",
)


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_is_refused_for_its_own_reason(tmp_path, name):
    kind = next(k for k in KINDS if k.name == name)
    verdict = graded(tmp_path, PRELUDES["numba", "cpu"] + kind.hostile)
    assert wrong(kind, True, verdict) is None


def test_words_in_comments_and_strings_are_no_findings():
    twin = next(k for k in KINDS if k.name == "the problem's own code").twin
    assert tripwires.findings(ast.parse(twin), "numba") == []
    assert tripwires.findings(ast.parse("import os\nos.fork()\nimport numba\n"), "tirx") == [
        "line 3: numba: another DSL (numba) is imported",
        "line 2: fork: starts processes",
    ]


def test_draws_differ_without_a_seed_and_repeat_with_one():
    arrays = open_arrays("cpu")
    first = [Draws(ROW_NORM, arrays, "small", 5).next().inputs[0] for _ in range(2)]
    assert np.array_equal(first[0], first[1])
    free = Draws(ROW_NORM, arrays, "small", None)
    assert not np.array_equal(free.next().inputs[0], free.next().inputs[0])


def test_devices_that_cannot_be_used_are_a_users_mistake():
    with pytest.raises(UserError, match="numba runs on cpu only"):
        pick_device("numba", "cuda")
    with pytest.raises(UserError, match="a device is cuda or cpu"):
        open_arrays("tpu")


def test_a_waiting_child_serves_one_submission_and_the_pool_leaves_nothing(tmp_path):
    with Pool() as pool:
        child = pool.take("numba", "cpu")
        verdict = graded(tmp_path, "x = 1\n", child=child)
        waiting = [c for queue in pool._waiting.values() for c in queue]
        assert "no `solve`" in verdict.reason and child.process.poll() is not None
        assert len(waiting) == 1 and waiting[0].process.poll() is None
    assert waiting[0].process.poll() is not None


def test_a_batch_appends_one_line_a_verdict_and_goes_on_after_a_fault(tmp_path):
    jobs = []
    for index, text in enumerate(("x = 1\n", "import os\nos._exit(3)\n")):
        kernel = tmp_path / f"{index}.py"
        kernel.write_text(text)
        jobs.append(Job(ROW_NORM, "numba", kernel, label={"attempt": index}))
    shown = []
    verdicts = evaluate_many(jobs, tmp_path / "out.jsonl", device="cpu", show=shown.append)
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["attempt"] for line in lines] == [0, 1] and len(shown) == 2
    assert [line["verdict"]["reason"] for line in lines] == [v.reason for v in verdicts]


IMITATION = """
import sys
from pathlib import Path
import runner.dsls.numba as plugin
plugin.devices = ("cpu", "cuda")
from runner.catalogue import Problem
from runner.evaluate import evaluate
problem = Problem(0, "row_norm", "mlp_norm", Path(sys.argv[1]))
print(evaluate(problem, "numba", sys.argv[2], device="cuda", size="small", timeout_s=120).model_dump_json())
"""


@pytest.mark.parametrize("ipc, path", [("1", "ipc"), ("0", "shared memory")])
def test_the_gpu_branches_run_on_an_imitated_array_library(ipc, path):
    before = set(os.listdir("/dev/shm"))
    environment = {
        **os.environ,
        "MKB_CUDA_IPC": ipc,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests/runner/imitation")]),
    }
    answer = subprocess.run(
        [sys.executable, "-c", IMITATION, str(ROW_NORM.path), str(KERNELS / "row_norm_numba_imitation.py")],
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT,
        timeout=150,
    )
    for name in set(os.listdir("/dev/shm")) - before:
        if name.startswith("imitation-"):
            os.unlink(f"/dev/shm/{name}")
    assert answer.returncode == 0, answer.stderr[-2000:]
    verdict = Verdict.model_validate_json(answer.stdout.strip().splitlines()[-1])
    assert verdict.data_path == path and verdict.n_draws_passed == contract.N_CORRECTNESS_DRAWS
    assert len(verdict.kernel_ms_samples) == contract.N_TIMED_DRAWS or "clock" in verdict.reason
