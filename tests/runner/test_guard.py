"""The guard's judgements on measurements made up for the purpose: each rule refuses its cheat and spares its twin."""

import os

import pytest

from runner import guard, roofline
from runner.calls import Call, Overhead
from runner.records import DeviceKernels

OVERHEAD = Overhead(clock_ms=0.02, armed_ms=0.05, delivered_ms=0.03, used_cpu_ms=0.02, delivered_cpu_ms=0.01)


def series(n=50, **changes):
    usual = {
        "parent_ms": 0.12,
        "armed_ms": 0.05,
        "delivered_ms": 0.03,
        "child_ms": 0.1,
        "idle_cpu_ms": 0.0,
        "used_cpu_ms": 0.12,
        "delivered_cpu_ms": 0.01,
        "n_dsl_calls": 1,
    }
    return [Call(**{**usual, **changes}) for _ in range(n)]


def test_an_honest_clock_is_taken_as_it_is():
    calls = series()
    assert guard.kernel_ms_samples(calls, OVERHEAD, "cuda") == [0.1] * 50
    assert guard.forged_clock(calls, OVERHEAD, "cuda") is None
    assert guard.work_outside_the_clock(calls, OVERHEAD, "cuda") is None


@pytest.mark.parametrize("told", [0.0, 1e-6, None])
def test_a_forged_clock_gains_nothing_and_is_named(told):
    calls = series(parent_ms=1.02, used_cpu_ms=1.02, child_ms=told)
    if told is not None:
        assert min(guard.kernel_ms_samples(calls, OVERHEAD, "cuda")) == pytest.approx(1.0)
        assert "forged clock" in guard.forged_clock(calls, OVERHEAD, "cuda")
    else:
        assert min(guard.kernel_ms_samples(calls, OVERHEAD, "cuda")) >= 1.0


def test_a_clock_that_tells_more_than_passed_is_cut_to_what_passed():
    assert guard.kernel_ms_samples(series(child_ms=50.0), OVERHEAD, "cuda") == [0.12] * 50


def test_a_busy_processor_is_not_held_against_a_kernel():
    # The wall clock says 3 ms, but the child used 0.12 ms of the processor: it was waiting for its turn.
    calls = series(parent_ms=3.0, used_cpu_ms=0.12)
    assert guard.kernel_ms_samples(calls, OVERHEAD, "cpu") == [0.1] * 50
    assert guard.forged_clock(calls, OVERHEAD, "cpu") is None


def test_threads_do_not_make_a_kernel_slower_than_the_wall_clock():
    assert guard.trusted_ms(series(1, used_cpu_ms=0.8)[0], OVERHEAD, "cpu") == pytest.approx(0.1)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"delivered_ms": 0.9}, "after the clock stopped"),
        ({"armed_ms": 0.9}, "before the clock started"),
        ({"idle_cpu_ms": 0.5}, "while it should sleep"),
        ({"n_running": 1}, "in 50 of 50 calls while it should sleep"),
    ],
)
def test_work_outside_the_clock_is_refused(changes, words):
    assert words in guard.work_outside_the_clock(series(**changes), OVERHEAD, "cuda")


def test_work_outside_the_clock_in_fewer_than_half_of_the_calls_moves_no_median():
    calls = series(30) + series(20, delivered_ms=5.0)
    assert guard.work_outside_the_clock(calls, OVERHEAD, "cuda") is None


def test_one_call_without_the_dsl_is_one_too_many():
    calls = series(49) + series(1, n_dsl_calls=0)
    assert guard.not_the_dsl(calls, "tirx") == "no kernel of tirx was called in 1 of 50 calls"
    assert guard.not_the_dsl(series(), "tirx") is None


class Due:
    def __init__(self, shape, dtype):
        import numpy as np

        self.shape, self.dtype = shape, np.dtype(dtype)


