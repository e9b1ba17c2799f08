"""Hand-made attempts: what the folder holds becomes the record, each kernel is graded once, a repeat adds nothing."""

import pytest

from runner import replay
from runner.errors import UserError
from runner.records import Arm, State, Verdict
from runner.study import Study

GOOD = Verdict(passed=True, stage="done", speedup=2.0, kernel_ms=1.0, reference_ms=2.0)
BAD = Verdict(passed=False, stage="correctness", reason="wrong")


@pytest.fixture
def root(tmp_path):
    def attempt(name, note="what was learned", final="k3"):
        folder = tmp_path / "kernels" / "hand" / name
        folder.mkdir(parents=True)
        for k in (1, 2, 10):
            (folder / f"s{k}.py").write_text(f"# {name} k{k}")
        (folder / "final.py").write_text(f"# {name} k10" if final == "k3" else final)
        if note:
            (folder / "SKILL.md").write_text(note)

    attempt("p28_r1_solo_cutedsl", note="note of cute")
    attempt("p28_r1_solo_tirx", note="")
    attempt("p28_r1_cutedsl2tirx")
    attempt("p28_r1_tirx2cutedsl")
    return tmp_path


def recorded(root, graded=None):
    study = Study.create(root / "study")
    calls = graded if graded is not None else []

    def grade(problem, dsl, kernel):
        calls.append(kernel)
        return BAD if kernel.name == "s1.py" else GOOD

    with study.writing():
        new = list(replay.record(root / "kernels", study, grade))
    return study, new


def test_arms_notes_and_order_of_submissions(root):
    study, _ = recorded(root)
    by_key = {a.key: a for a in study.attempts()}
    conditioned = by_key["hand/p28_r1_cutedsl2tirx_note"]
    assert study.note(conditioned.source_note_sha256) == "note of cute" and conditioned.arm is Arm.CONDITIONED
    assert [s.index for s in conditioned.submissions] == [1, 2, 10]
    assert [s.verdict.passed for s in conditioned.submissions] == [False, True, True]
    assert conditioned.kernel_sha256 == conditioned.submissions[-1].kernel_sha256


def test_no_note_skips_the_attempt_that_needs_it(root):
    study, _ = recorded(root)
    skipped = next(a for a in study.attempts() if a.direction == "tirx2cutedsl")
    assert skipped.state is State.SKIPPED and skipped.verdict is None


def test_each_kernel_is_graded_once_also_over_runs(root):
    graded = []
    recorded(root, graded)
    n_kernels = len({p.read_text() for p in (root / "kernels").rglob("*.py")}) - 3  # the skipped attempt's are not due
    assert len(graded) == n_kernels
    _, new = recorded(root, graded)
    assert len(graded) == n_kernels and new == []


def test_an_attempt_without_a_final_kernel_is_an_error_with_its_reason(root):
    (root / "kernels/hand/p28_r1_solo_cutedsl/final.py").unlink()
    study, _ = recorded(root)
    attempt = next(a for a in study.attempts() if a.key.endswith("solo_cutedsl"))
    assert attempt.state is State.ERROR and "no final.py" in attempt.reason


def test_repeated_verdicts_are_kept_for_the_noise(root):
    recorded(root)
    verdicts = replay.Verdicts(root / "kernels" / "verdicts.jsonl")
    key = next(k for k, v in verdicts.known.items() if v[0].passed)
    verdicts.add(key, GOOD.model_copy(update={"kernel_ms": 1.01, "speedup": 2.0 / 1.01}))
    assert replay.Verdicts(root / "kernels" / "verdicts.jsonl").repeats(key) == [1.0, 1.01]


@pytest.mark.parametrize("name", ["p28_solo", "q28_r1_solo_tirx", "p28_r1_tirx-cutedsl"])
def test_a_folder_of_another_name_is_refused(root, name):
    (root / "kernels/hand" / name).mkdir()
    with pytest.raises(UserError, match="no attempt has that name"):
        replay.folders(root / "kernels")


def test_a_broken_verdict_line_names_file_and_line(root):
    (root / "kernels/verdicts.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match=r"verdicts\.jsonl:1: no verdict"):
        replay.Verdicts(root / "kernels/verdicts.jsonl")
