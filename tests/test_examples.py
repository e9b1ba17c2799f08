"""The recorded study is whole: twelve attempts, every text there under its digest, arms that only a note connects."""

from pathlib import Path

import pytest

from mkb_analyze.transfers import Settings, build
from runner import pairing
from runner.records import Arm
from runner.study import Study

STUDY = Path(__file__).resolve().parents[1] / "examples" / "study"


@pytest.fixture(scope="module")
def attempts():
    return Study(STUDY).attempts()


def test_three_problems_two_dsls_both_arms(attempts):
    cells = {(a.problem, a.dsl, a.arm) for a in attempts}
    assert len(attempts) == len(cells) == 12 and {a.problem for a in attempts} == {1, 28, 72}
    assert {a.dsl for a in attempts} == {"cutedsl", "tirx"} and {a.model for a in attempts} == {"hand"}


def test_every_attempt_has_submissions_verdict_kernel_and_note(attempts):
    for a in attempts:
        assert a.verdict is not None and a.submissions and a.kernel_sha256 and a.note_sha256, a.key
        assert all(s.verdict is not None and s.kernel_sha256 for s in a.submissions), a.key


def test_every_text_is_there_letter_for_letter(attempts):
    study = Study(STUDY)
    for a in attempts:
        for sha in (a.note_sha256, a.source_note_sha256):
            assert sha is None or study.note(sha).strip()
        for sha in (a.kernel_sha256, *(s.kernel_sha256 for s in a.submissions)):
            assert "def solve(" in study.kernel(sha)


def test_a_conditioned_attempt_was_given_the_note_its_source_left(attempts):
    solos = {(a.problem, a.dsl): a for a in attempts if a.arm is Arm.SOLO}
    for a in attempts:
        if a.arm is Arm.CONDITIONED:
            assert a.source_note_sha256 == solos[a.problem, a.source_dsl].note_sha256


def test_arms_share_no_kernel(attempts):
    owners: dict[str, set[str]] = {}
    for a in attempts:
        for s in a.submissions:
            owners.setdefault(s.kernel_sha256, set()).add(a.key)
    assert all(len(keys) == 1 for keys in owners.values())


def test_every_time_stands_in_a_verdict_of_one_device(attempts):
    for a in attempts:
        assert a.verdict.device and "H200" in a.verdict.device
        if a.verdict.passed:
            assert a.verdict.kernel_ms_samples and a.verdict.reference_ms and a.verdict.kernels.n_required >= 1


def test_six_transfers_resolve(attempts):
    assert len(pairing.transfers(attempts)) == 6
    assert sum(t.resolved for t in build(attempts, Settings.of(Study(STUDY).manifest))) == 6