@pytest.mark.parametrize(
    "claims, words",
    [
        ([], "0 outputs"),
        ([["numpy.ndarray", [2, 3], "float32"], ["numpy.ndarray", [2, 3], "float32"]], "2 outputs"),
        ([["kernel.Lazy", [2, 3], "float32"]], "plain numpy.ndarray is due"),
        ([["numpy.ndarray", [3, 2], "float32"]], "shape"),
        ([["numpy.ndarray", [2, 3], "float64"]], "type float64"),
        (["nonsense"], "garbled"),
        ([[1, 2]], "garbled"),
    ],
)
def test_claims_that_are_not_what_is_due(claims, words):
    assert words in guard.claims_fault(claims, [Due((2, 3), "float32")], "numpy.ndarray")


def test_claims_that_are_what_is_due():
    assert guard.claims_fault([["numpy.ndarray", [2, 3], "float32"]], [Due((2, 3), "float32")], "numpy.ndarray") is None


def test_device_kernels_are_sorted_by_owner():
    kernels = [
        ["kernel_cutlass_norm_0", 1000],
        ["row_norm_kernel", 2000],
        ["cupy_add__float32", 500],
        ["void cub::Reduce", 500],
    ]
    seen = guard.owners(kernels, "cutedsl")
    assert (seen.n_required, seen.n_other_dsl, seen.n_array_library) == (1, 1, 2)
    assert seen.required_ms == pytest.approx(0.001) and seen.total_ms == pytest.approx(0.004)
    assert "another DSL" in guard.kernels_fault(seen, "cutedsl")
    assert guard.kernels_fault(guard.owners(kernels[1:2], "tirx"), "tirx") is None


def test_no_device_kernel_of_the_dsl_is_refused_and_garbled_records_are_left_out():
    seen = guard.owners([["cupy_copy", 10], "x", [1, 2], ["y", "z"]], "tirx")
    assert seen == DeviceKernels(n_array_library=1, required_ms=0.0, total_ms=1e-5, names=("cupy_copy",))
    assert "no device kernel of tirx" in guard.kernels_fault(seen, "tirx")


def test_code_that_the_dsl_does_not_account_for():
    before = {"/usr/lib/libc.so.6"}
    assert "machine code" in guard.foreign_code(before, before | {"/tmp/scratch/n.so"}, "numba", "/tmp/scratch")
    assert "another DSL (tirx)" in guard.foreign_code(
        before, before | {"/x/tvm/lib/libtvm_runtime.so"}, "numba", "/tmp/scratch"
    )
    assert guard.foreign_code(before, before | {"/usr/lib/libm.so.6"}, "numba", "/tmp/scratch") is None
    assert guard.foreign_code(before, before | {"/tmp/scratch/lib.so"}, "tirx", "/tmp/scratch") is None


def test_a_seal_breaks_on_change_addition_and_removal(tmp_path):
    file = tmp_path / "a.py"
    file.write_text("1")
    before = guard.seal([tmp_path])
    assert guard.broken_seal(before, guard.seal([tmp_path])) is None
    os.utime(file, ns=(1, 1))
    assert "a.py" in guard.broken_seal(before, guard.seal([tmp_path]))
    (tmp_path / "b.py").write_text("2")
    assert "b.py" in guard.broken_seal({**before, **{}}, guard.seal([tmp_path])) or "a.py" in guard.broken_seal(
        before, guard.seal([tmp_path])
    )
    file.unlink()
    assert guard.broken_seal(before, guard.seal([tmp_path]))


def test_changed_settings_are_findings():
    assert guard.changed_flags({"numpy buffer": 8192}, {"numpy buffer": 16}) == [
        "setting changed in the child: numpy buffer"
    ]
    assert guard.changed_flags({"numpy buffer": 8192}, {"numpy buffer": 8192}) == []
    assert guard.changed_flags({"numpy buffer": 8192}, "hostile") == []


def test_a_time_below_the_roofline_cannot_be():
    roof = roofline.Roof(bytes_per_s=1e12, cache_bytes=0, operations_per_s={"f32": 1e12})
    floor = roof.floor_ms({"n_bytes": 2e9, "n_operations": 1e6, "unit": "f32"})
    assert floor == pytest.approx(2.0)
    assert "impossible" in roofline.impossible(1.0, floor)
    assert roofline.impossible(1.9, floor) is None
    assert roof.floor_ms({"n_bytes": 10, "n_operations": 3e9, "unit": "f32"}) == pytest.approx(3.0)
