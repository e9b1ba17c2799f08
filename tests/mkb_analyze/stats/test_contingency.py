"""Tables of counts against values printed in textbooks and R's documentation."""

import math

import numpy as np
import pytest

from mkb_analyze.stats.contingency import chi_square, cochran_armitage, fisher, fisher_rxc, mcnemar
from mkb_analyze.stats.multiplicity import adjust, adjusted_table
from mkb_analyze.stats.network import fisher_rxc_p
from mkb_analyze.stats.rates import wilson
from mkb_analyze.stats.stratified import cmh_general, mantel_haenszel

JOB = [[1, 2, 1, 0], [3, 3, 6, 1], [10, 10, 14, 9], [6, 7, 12, 11]]


def test_trend_published():
    # R documentation of prop.trend.test (Fleiss 1981, smokers): X-squared 8.2249, p 0.004132
    test = cochran_armitage([83, 90, 129, 70], [86, 93, 136, 82])
    assert round(test.statistic**2, 4) == 8.2249 and round(test.p, 6) == 0.004132 and test.statistic < 0


def test_exact_r_by_c_published():
    # R documentation of fisher.test (Agresti 2002, job satisfaction): p 0.7827
    assert round(fisher_rxc(JOB).p, 4) == 0.7827


def test_random_tables_stand_in_when_there_are_too_many(monkeypatch):
    assert fisher_rxc_p(np.array(JOB), max_work=5) is None
    monkeypatch.setattr("mkb_analyze.stats.contingency.fisher_rxc_p", lambda table: None)
    test = fisher_rxc(JOB, resamples=20_000, seed=3)
    assert abs(test.p - 0.7827) < 0.01 and "seed 3" in test.method
    assert fisher_rxc(JOB, resamples=20_000, seed=3) == test


def test_mid_p_lies_below_the_exact_p_by_half_the_ties():
    # tea table 3/1/1/3: P(3) = P(1) = 16/70, P(0) = P(4) = 1/70; exact 34/70, mid-p 34/70 - 16/70
    fit = fisher([[3, 1], [1, 3]])
    assert math.isclose(fit.odds_ratio.p, 34 / 70) and math.isclose(fit.mid.p, 18 / 70)
    assert fit.odds_ratio.low < fit.mid.low and fit.mid.high < fit.odds_ratio.high


def test_empty_margin():
    assert chi_square([[0, 5, 4], [0, 3, 6]]).pearson.reason == "an empty row or column"
    kept, plain = chi_square([[0, 5, 4], [0, 3, 6]], drop_empty=True), chi_square([[5, 4], [3, 6]])
    assert kept.pearson.statistic == plain.pearson.statistic and kept.pearson.df == 1


def test_no_discordant_pair_is_no_evidence():
    fit = mcnemar([[5, 0], [0, 5]])
    assert math.isnan(fit.mid_p.p) and fit.mid_p.reason == "no discordant pair"
    assert fit.difference.estimate == 0 and fit.difference.low < 0 < fit.difference.high


def test_paired_difference_published():
    # Newcombe 1998 (Stat Med 17:2635), table II, 36/12/2/0: method 10 limits 0.0569, 0.3404
    e = mcnemar([[36, 12], [2, 0]]).difference
    assert math.isclose(e.estimate, 0.2) and (round(e.low, 4), round(e.high, 4)) == (0.0569, 0.3404)


def test_generalised_cmh_is_cmh_on_two_by_two():
    strata = [[[6, 2], [2, 5]], [[4, 3], [3, 6]]]
    assert math.isclose(cmh_general(strata).statistic, mantel_haenszel(strata).cmh.statistic)


def test_a_stratum_that_carries_nothing_changes_nothing():
    strata = [[[6, 2], [2, 5]], [[4, 3], [3, 6]]]
    plain, more = mantel_haenszel(strata), mantel_haenszel([*strata, [[0, 0], [5, 5]], [[0, 1], [0, 0]]])
    assert more.n_dropped == 2 and more.odds_ratio.notes
    for part in ("odds_ratio", "exact"):
        assert getattr(plain, part).low == getattr(more, part).low
    assert more.breslow_day.df == 1 and more.tarone.p == plain.tarone.p


def test_negative_counts_are_refused():
    with pytest.raises(ValueError, match="holds counts"):
        fisher([[1, -1], [2, 2]])


def test_unknown_p_neither_counts_nor_is_rejected():
    assert np.array_equal(adjust([0.01, np.nan, 0.04], "holm"), [0.02, np.nan, 0.04], equal_nan=True)


def test_adjusted_rows_state_their_family():
    rows = [fisher([[3, 1], [1, 3]]).odds_ratio, fisher([[9, 1], [1, 9]]).odds_ratio, wilson(3, 9)]
    out = adjusted_table(rows, "categories of one table")
    assert out[0].q == out[0].p and math.isclose(out[1].q, 2 * out[1].p) and math.isnan(out[2].q)
    assert "BH over 2 tests: categories of one table" in out[0].notes[-1]
