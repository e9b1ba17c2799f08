"""Paired tests against scipy, pingouin and enumeration by hand."""

import itertools
import math

import numpy as np
import pingouin
import pytest
from scipy import stats

from mkb_analyze.stats.icc import intraclass
from mkb_analyze.stats.paired import geometric_mean_ratio, sign_flip, sign_test
from mkb_analyze.stats.ranks import signed_rank


def test_signed_rank_is_scipys_exact_without_ties():
    d = np.random.default_rng(1).normal(0.3, 1, 15)
    assert math.isclose(signed_rank(d).shift.p, stats.wilcoxon(d, method="exact").pvalue, rel_tol=1e-9)


def test_signed_rank_with_ties_by_all_signs():
    d = np.array([0.2, 0.2, 0.2, -0.5, 0.3, -0.2, 0.5, 0.7])
    ranks = stats.rankdata(np.abs(d))
    seen = ranks[d > 0].sum()
    sums = [sum(r for r, s in zip(ranks, signs, strict=True) if s) for signs in itertools.product((0, 1), repeat=8)]
    greater = np.mean(np.array(sums) >= seen - 1e-9)
    less = np.mean(np.array(sums) <= seen + 1e-9)
    fit = signed_rank(d)
    assert math.isclose(fit.p_greater, greater) and math.isclose(fit.p_less, less)
    assert math.isclose(fit.shift.p, 2 * min(greater, less))


def test_ties_survive_floating_point():
    fit = signed_rank([0.3, 0.4, 0.5, 0.9], [0.1, 0.2, 0.3, 0.4])
    assert fit.ties and fit.w_plus == 10.0


def test_hodges_lehmann_interval_is_the_textbooks():
    # Hollander & Wolfe depression data: R's wilcox.test(conf.int=TRUE) gives 0.010 to 0.786 at 96.1%
    x = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]
    y = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]
    e = signed_rank(x, y).shift
    assert (round(e.estimate, 3), round(e.low, 3), round(e.high, 3)) == (0.46, 0.01, 0.786)


def test_too_few_pairs_for_the_level_leave_the_interval_open():
    e = signed_rank([1.0, 2.0, 3.0]).shift
    assert e.low == -math.inf and e.high == math.inf


def test_sampled_sign_flips_near_the_exact():
    d = np.random.default_rng(2).normal(0.2, 1, 16)
    exact, drawn = sign_flip(d), sign_flip(d, max_exact=4, resamples=40_000, rng=1)
    assert abs(exact.test.p - drawn.test.p) < 0.01 and drawn.test.p > 0


@pytest.mark.parametrize("x", [[0, 2.1, 3.3], [-1, 2, 3], [math.inf, 2, 3]])
def test_a_ratio_without_a_logarithm_is_undefined(x):
    fit = geometric_mean_ratio(x, [1, 2, 3])
    assert math.isnan(fit.ratio.estimate) and "logarithm" in fit.ratio.reason


def test_equal_ratios_give_no_p():
    fit = geometric_mean_ratio([2.2, 4.4, 6.6], [1.1, 2.2, 3.3])
    assert math.isclose(fit.ratio.estimate, 2) and math.isnan(fit.ratio.p) and "no spread" in fit.ratio.reason


def test_geometric_mean_ratio_is_the_t_test_on_logs():
    rng = np.random.default_rng(3)
    x, y = np.exp(rng.normal(0.1, 0.4, 20)), np.exp(rng.normal(0, 0.4, 20))
    theirs = stats.ttest_1samp(np.log(x / y), 0)
    fit = geometric_mean_ratio(x, y)
    assert math.isclose(fit.ratio.p, theirs.pvalue, rel_tol=1e-9)
    assert np.allclose(np.log([fit.ratio.low, fit.ratio.high]), theirs.confidence_interval(0.95))


def test_zeros_leave_the_sign_test():
    fit = sign_test([1, 1, 1, 0, 1e-14, -1])
    assert (fit.n_positive, fit.n_negative, fit.n_zero) == (3, 1, 2) and fit.positive_share.n == 4


def test_icc_published_and_pingouins():
    # Shrout & Fleiss 1979, table 4: 0.17, 0.29, 0.71
    scores = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]
    fit = intraclass(scores)
    assert [round(e.estimate, 2) for e in (fit.icc1, fit.icc2, fit.icc3)] == [0.17, 0.29, 0.71]
    import pandas as pd

    long = pd.DataFrame(scores).reset_index().melt(id_vars="index", var_name="rater", value_name="score")
    table = pingouin.intraclass_corr(long, targets="index", raters="rater", ratings="score")
    assert math.isclose(table["ICC"].iloc[0], fit.icc1.estimate, rel_tol=1e-9)


def test_icc_without_variance_has_a_reason():
    assert "same" in intraclass([[1, 1], [1, 1], [1, 1]]).icc1.reason
    assert intraclass([[1, 2], [None, 2], [3, 4]]).icc1.n == 2
