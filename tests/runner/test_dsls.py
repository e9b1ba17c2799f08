"""DSL plug-ins: found by their files, hooked in the child, able to compile with no GPU."""

import time
from pathlib import Path

import numpy as np
import pytest

from runner import dsls
from runner.arrays import open_arrays
from runner.catalogue import Problem
from runner.errors import UserError
from runner.evaluate import evaluate
from runner.session import Session

KERNELS = Path(__file__).parent / "kernels"
ROW_NORM = Problem(0, "row_norm", "mlp_norm", Path(__file__).parents[1] / "exploits" / "row_norm.py")
CPU_PAIR = [("numba", "row_norm_numba.py"), ("tirx", "row_norm_tirx_cpu.py")]


def need(dsl):
    if (cure := dsls.plugin(dsl).missing()) is not None:
        pytest.skip(f"{dsl}: {cure}")


def test_every_plugin_has_the_whole_of_its_interface():
    assert {"cutedsl", "tirx", "numba", "triton"} <= set(dsls.names())
    for name in dsls.names():
        plugin = dsls.plugin(name)
        assert name == plugin.NAME and plugin.__doc__
        assert set(plugin.devices) <= {"cuda", "cpu"} and plugin.devices
        for part in ("versions", "missing", "environment", "owns", "load", "install_hooks"):
            assert callable(getattr(plugin, part))
        assert isinstance(plugin.environment("cpu"), dict)


@pytest.mark.parametrize("name", ["", "cuda", "../evaluate", "_hooks"])
def test_an_unknown_dsl_is_a_users_mistake(name):
    with pytest.raises(UserError, match="no such DSL"):
        dsls.plugin(name)


@pytest.mark.parametrize(
    "kernel, owner",
    [
        ("kernel_cutlass_norm_kernel_ptrbf16gmem", "cutedsl"),
        ("add_rmsnorm_kernel", "tirx"),
        ("main_kernel_1", "tirx"),
        ("cupy_add__float32_float32", None),
        ("nvjet_sm90_tst_128x256", None),
        ("kernel", None),
    ],
)
def test_kernels_are_owned_by_one_of_the_pair_at_most(kernel, owner):
    assert [name for name in ("cutedsl", "tirx") if dsls.plugin(name).owns(kernel)] == ([owner] if owner else [])


@pytest.mark.parametrize("dsl, file", CPU_PAIR)
def test_hooks_count_calls_and_hold_them_back(dsl, file):
    need(dsl)
    arrays = open_arrays("cpu")
    inputs = ROW_NORM.module.make_inputs(np, np.random.default_rng(3), "small")
    due = ROW_NORM.module.reference(np, *inputs)
    session = Session(dsl, "cpu", time.monotonic() + 90)
    try:
        session.ready()
        session.configure(arrays, inputs, (due,))
        session.load((KERNELS / file).read_text("utf-8"))
        free = session.call(inputs)
        held = session.call(tuple(x * 3 for x in inputs), held=True)
    finally:
        session.close()
    assert free.n_dsl_calls == held.n_dsl_calls == 1
    np.testing.assert_allclose(free.outputs[0], due, rtol=1e-5, atol=1e-5)
    assert held.fault is not None or not np.allclose(held.outputs[0], due * 3, rtol=1e-2)


@pytest.mark.parametrize(
    "dsl, file", [("cutedsl", "row_norm_cutedsl.py"), ("tirx", "row_norm_tirx_cuda.py"), ("numba", "row_norm_numba.py")]
)
def test_compile_only_compiles_a_real_kernel_without_a_gpu(dsl, file):
    need(dsl)
    verdict = evaluate(ROW_NORM, dsl, KERNELS / file, compile_only=True, timeout_s=90)
    assert verdict.compiled and verdict.n_kernels_compiled >= 1 and not verdict.passed


@pytest.mark.parametrize(
    "text, words",
    [
        ("def solve(x):\n    return x\n", "no `build`"),
        (
            "def solve(x):\n    return x\ndef build():\n    raise ValueError('no such layout')\n",
            "ValueError: no such layout",
        ),
        ("def solve(x):\n    return x\ndef build():\n    return []\n", "no kernel"),
    ],
)
def test_compile_only_names_what_does_not_compile(tmp_path, text, words):
    need("numba")
    kernel = tmp_path / "kernel.py"
    kernel.write_text(text)
    verdict = evaluate(ROW_NORM, "numba", kernel, compile_only=True, timeout_s=60)
    assert not verdict.compiled and verdict.stage == "compile" and words in verdict.reason
