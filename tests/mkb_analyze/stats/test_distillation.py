"""Distilled notes: overlap by hand, variance shares against the balanced form; shares of causes."""

import math

import numpy as np
import pytest

from mkb_analyze.stats.bootstrap import cluster_bootstrap
from mkb_analyze.stats.distillation import jaccard, one_way_icc
from mkb_analyze.stats.groups import share_ratios
from mkb_analyze.stats.icc import intraclass


def test_jaccard_by_hand():
    # attempt a: {1,2} and {2}: 1/2; attempt b: three empty notes: 1, 1, 1
    marks = [[1, 1], [0, 1], [0, 0], [0, 0], [0, 0]]
    e = jaccard(marks, ["a", "a", "b", "b", "b"], resamples=200)
    assert math.isclose(e.estimate, 3.5 / 4) and e.n_by_cell == {"notes": 5, "attempts": 2, "pairs": 4}


def test_single_notes_have_no_overlap():
    assert jaccard([[1], [1]], ["a", "b"]).reason == "no attempt with two notes"


def test_one_way_icc_is_the_balanced_form():
    scores = np.random.default_rng(1).normal(0, 1, (12, 3)) + np.random.default_rng(2).normal(0, 1, (12, 1))
    ours, theirs = one_way_icc(scores.ravel(), np.repeat(np.arange(12), 3)), intraclass(scores).icc1
    for part in ("estimate", "low", "high", "p"):
        assert math.isclose(getattr(ours, part), getattr(theirs, part), rel_tol=1e-9)


def test_one_way_icc_edges():
    assert "same" in one_way_icc([1, 1, 1, 1], [0, 0, 1, 1]).reason
    assert one_way_icc([1, 2], [0, 1]).reason == "no group with two values"
    assert one_way_icc([1, 1, 2, 2], [0, 0, 1, 1]).estimate == 1.0


def test_shares_of_causes_sum_to_one_in_each_group():
    rng = np.random.default_rng(3)
    problem, group = np.arange(60) % 20, np.arange(60) // 30
    cause = rng.choice(["misled", "own"], 60)
    records = cluster_bootstrap(share_ratios(problem, group, cause, ("misled", "own", "unknown")), 300, 1)
    table = {e.name: e.estimate for e in records}
    assert math.isclose(table["misled | 0"] + table["own | 0"] + table["unknown | 0"], 1)
    assert table["misled | pooled"] == np.mean(cause == "misled")
    with pytest.raises(ValueError, match="name every label"):
        share_ratios(problem, group, cause, ("own",))
