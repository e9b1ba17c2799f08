"""The command line binds before it runs, says mistakes in one line with status 2, and cannot be talked into anything."""

import json
import subprocess
import sys

import pytest

from mkb_analyze import cli
from mkb_analyze.console import Answer, printable, run


def said(capsys, *words):
    """(status, stdout, stderr) of one command line."""
    status = run(list(words))
    out = capsys.readouterr()
    return status, out.out, out.err


@pytest.mark.parametrize(
    "words, needle",
    [
        (["imprt"], "did you mean import?"),
        (["import"], "notes, upstream is due"),
        (["import", "nots"], "did you mean notes?"),
        (["import", "notes"], "required argument: folder"),
        (["import", "notes", "x", "--study"], "--study: a value is due"),
        (["import", "notes", "x", "--studdy", "y"], "did you mean --study?"),
        (["import", "notes", "x", "--study", "a", "--study", "b"], "given twice"),
        (["import", "notes", "/nonexistent", "--study", "/tmp/none"], "no such folder"),
        (["problems", "show", "999"], "no problem has that number"),
        (["problems", "show", "x"], "named by its number"),
        (["report", "--study", "/nonexistent"], "no study here"),
        (["report", "--study", "x", "--floor", "abc"], "a number is due"),
        (["report", "--study", "x", "--seed", "1.5"], "a whole number is due"),
        (["report", "--study", "x", "--band", "nan"], "a finite number is due"),
        (["annotate", "--study", "/nonexistent"], "no study here"),
        (["evaluate", "/nonexistent.py", "--problem", "28", "--dsl", "tirx"], "no such file"),
        (["attribute", "--study", "x", "--which", "some"], "harmed or all is due"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(capsys, words, needle):
    status, out, err = said(capsys, *words)
    assert (status, out) == (2, "")
    assert needle in err and err.count("\n") == 1 and "Traceback" not in err


def test_a_mistake_as_json(capsys):
    status, out, _ = said(capsys, "report", "--study", "/nonexistent", "--json")
    assert status == 2 and "no study here" in json.loads(out)["error"]


def test_nothing_runs_when_a_word_is_left_over(capsys, tmp_path):
    (tmp_path / "a.md").write_text("note")
    status, _, _ = said(capsys, "import", "notes", str(tmp_path), "--study", str(tmp_path / "s"), "extra")
    assert status == 2 and not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    "value", ["12e4567", "moe,mlp", "[1]", "None", "1_000", "0x10", "True", "{'a': 1}", "-1", "a b"]
)
def test_values_reach_the_verb_as_typed(capsys, monkeypatch, value):
    seen = []
    monkeypatch.setattr(cli.Import, "notes", lambda self, folder, study: seen.append((folder, study)) or Answer(""))
    assert (
        said(capsys, "import", "notes", f"--folder={value}", "--study", value if not value.startswith("-") else "s")[0]
        == 0
    )
    assert seen[0][0] == value and isinstance(seen[0][0], str)


def verbs():
    found = []
    for name, verb in vars(cli.Commands).items():
        if name.startswith("_") or name == "overview":
            continue
        found += (
            [(name, inner) for inner in vars(verb) if not inner.startswith("_")]
            if isinstance(verb, type)
            else [(name,)]
        )
    return [tuple(part.replace("_", "-") for part in v) for v in found]


@pytest.mark.parametrize("verb", verbs(), ids="-".join)
def test_every_verb_has_help_with_an_example(capsys, verb):
    status, out, _ = said(capsys, *verb, "--help")
    assert status == 0 and f"mkb-analyze {' '.join(verb)}" in out and "xample" in out


def test_overview_names_every_verb(capsys):
    out = said(capsys, "--help")[1]
    assert all(" ".join(verb) in out for verb in verbs())


def test_control_characters_never_reach_the_terminal():
    assert printable("a\x1b[2J\x07\u202eb\nc\td") == "a\\x1b[2J\\x07\\x202eb\nc\td"


def test_module_and_console_script_are_one_command_line():
    out = subprocess.run([sys.executable, "-m", "mkb_analyze", "nonsense"], capture_output=True, text=True)
    assert (out.returncode, out.stdout) == (2, "") and out.stderr.startswith("mkb-analyze: 'nonsense': no such verb")
