"""Corrections for rater errors by hand, their doubt, and what is refused."""

import math

import numpy as np
import pytest

from mkb_analyze.stats.misclassification import (
    Calibration,
    corrected_difference,
    corrected_shares,
    gold_labels_needed,
)
from runner.errors import UserError


def test_rogan_gladen_by_hand():
    # Se 45/50, Sp 90/100, apparent 0.3: (0.3 + 0.9 - 1)/(0.9 + 0.9 - 1) = 0.25
    both = corrected_shares([[90, 10], [5, 45]], [700, 300], ("no", "yes"))[1]
    assert math.isclose(both.corrected.estimate, 0.25) and math.isclose(both.uncorrected.estimate, 0.3)


def test_gold_sampling_widens_the_interval():
    few = corrected_shares([[9, 1], [1, 9]], [700, 300], ("no", "yes"), rng=1)[1].corrected
    many = corrected_shares([[9000, 1000], [1000, 9000]], [700, 300], ("no", "yes"), rng=1)[1].corrected
    assert few.high - few.low > 2 * (many.high - many.low)


def test_matrix_inversion_recovers_the_truth():
    true = np.array([0.5, 0.3, 0.2])
    rates = np.array([[80, 10, 10], [20, 70, 10], [0, 10, 90]])
    found = corrected_shares(rates, 1000 * true @ (rates / 100), ("a", "b", "c"))
    assert np.allclose([f.corrected.estimate for f in found], true)


def test_a_share_below_zero_is_clipped_and_said_so():
    both = corrected_shares([[80, 20], [5, 45]], [95, 5], ("no", "yes"))[1].corrected
    assert both.estimate == 0 and any("clipped" in note for note in both.notes)


def test_a_rater_that_guesses_cannot_be_inverted():
    both = corrected_shares([[50, 50], [50, 50]], [50, 50], ("no", "yes"))[1]
    assert math.isnan(both.corrected.estimate) and "hardly depend" in both.corrected.reason
    assert both.uncorrected.estimate == 0.5


def test_a_label_without_gold_has_a_reason():
    assert "no gold items" in corrected_shares([[9, 1], [0, 0]], [5, 5], ("no", "yes"))[0].corrected.reason


def test_difference_is_divided_by_youden():
    # apparent 0.4 - 0.2 over Se + Sp - 1 = 0.8
    gap = corrected_difference([[90, 10], [5, 45]], [60, 40], [80, 20])
    assert math.isclose(gap.corrected.estimate, 0.25) and math.isclose(gap.uncorrected.estimate, 0.2)


def test_clusters_of_problems_widen_the_interval():
    yes = np.tile([12, 0, 0], 25)
    clustered = np.column_stack([12 - yes, yes])
    gold = [[9000, 1000], [1000, 9000]]
    wide = corrected_shares(gold, clustered, ("no", "yes"), rng=1)[1].corrected
    plain = corrected_shares(gold, clustered.sum(0), ("no", "yes"), rng=1)[1].corrected
    assert wide.high - wide.low > 2 * (plain.high - plain.low) and wide.estimate == plain.estimate


def test_another_prompt_is_refused():
    calibration = Calibration("m", "r1", "p1", ("no", "yes"), np.eye(2))
    calibration.check("m", "r1", "p1")
    for other in (("x", "r1", "p1"), ("m", "r2", "p1"), ("m", "r1", "p2")):
        with pytest.raises(UserError, match="calibration is of"):
            calibration.check(*other)


def test_gold_labels_needed_gives_that_half_width():
    m = gold_labels_needed(0.06, 0.3, 0.9, 0.9, 888)
    positive = round(0.3 * m)
    gold = [[0.9 * (m - positive), 0.1 * (m - positive)], [0.1 * positive, 0.9 * positive]]
    e = corrected_shares(gold, [888 * 0.66, 888 * 0.34], ("no", "yes"), 20_000, 1)[1].corrected
    assert abs((e.high - e.low) / 2 - 0.06) < 0.008
    assert gold_labels_needed(0.001, 0.3, 0.9, 0.9, 100) is None
