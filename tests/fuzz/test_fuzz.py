"""A short run of the fuzzer over every reader; `python -m tests.fuzz 200000` is the long one."""

import signal

import pytest

from tests.fuzz.__main__ import _hung, fuzz
from tests.fuzz.targets import Target, targets

TARGETS = list(targets())


@pytest.fixture(autouse=True)
def alarm():
    before = signal.signal(signal.SIGALRM, _hung)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_no_reader_answers_a_broken_input_with_a_traceback(target):
    result = fuzz(target, 60, seed=7)
    assert result.n == 60 and not result.faults, result.faults[0][1]


def test_the_fuzzer_sees_a_traceback_and_a_hang(monkeypatch):
    def broken(data, folder):
        while data.startswith(b"a"):
            pass
        raise KeyError("x")

    monkeypatch.setattr("tests.fuzz.__main__.HANG_S", 0.2)
    told = [f for _, f in fuzz(Target("broken", lambda: [b"abc", b"b"], broken), 2, seed=1).faults]
    assert len(told) == 2 and any("Hang" in t for t in told) and any("KeyError" in t for t in told)


def test_whole_inputs_are_read_so_that_mutations_begin_where_readers_go_on():
    for target in TARGETS:
        if target.name != "kernel's messages":
            assert fuzz(target, 1, seed=0).n_refused == 0, target.name
