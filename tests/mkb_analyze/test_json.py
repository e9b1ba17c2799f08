"""--json on every verb: one JSON value on standard output, on success and on a mistake; and the exit statuses."""

import inspect
import json
import re
import shlex

import pytest

from mkb_analyze import cli, completion
from mkb_analyze.console import run
from tests.test_docs import commands_of, workspace  # noqa: F401

VERBS = {v.words: v for v in completion.verbs(cli.Commands)}
# What stands in for a verb's own example where that needs a server, a GPU or minutes.
INSTEAD = {
    "evaluate": "mkb-analyze evaluate broken.py --problem 28 --dsl numba",
    "replay": "mkb-analyze replay broken --study outputs/replayed",
    "review gold": "mkb-analyze review gold --study outputs/demo/study --task content",
    "run": "mkb-analyze run --model my-model --problems 28 --dsls numba,tirx --study outputs/run --dry-run",
    "doctor": "mkb-analyze doctor --quick",
    "power": "mkb-analyze power 40 --base 0.3 --per-problem 4",
    "simulate": "mkb-analyze simulate --out outputs/synthetic --models 1 --problems 2",
    "report": "mkb-analyze report --study outputs/demo/study --resamples 100",
    "table": "mkb-analyze table outcomes --study outputs/demo/study --resamples 100",
    "figure": "mkb-analyze figure outcomes --study outputs/demo/study --resamples 100",
}
# These speak to a Label Studio server on success; tests/annotators/review does that.
NEED_A_SERVER = {"review push", "review pull", "review serve"}
MAY_BE_NEGATIVE = {"evaluate"}


def strict(text):
    """The one JSON value of a text; NaN and infinity are no JSON."""

    def refuse(name):
        raise ValueError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def example(words):
    if words in INSTEAD:
        return INSTEAD[words]
    verb = cli.Commands
    for word in words.split():
        verb = getattr(verb, word.replace("-", "_"))
    return commands_of(inspect.cleandoc(verb.__doc__).splitlines())[0].replace(
        "--study S ", "--study outputs/demo/study "
    )


@pytest.mark.parametrize("words", [w for w in VERBS if w not in NEED_A_SERVER])
def test_success_is_one_json_value(words, workspace, capsys, monkeypatch):  # noqa: F811
    (workspace / "broken.py").write_text("this is no Python")
    attempt = workspace / "broken" / "hand" / "p28_r1_solo_numba"
    attempt.mkdir(parents=True)
    (attempt / "final.py").write_text("this is no Python")
    if words == "problems table":
        monkeypatch.setattr("runner.problem_table.write_readme", lambda root: None)
    if words == "trace":
        assert run(["annotate", "--study", "outputs/demo/study", "--quiet"]) == 0
        capsys.readouterr()
    status = run([*shlex.split(example(words))[1:], "--json"])
    out = capsys.readouterr().out
    assert status == 0 or (words in MAY_BE_NEGATIVE and status == 1), out
    assert strict(out) is not None


@pytest.mark.parametrize("words", VERBS)
def test_a_mistake_is_one_json_object_with_status_2(words, capsys):
    verb = VERBS[words]
    mistakes = [[*words.split(), "--nonsense", "x", "--json"], [*words.split(), "a", "b", "c", "d", "e", "--json"] * 1]
    if any(w.name == "study" for w in verb.options):
        given = [w for p in verb.places for w in (f"--{p.name}", p.values[0] if p.values else "x")]
        mistakes.append([*words.split(), *given, "--study", "/nonexistent\n\x1b[2J/study", "--json"])
    for words_given in mistakes:
        status = run(words_given)
        said = capsys.readouterr()
        told = strict(said.out)
        assert status == 2 == told["status"] and told["error"] and "\n" not in said.out.strip(), words_given
        assert "Traceback" not in said.err


def test_help_and_version_are_json_too(capsys):
    for line in (["--help"], ["--version"], ["table", "--help"], ["problems", "--help"]):
        assert run([*line, "--json"]) == 0
        assert all(isinstance(v, str) and v for v in strict(capsys.readouterr().out).values())


def test_what_is_not_a_number_is_null(capsys, monkeypatch):
    from mkb_analyze.console import Answer

    monkeypatch.setattr(cli.Commands, "check", lambda self, study: Answer("", {"a": float("nan"), "b": {1, 2}}))
    run(["check", "--study", "x", "--json"])
    assert strict(capsys.readouterr().out) == {"a": None, "b": [1, 2]}


def test_what_a_verb_prints_on_its_way_is_not_in_the_json(capsys, monkeypatch):
    from mkb_analyze.console import Answer

    monkeypatch.setattr(cli.Commands, "check", lambda self, study: print("chatter") or Answer("", [1]))
    run(["check", "--study", "x", "--json"])
    said = capsys.readouterr()
    assert strict(said.out) == [1] and "chatter" in said.err


@pytest.mark.parametrize(
    "raised, status, needle",
    [
        (ValueError("odd"), 3, "ValueError: odd; this is a fault of mkb-analyze"),
        (KeyboardInterrupt(), 130, "goes on: mkb-analyze check --study x"),
        (PermissionError(13, "Permission denied", "/x"), 2, "/x: Permission denied; give a place"),
        (OSError(28, "No space left on device"), 2, "disk: No space left on device"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_every_fault_has_its_status(raised, status, needle, as_json, capsys, monkeypatch):
    def broken(self, study):
        raise raised

    monkeypatch.setattr(cli.Commands, "check", broken)
    assert run(["check", "--study", "x", *(["--json"] if as_json else [])]) == status
    said = capsys.readouterr()
    assert needle in (strict(said.out)["error"] if as_json else said.err.splitlines()[-1])
    # A fault of the program shows its whole trace; a user's mistake never does.
    assert ("Traceback" in said.err) == (status == 3)


def test_every_status_stands_in_the_documents():
    from mkb_analyze import console
    from tests.test_docs import ROOT

    text = (ROOT / "docs" / "cli.md").read_text("utf-8")
    stated = {int(n) for n in re.findall(r"^\| (\d+) \|", text, re.M)}
    assert stated == {console.OK, console.NEGATIVE, console.USAGE, console.FAULT, console.INTERRUPTED}


def test_the_log_file_has_begin_and_end_and_no_key(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-a-long-secret")
    log = tmp_path / "log.txt"
    assert run(["problems", "show", "28", "--log-file", str(log)]) == 0
    assert run(["problems", "show", "999", f"--log-file={log}"]) == 2
    lines = log.read_text().splitlines()
    assert "begin: mkb-analyze problems show 28" in lines[0] and "end: status 0" in lines[1]
    assert "no problem has that number" in lines[3] and "end: status 2" in lines[4] and "sk-a" not in log.read_text()


@pytest.mark.parametrize("words", [["--log-file"], ["--log-file", "--json"], ["--log-file", "/nonexistent/x/y"]])
def test_a_log_file_that_cannot_be_is_a_mistake(words, capsys):
    assert run(["problems", "show", "28", *words]) == 2
    assert "--log-file" in "".join(capsys.readouterr())


def test_quiet_ends_with_the_command(monkeypatch):
    import os

    monkeypatch.delenv("MKB_ANALYZE_QUIET", raising=False)
    run(["problems", "show", "28", "--quiet"])
    assert "MKB_ANALYZE_QUIET" not in os.environ
