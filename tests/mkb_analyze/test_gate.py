"""The gate's verdict: each threshold from both sides, the harm bound by hand, how many runs are missing."""

import math

import numpy as np
import pytest
from statsmodels.stats.power import TTestPower

from mkb_analyze.gate import Rule, Verdict, judge, settle_power
from runner.errors import UserError


def logs(*percent):
    return [math.log1p(p / 100) for p in percent]


@pytest.mark.parametrize(
    "percent, verdict",
    [
        ((20, 25, 30, 22, 28), Verdict.ADMIT),
        ((-20, -25, -30, -22, -28), Verdict.REJECT),
        ((20, -25, 30, -22, 8), Verdict.QUARANTINE),
        ((20, 25, 30, 22), Verdict.INSUFFICIENT),
        # surely below 0, yet less than 5% so: neither admitted nor rejected
        ((-1, -1.5, -2, -1.2, -1.8), Verdict.QUARANTINE),
        # 6% down on average, but the interval crosses 0
        ((-40, 30, -30, 20, -5), Verdict.QUARANTINE),
    ],
)
def test_each_verdict(percent, verdict):
    assert judge(range(len(percent)), logs(*percent)).verdict is verdict


def test_the_lift_is_the_geometric_mean_of_all_pairs():
    found = judge([1, 1, 2, 3, 4, 5], logs(100, 0, 0, 0, 0, -50))
    assert found.lift.estimate == pytest.approx(0.0, abs=1e-12)
    assert (found.n_problems, found.n_pairs) == (5, 6)


def test_replicates_of_one_problem_are_not_problems():
    assert judge([7] * 40, logs(*[20 + k % 3 for k in range(40)])).verdict is Verdict.INSUFFICIENT


def test_five_equal_ratios_are_no_evidence():
    found = judge(range(5), logs(*[10] * 5))
    assert found.verdict is Verdict.INSUFFICIENT and "no spread" in found.why


def test_harm_bound_is_the_rule_of_three_without_harm():
    # 1 - 0.05 ** (1 / n), Clopper & Pearson 1934 at x = 0
    found = judge(range(5), logs(20, 25, 30, 22, 28))
    assert found.harm.high == pytest.approx(1 - 0.05**0.2)


def test_a_problem_counts_as_harmed_once_by_its_mean_over_replicates():
    found = judge([1, 1, 2, 2, 3, 4, 5], logs(-50, -50, -50, 100, 10, 10, 10))
    assert found.harm.estimate == pytest.approx(1 / 5)


def test_thresholds_are_settings():
    pairs = (range(5), logs(20, 25, 30, 22, 28))
    assert judge(*pairs, Rule(admit_above=0.5)).verdict is Verdict.QUARANTINE
    assert judge(*pairs, Rule(min_problems=6)).verdict is Verdict.INSUFFICIENT


def test_contradictory_thresholds_are_refused():
    with pytest.raises(UserError, match="harm-below"):
        Rule(harm_below=0.2, admit_above=0.1)


def test_power_is_that_of_the_one_sample_t_test():
    outside = TTestPower().power(effect_size=0.5, nobs=20, alpha=0.025, alternative="larger")
    assert settle_power(0.5, 1.0, 20) == pytest.approx(outside, abs=1e-9)


def test_the_number_of_runs_named_has_the_power_and_one_fewer_has_not():
    found = judge(range(6), logs(30, -10, 25, -5, 40, -20))
    means = np.array(logs(30, -10, 25, -5, 40, -20))
    total = 6 + found.more.n_problems
    effect, sd = means.mean(), means.std(ddof=1)
    assert settle_power(effect, sd, total) >= 0.8 > settle_power(effect, sd, total - 1)
    assert found.more.n_attempts == 2 * found.more.n_problems


def test_a_small_loss_is_settled_by_no_number_of_runs():
    assert judge(range(5), logs(-2, 1, -3, 2, -4)).more.n_problems is None


def test_without_any_run_the_least_number_is_named_with_what_it_would_show():
    found = judge([], [], spread=0.3)
    assert found.more.n_problems == 5 and "+" in found.more.why
    assert math.isnan(found.lift.estimate)


def test_unequal_lengths_are_refused():
    with pytest.raises(ValueError, match="match them"):
        judge([1, 2], [0.1])
