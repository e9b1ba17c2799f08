"""An impossible state cannot be written down."""

import pytest
from pydantic import ValidationError

from runner.records import Attempt, Submission, Verdict

SHA = "0" * 64
PASS = {"passed": True, "stage": "done", "speedup": 2.0, "kernel_ms": 1.0, "reference_ms": 2.0}
FAIL = {"passed": False, "stage": "timing", "reason": "hang"}
SOLO = {"model": "m", "problem": 1, "dsl": "tirx", "arm": "solo"}
CONDITIONED = {**SOLO, "arm": "conditioned", "source_dsl": "cutedsl"}


@pytest.mark.parametrize(
    "change",
    [
        {"speedup": None},
        {"stage": "timing"},
        {"reason": "x"},
        {"speedup": 3.0},
        {"speedup": 0.0},
        {"kernel_ms": -1.0},
        {"kernel_ms": float("nan")},
        {"speedup": float("inf")},
    ],
)
def test_impossible_passed_verdicts(change):
    Verdict(**PASS)
    with pytest.raises(ValidationError):
        Verdict(**{**PASS, **change})


@pytest.mark.parametrize("change", [{"speedup": 1.0}, {"reason": None}, {"reason": ""}, {"stage": "done"}])
def test_impossible_failed_verdicts(change):
    Verdict(**FAIL)
    with pytest.raises(ValidationError):
        Verdict(**{**FAIL, **change})


@pytest.mark.parametrize(
    "fields",
    [
        {**SOLO, "source_dsl": "cutedsl"},
        {**SOLO, "source_note_sha256": SHA},
        {**CONDITIONED, "source_dsl": None},
        {**CONDITIONED, "source_dsl": "tirx"},
        {**SOLO, "state": "skipped", "reason": "x"},
        {**SOLO, "state": "error"},
        {**CONDITIONED, "state": "skipped", "reason": "no note", "verdict": FAIL},
        {**SOLO, "replicate": 0},
        {**SOLO, "dsl": "../x"},
        {**SOLO, "kernel_sha256": "abc"},
        {**SOLO, "at": "yesterday"},
        {**SOLO, "model": ""},
    ],
)
def test_impossible_attempts(fields):
    with pytest.raises(ValidationError):
        Attempt(**fields)


def test_submissions_are_numbered_once():
    with pytest.raises(ValidationError):
        Attempt(**SOLO, submissions=(Submission(index=1), Submission(index=1)))


def test_records_are_frozen_and_unmeasured_is_absent():
    verdict = Verdict(**FAIL)
    with pytest.raises(ValidationError):
        verdict.reason = "other"
    assert "kernel_ms" not in verdict.line()


def test_keys_tell_arms_apart():
    keys = {Attempt(**SOLO).key, Attempt(**CONDITIONED).key, Attempt(**{**CONDITIONED, "replicate": 2}).key}
    assert keys == {"m/p01_r1_solo_tirx", "m/p01_r1_cutedsl2tirx_note", "m/p01_r2_cutedsl2tirx_note"}
