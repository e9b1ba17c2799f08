"""`check` finds what is lost, cut or changed in a study, repairs only what it says, and loses nothing."""

import json
import os
import shutil
from pathlib import Path

import pytest

from mkb_analyze.check import Level, check
from mkb_analyze.console import run
from runner.errors import UserError
from runner.study import Study, TornLine

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "study"


@pytest.fixture
def study(tmp_path):
    shutil.copytree(EXAMPLE, tmp_path / "study")
    return tmp_path / "study"


def whats(seen):
    return [(f.level, f.where, f.what) for f in seen.findings]


def test_a_whole_study_has_no_finding(study):
    seen = check(study)
    assert seen.whole and not seen.findings
    assert seen.n_lines["attempts"] == 12 and seen.n_texts == {"kernels": 46, "notes": 12}


def test_a_torn_tail_is_a_remark_and_repair_keeps_it_aside(study):
    file = study / "attempts.jsonl"
    before = file.read_bytes()
    file.write_bytes(before + b'{"model": "m", "pro')
    seen = check(study)
    assert seen.whole and [f.level for f in seen.findings] == [Level.REMARK]
    assert file.read_bytes() != before, "a check without --repair changes nothing"
    with pytest.warns(TornLine):
        assert check(study, repair=True).findings[0].repaired
    assert file.read_bytes() == before
    assert (study / "attempts.jsonl.torn").read_bytes() == b'{"model": "m", "pro\n'
    assert not check(study).findings


def test_a_missing_text_names_the_line_that_wants_it(study):
    victim = next((study / "notes").iterdir())
    victim.unlink()
    seen = check(study)
    assert not seen.whole
    assert any(f.where.startswith("attempts.jsonl:") and victim.stem in f.what for f in seen.findings)


def test_a_changed_text_is_a_fault(study):
    victim = next((study / "kernels").iterdir())
    victim.write_text(victim.read_text() + "\n")
    assert [(f.level, f.where) for f in check(study).findings] == [(Level.FAULT, f"kernels/{victim.name}")]


def test_broken_lines_are_each_named_and_the_rest_is_read(study):
    file = study / "attempts.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    deep = b"[" * 100_000 + b"\n"
    file.write_bytes(b"".join([lines[0], b"{]\n", *lines[1:5], deep, b'{"model": ""}\n', *lines[5:]]))
    seen = check(study)
    assert {f.where for f in seen.findings if f.level is Level.FAULT} == {f"attempts.jsonl:{n}" for n in (2, 7, 8)}
    assert seen.n_lines["attempts"] == 12


def test_a_doubled_line_counts_once_and_is_remarked(study):
    file = study / "attempts.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines, lines[3]]))
    assert whats(check(study)) == [(Level.REMARK, "attempts.jsonl:13", "repeats line 4")]
    assert len(Study(study).attempts()) == 12


def test_an_attempt_run_again_is_remarked(study):
    file = study / "attempts.jsonl"
    again = json.loads(file.read_bytes().splitlines()[0]) | {"at": "2026-01-01T00:00:00Z"}
    with open(file, "a") as stream:
        stream.write(json.dumps(again) + "\n")
    assert [f.where for f in check(study).findings] == ["attempts.jsonl:13"]
    assert check(study).whole


def test_half_written_neighbours_go_by_repair_only(study):
    leftover = study / "notes" / ".abc.md.123.tmp"
    leftover.write_text("half")
    assert check(study).whole and leftover.exists()
    assert check(study, repair=True).findings[0].repaired and not leftover.exists()


def test_a_span_past_the_note_is_a_fault(study, capsys):
    assert run(["annotate", "--study", str(study), "--rater", "embedded", "--quiet"]) == 0
    assert check(study).whole
    file = study / "annotations.jsonl"
    lines = file.read_text().splitlines()
    broken = json.loads(lines[0])
    broken["claims"][-1]["end"] = 10**7
    file.write_text("\n".join([json.dumps(broken), *lines[1:]]) + "\n")
    assert [f.where for f in check(study).findings] == ["annotations.jsonl:1"]


@pytest.mark.parametrize("place", ["attempts.jsonl", "notes"])
def test_a_pipe_in_place_of_a_file_is_named_and_never_waited_for(study, place):
    victim = study / place if place.endswith("jsonl") else next((study / place).iterdir())
    victim.unlink()
    os.mkfifo(victim)
    seen = check(study)
    assert not seen.whole and any("regular file" in f.what for f in seen.findings)
    if place == "attempts.jsonl":
        with pytest.raises(UserError, match="no plain file"):
            Study(study).attempts()
    else:
        with pytest.raises(UserError, match="no plain file"):
            Study(study).note(victim.stem)


def test_the_verb_says_it_and_leaves_with_status_1_when_something_is_lost(study, capsys):
    assert run(["check", "--study", str(study)]) == 0
    assert "whole (12 attempts" in capsys.readouterr().out
    next((study / "kernels").iterdir()).unlink()
    assert run(["check", "--study", str(study), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["whole"] is False


def test_repair_waits_for_no_writer_but_refuses(study):
    with Study(study).writing(), pytest.raises(UserError, match="in use"):
        check(study, repair=True)
