"""The study folder keeps what it was given through crashes, strangers and newer releases."""

import json
import multiprocessing
import os
import signal
import time
import warnings

import pytest

from runner.errors import UserError
from runner.records import Attempt
from runner.study import Study, TornLine


def attempt(problem: int = 28, **fields) -> Attempt:
    return Attempt(**{"model": "m", "problem": problem, "dsl": "tirx", "arm": "solo", **fields})


@pytest.fixture
def study(tmp_path):
    return Study.create(tmp_path / "s", device="none")


def test_records_come_back_as_they_went_in(study):
    with study.writing():
        study.append("attempts", [attempt(1), attempt(2)])
    assert [a.problem for a in study.attempts()] == [1, 2]


def test_unknown_fields_survive(study):
    (study.path / "attempts.jsonl").write_text(json.dumps(attempt().line() | {"colour": {"a": [1]}}) + "\n")
    (read,) = study.attempts()
    assert read.line()["colour"] == {"a": [1]}


def test_later_line_of_one_key_counts(study):
    with study.writing():
        study.append("attempts", attempt(timed_out=False))
        study.append("attempts", attempt(timed_out=True))
    assert [a.timed_out for a in study.attempts()] == [True]


def test_torn_last_line_is_left_out_then_redone(study):
    with study.writing():
        study.append("attempts", attempt(1))
    with open(study.path / "attempts.jsonl", "ab") as stream:
        stream.write(b'{"model": "m", "prob')
    with pytest.warns(TornLine):
        assert [a.problem for a in study.attempts()] == [1]
    with study.writing(), pytest.warns(TornLine):
        study.append("attempts", attempt(2))
    assert [a.problem for a in study.attempts()] == [1, 2]
    assert (study.path / "attempts.jsonl.torn").read_bytes() == b'{"model": "m", "prob\n'


def test_whole_line_that_lost_only_its_newline_stays(study):
    (study.path / "attempts.jsonl").write_text(json.dumps(attempt(1).line()))
    with warnings.catch_warnings(), study.writing():
        warnings.simplefilter("error")
        study.append("attempts", attempt(2))
    assert [a.problem for a in study.attempts()] == [1, 2]


@pytest.mark.parametrize("line", ["{not json}", "[1, 2]", '{"model": "m"}', "[" * 100_000])
def test_broken_line_elsewhere_names_file_and_line(study, line):
    good = json.dumps(attempt().line())
    (study.path / "attempts.jsonl").write_text(f"{good}\n{line}\n{good}\n")
    with pytest.raises(UserError, match=r"attempts\.jsonl:2: "):
        study.attempts()


def test_newer_schema_is_refused_with_the_version(tmp_path):
    (tmp_path / "study.json").write_text('{"schema_version": 99}')
    with pytest.raises(UserError, match="99 is newer than 1"):
        Study(tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema_version": "1"}', "null"])
def test_broken_manifest_is_one_line(tmp_path, content):
    (tmp_path / "study.json").write_text(content)
    with pytest.raises(UserError):
        Study(tmp_path)


def test_texts_are_kept_letter_for_letter(study):
    text = "\ufeffa\r\nb\x00\n中文 🙂 \ud800"
    assert study.note(study.put_text("notes", text)) == text


def test_changed_text_is_noticed(study):
    name = study.put_text("notes", "one")
    (study.path / "notes" / f"{name}.md").write_text("two")
    with pytest.raises(UserError, match="no longer has that digest"):
        study.note(name)


@pytest.mark.parametrize("name", ["../../etc/passwd", "a" * 63, "A" * 64, ""])
def test_a_text_is_named_by_a_digest_only(study, name):
    with pytest.raises(ValueError):
        study.text("notes", name)


def _hold(path, ready):
    with Study(path).writing():
        ready.set()
        time.sleep(60)


def test_one_writer_and_a_dead_one_holds_nothing(study):
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    holder = context.Process(target=_hold, args=(study.path, ready))
    holder.start()
    assert ready.wait(30)
    with pytest.raises(UserError, match=f"in use by process {holder.pid}"), study.writing():
        pass
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    with study.writing():
        study.append("attempts", attempt())


def test_digest_follows_content(study):
    before = study.digest()
    with study.writing():
        study.append("attempts", attempt())
    assert study.digest() != before
