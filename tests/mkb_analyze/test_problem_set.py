"""The verbs that take somebody else's problem set: list, show, check and evaluate, from the command line."""

import json
from pathlib import Path

import pytest

from mkb_analyze.console import run

DATA = Path(__file__).parents[1] / "data" / "foreign"


def answer(capsys, *argv):
    status = run([*argv, "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_list_and_show_read_a_set_of_others(capsys):
    status, data = answer(capsys, "problems", "list", "--problem-set", str(DATA / "kernelbench"))
    assert status == 0 and [p["number"] for p in data["problems"]] == [1003, 2003]
    status, data = answer(capsys, "problems", "show", "28", "--problem-set", str(DATA / "published"))
    assert status == 0 and data["text"].startswith('"""Rows divided') and "solve(*inputs)" in data["text"]


def test_text_of_others_cannot_drive_the_terminal(tmp_path, capsys):
    (tmp_path / "level1").mkdir()
    text = (DATA / "kernelbench/KernelBench/level1/3_Affine_Relu.py").read_text()
    (tmp_path / "level1" / "5_Loud.py").write_text(text.replace("An affine", "\x1b]0;owned\x07An affine"))
    for verb in (["list"], ["show", "1005"]):
        assert run(["problems", *verb, "--problem-set", str(tmp_path)]) == 0
        assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "argv, words",
    [
        (["problems", "list", "--problem-set", "no/such/folder"], "no such folder"),
        (["problems", "show", "29", "--problem-set", str(DATA / "published")], "no problem has that number"),
        (["evaluate", __file__, "--problem", "28", "--dsl", "numba", "--compile-baseline"], "--problem-set"),
    ],
)
def test_mistakes_are_one_line(capsys, argv, words):
    assert run(argv) == 2
    fault = capsys.readouterr().err
    assert words in fault and len(fault.strip().splitlines()) == 1 and "Traceback" not in fault
