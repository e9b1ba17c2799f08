"""Power by simulation against the normal formula and at the null."""

import numpy as np
import pytest
from statsmodels.stats.power import NormalIndPower
from statsmodels.stats.proportion import proportion_effectsize

from mkb_analyze.stats.difference import cluster_difference, cluster_difference_p
from mkb_analyze.stats.power import Design, power, problems_needed, simulate_counts


def test_null_rejects_at_alpha():
    e = power(Design(74, 12, 0.3, 0.3), repeats=4000, rng=1)
    assert 0.04 < e.estimate < 0.06


def test_without_clustering_it_is_the_formula():
    # a common effect of the problem cancels in the difference: compare without one
    formula = NormalIndPower().power(proportion_effectsize(0.4, 0.3), 444, 0.05, 1)
    e = power(Design(888, 1, 0.4, 0.3, icc=0.0), repeats=3000, rng=2)
    assert abs(e.estimate - formula) < 0.03


def test_clusters_keep_their_mean_and_correlation():
    x, n, _, _ = simulate_counts(Design(4000, 12, 0.3, 0.3, icc=0.2, first_share=1.0), 1, np.random.default_rng(3))
    share = (x / n)[0]
    assert abs(share.mean() - 0.3) < 0.01
    assert abs(share.var() / (0.21 / 12 * (1 + 11 * 0.2)) - 1) < 0.08


def test_an_erring_rater_needs_more():
    sharp = power(Design(60, 12, 0.45, 0.3), rng=4).estimate
    blunt = power(Design(60, 12, 0.45, 0.3, sensitivity=0.8, specificity=0.8), rng=4).estimate
    assert blunt < sharp - 0.1


def test_needed_problems_reach_the_target_and_repeat():
    found = problems_needed(Design(20, 12, 0.5, 0.3), repeats=1000, rng=5)
    assert found.power.estimate >= 0.8 and found.n_transfers == 12 * found.n_problems
    assert problems_needed(Design(20, 12, 0.5, 0.3), repeats=1000, rng=5) == found
    assert power(Design(found.n_problems // 2, 12, 0.5, 0.3), rng=6).estimate < 0.8


def test_a_difference_too_small_is_not_promised():
    assert problems_needed(Design(20, 4, 0.301, 0.3), repeats=200, most=200).n_problems is None


def test_no_cases_in_a_group_is_no_evidence():
    zero, some = np.zeros((1, 4)), np.ones((1, 4))
    assert cluster_difference_p(zero, zero, some, some)[0] == 1.0


def test_one_table_by_hand():
    # two clusters, pooled share 4/7
    test = cluster_difference([1, 1], [2, 1], [0, 2], [2, 2])
    r = np.array([(1 - 4 / 7 * 2) / 3 - (0 - 4 / 7 * 2) / 4, (1 - 4 / 7) / 3 - (2 - 4 / 7 * 2) / 4])
    assert np.isclose(test.statistic, r.sum() / np.sqrt((r**2).sum())) and test.df == 1
    assert cluster_difference([0, 0], [2, 1], [0, 0], [2, 2]).reason == "every case has the same answer"


def test_impossible_designs_are_refused():
    with pytest.raises(ValueError):
        Design(1, 12, 0.3, 0.3)
    with pytest.raises(ValueError):
        Design(10, 12, 1.3, 0.3)
