"""Survival against statsmodels, and claims over generations by hand."""

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.duration.survfunc import SurvfuncRight, survdiff

from mkb_analyze.stats.chains import reproduction_number
from mkb_analyze.stats.survival import kaplan_meier, log_rank


def lives(seed: int = 1, n: int = 60):
    rng = np.random.default_rng(seed)
    t, c = rng.geometric(0.3, n), rng.integers(1, 7, n)
    return np.minimum(t, c), (t <= c).astype(int)


def test_curve_is_statsmodels():
    t, d = lives()
    theirs, ours = SurvfuncRight(t, d), kaplan_meier(t, d)
    at = np.isin(ours.time, theirs.surv_times)
    assert np.allclose(ours.share[at], theirs.surv_prob)
    alive = ours.share[at] > 0
    assert np.allclose(ours.se[at][alive], theirs.surv_prob_se[alive])


def test_log_rank_is_statsmodels():
    t, d = lives(2)
    group, strata = np.arange(60) % 3, np.arange(60) // 30
    assert math.isclose(log_rank(t, d, group).test.statistic, survdiff(t, d, group)[0], rel_tol=1e-9)
    theirs = survdiff(t, d, group, strata=strata)[0]
    assert math.isclose(log_rank(t, d, group, strata).test.statistic, theirs, rel_tol=1e-9)


def test_times_that_differ_in_the_last_bit_are_one():
    fit = kaplan_meier([0.3, 0.1 + 0.2], [1, 1])
    assert fit.time.tolist() == [0.3] and fit.n_event.tolist() == [2]


def test_no_events():
    fit = kaplan_meier([1, 2, 3], [0, 0, 0])
    assert fit.share.tolist() == [1, 1, 1] and math.isnan(fit.median["log"].estimate)
    assert "no median" in fit.median["log"].reason
    assert log_rank([1, 2, 3], [0, 0, 0], ["a", "b", "a"]).test.reason == "no events"


def test_share_at_a_generation():
    fit = kaplan_meier([1, 1, 2, 3], [1, 0, 1, 0])
    assert fit.at(1).estimate == 0.75 and fit.at(0.5).estimate == 1.0 and math.isnan(fit.at(9).estimate)


def test_reproduction_number_by_hand():
    pooled, first, second = reproduction_number([2, 3, 1, 4], [3, 1, 2, 2], ["a", "a", "b", "b"], [0, 1, 0, 1])
    assert pooled.estimate == 8 / 10 and first.estimate == 5 / 3 and second.estimate == 3 / 7
    assert pooled.n_by_cell == {"chains": 2, "carriers": 10, "new carriers": 8}
    # jackknife by hand: without a 4/5, without b 4/5, so the logs do not move
    assert math.isnan(pooled.low) and "alike" in pooled.reason


def test_reproduction_interval_by_hand():
    (e,) = reproduction_number([2, 2, 4], [1, 3, 2], ["a", "b", "c"])
    logs = np.log([5 / 6, 3 / 6, 4 / 4])
    half = stats.t.ppf(0.975, 2) * math.sqrt(2 / 3 * ((logs - logs.mean()) ** 2).sum())
    assert math.isclose(e.low, 0.75 * math.exp(-half)) and math.isclose(e.high, 0.75 * math.exp(half))


def test_no_carriers_is_undefined():
    (e,) = reproduction_number([0, 0], [0, 0], ["a", "b"])
    assert math.isnan(e.estimate) and e.reason == "no carriers"
    (e,) = reproduction_number([2, 3], [0, 0], ["a", "b"])
    assert e.estimate == 0 and math.isnan(e.low) and "no new carriers" in e.reason
    with pytest.raises(ValueError):
        reproduction_number([-1], [0], ["a"])
