"""The estimate record refuses impossible states and stays strict JSON."""

import json
import math

import pytest

from mkb_analyze.stats.estimate import FEW_CASES_NOTE, Estimate, HypothesisTest, undefined, untested


def make(**changes):
    fields = {"name": "x", "estimate": 0.5, "low": 0.2, "high": 0.8, "n": 20, "method": "Wilson"} | changes
    return Estimate(**fields)


def test_fewer_than_five_cases_marks_itself_once():
    assert make(n=5).notes == ()
    assert make(n=4).notes == (FEW_CASES_NOTE,)
    assert make(n=4).with_notes("seen").notes == (FEW_CASES_NOTE, "seen")


def test_nan_without_a_reason_is_refused():
    with pytest.raises(ValueError, match="needs a reason"):
        make(estimate=math.nan)
    with pytest.raises(ValueError, match="needs a reason"):
        HypothesisTest("x", 1.0, math.nan, 3, "none")


@pytest.mark.parametrize("changes", [{"level": 95}, {"p": 1.2}, {"n": -1}, {"q": -0.1}])
def test_impossible_values_are_refused(changes):
    with pytest.raises(ValueError):
        make(**changes)


def test_dict_is_strict_json():
    text = json.dumps(make(high=math.inf).to_dict(), allow_nan=False)
    assert json.loads(text)["high"] == "Inf"
    assert json.loads(text)["p"] is None
    json.dumps(undefined("x", "no cases").to_dict(), allow_nan=False)
    json.dumps(untested("x", "no cases").to_dict(), allow_nan=False)


def test_adjusted_p_carries_its_family():
    record = make(p=0.01).with_q(0.03, "BH over 11 categories")
    assert record.q == 0.03
    assert "q: BH over 11 categories" in record.notes
