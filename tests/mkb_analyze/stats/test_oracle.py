"""Every known answer that the repository holds is met, key by key, to 1e-8."""

import json
from pathlib import Path

import pytest

from tests.oracle.run import check, differences, main

CASES = sorted((Path(__file__).parents[2] / "data" / "oracle").glob("*.json"))


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_known_answer(path):
    assert check(json.loads(path.read_text())) == []


def test_a_wrong_expected_value_is_seen(tmp_path, capsys):
    case = json.loads(CASES[0].read_text())
    case["expected"]["unweighted"] += 1e-6
    (tmp_path / "case.json").write_text(json.dumps(case))
    (tmp_path / "other.json").write_text(json.dumps(case | {"kind": "unheard of"}))
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "0 matched, 1 differ, 1 not implemented"


def test_not_a_number_matches_only_not_a_number():
    assert differences({"x": float("nan")}, {"x": "NaN"}, 1e-8) == []
    assert differences({"x": 1.0}, {"x": "NaN"}, 1e-8) and differences({"x": float("nan")}, {"x": 1}, 1e-8)
    assert differences({"x": float("inf")}, {"x": "-Inf"}, 1e-8)
    assert differences({}, {"x": 1}, 1e-8)
