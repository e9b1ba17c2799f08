"""The handshake of one call: a rehearsal warms the code on the old draw, and shows the child nothing of the new one."""

import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from runner import session as session_module
from runner.arrays import open_arrays
from runner.catalogue import Problem
from runner.session import Session
from tests.exploits.preludes import PRELUDES

ROW_NORM = Problem(0, "row_norm", "mlp_norm", Path(__file__).parents[1] / "exploits" / "row_norm.py")
pytest.importorskip("numba", reason="pip install numba")
# Writes what it was shown into its answer: the first value of every draw that `solve` has been called on so far.
DIARY = """
seen = []
def solve(x, w):
    seen.append(float(x[0, 0]))
    y = xp.empty_like(x)
    launch(x, w, y)
    y[0, : len(seen)] = seen
    return y
"""


INPUTS = [ROW_NORM.module.make_inputs(np, np.random.default_rng(seed), "small") for seed in range(3)]


@contextmanager
def child_with(body):
    session = Session("numba", "cpu", time.monotonic() + 90)
    try:
        session.ready()
        session.configure(open_arrays("cpu"), INPUTS[0], (ROW_NORM.module.reference(np, *INPUTS[0]),))
        session.load(PRELUDES["numba", "cpu"] + body)
        yield session
    finally:
        session.close()


def firsts(*inputs):
    return [float(x[0, 0]) for x, _ in inputs]


def test_a_rehearsal_sees_the_old_draw_alone_counts_as_no_call_and_is_left_out_after_a_long_call():
    a, b, c = INPUTS
    with child_with(DIARY) as session:
        session.call(a)
        session._last_ms = 0.1
        second = session.call(b, rehearse=True)
        session._last_ms = 0.1
        held = session.call(c, held=True, rehearse=True)
        session._last_ms = session_module.REHEARSED_MS
        last = session.call(a, rehearse=True)
    assert second.outputs[0][0, :3].tolist() == firsts(a, a, b)
    assert held.outputs[0][0, :5].tolist() == firsts(a, a, b, b, c)
    assert last.outputs[0][0, :6].tolist() == firsts(a, a, b, b, c, a)
    assert [call.n_dsl_calls for call in (second, held, last)] == [1, 1, 1]


def test_a_rehearsal_that_raises_is_no_fault_of_the_call():
    body = """
n = [0]
def solve(x, w):
    n[0] += 1
    if n[0] == 2:
        raise SystemExit("twice")
    y = xp.empty_like(x)
    launch(x, w, y)
    return y
"""
    with child_with(body) as session:
        session.call(INPUTS[0])
        session._last_ms = 0.1
        call = session.call(INPUTS[1], rehearse=True)
    assert call.fault is None
    np.testing.assert_allclose(call.outputs[0], ROW_NORM.module.reference(np, *INPUTS[1]), rtol=1e-5, atol=1e-5)
