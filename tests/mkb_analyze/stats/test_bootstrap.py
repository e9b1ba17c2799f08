"""The cluster bootstrap against scipy, a plain loop, and its edges."""

import math

import numpy as np
import pytest
from scipy import stats

from mkb_analyze.stats.bootstrap import Ratio, cluster_bootstrap, cluster_counts
from mkb_analyze.stats.groups import POOLED, transfer_ratios
from mkb_analyze.stats.resample import bca_interval, quantile


def sums(seed: int = 1, n: int = 40):
    rng = np.random.default_rng(seed)
    return rng.binomial(12, rng.beta(2, 5, n)).astype(float), np.full(n, 12.0)


def test_each_row_draws_as_many_clusters_as_there_are():
    counts = cluster_counts(30, 500, np.random.default_rng(1), np)
    assert (counts.sum(1) == 30).all() and counts.max() > 1
    # multiplicity kept: the share of clusters drawn at least once is 1 - 1/e, not 1
    assert abs((counts > 0).mean() - (1 - (29 / 30) ** 30)) < 0.01


def test_bca_is_scipys():
    top, bottom = sums()
    theirs = stats.bootstrap(
        (top,), np.mean, n_resamples=20_000, method="BCa", rng=np.random.default_rng(2)
    ).confidence_interval
    (e,) = cluster_bootstrap([Ratio("x", top, np.ones(40), n=40)], 20_000, 3)
    assert math.isclose(e.estimate, top.mean())
    assert abs(e.low - theirs.low) < 0.05 and abs(e.high - theirs.high) < 0.05


def test_spread_is_the_linearised_one():
    top, bottom = sums(4, 200)
    (e,) = cluster_bootstrap([Ratio("x", top, bottom, n=2400)], 20_000, 1, kind="percentile")
    p = top.sum() / bottom.sum()
    se = math.sqrt(((top - p * bottom) ** 2).sum()) / bottom.sum()
    assert abs((e.high - e.low) / (2 * 1.96 * se) - 1) < 0.03


def test_matrix_product_is_the_loop():
    rng = np.random.default_rng(5)
    x, y = rng.random(10), rng.random(10) + 1
    ratio = Ratio("x", x, y, y, x + 1, scale=100, n=10)
    (e,) = cluster_bootstrap([ratio], 500, 7, kind="percentile")
    draws = cluster_counts(10, 500, np.random.default_rng(7), np)
    by_hand = [100 * ((w @ x) / (w @ y) - (w @ y) / (w @ (x + 1))) for w in draws]
    assert np.allclose([e.low, e.high], np.quantile(by_hand, [0.025, 0.975]))


def test_same_seed_same_bytes_whatever_the_block():
    top, bottom = sums()
    ratio = [Ratio("x", top, bottom, n=480)]
    assert cluster_bootstrap(ratio, 1000, 9) == cluster_bootstrap(ratio, 1000, 9)
    assert cluster_bootstrap(ratio, 1000, 9, block=333) == cluster_bootstrap(ratio, 1000, 9, block=333)


def test_expanded_is_wider_than_percentile():
    top, bottom = sums(6, 15)
    ratio = [Ratio("x", top, bottom, n=180)]
    (wide,) = cluster_bootstrap(ratio, 5000, 1, kind="expanded")
    (plain,) = cluster_bootstrap(ratio, 5000, 1, kind="percentile")
    assert wide.low < plain.low and plain.high < wide.high


def test_empty_denominators_are_said_or_leave_no_interval():
    one = np.zeros(12)
    one[0] = 1.0
    (e,) = cluster_bootstrap([Ratio("rare", one, one, n=1)], 1000, 1)
    assert e.estimate == 1.0 and math.isnan(e.low) and "empty denominator" in e.reason
    (none,) = cluster_bootstrap([Ratio("never", np.zeros(12), np.zeros(12))], 1000, 1)
    assert math.isnan(none.estimate) and none.reason == "no cases in a denominator"
    (flat,) = cluster_bootstrap([Ratio("flat", np.ones(12), np.full(12, 2.0), n=24)], 1000, 1)
    assert flat.estimate == 0.5 and math.isnan(flat.low) and "no spread" in flat.reason


def test_one_cluster_has_no_interval():
    (e,) = cluster_bootstrap([Ratio("x", np.ones(1), np.ones(1), n=1)])
    assert "fewer than two clusters" in e.reason


def test_tables_hold_the_plain_means():
    rng = np.random.default_rng(8)
    n = 120
    problem, group = np.arange(n) % 20, np.array(list("ab"))[np.arange(n) // 60]
    harmed = rng.random(n) < 0.3
    helped = ~harmed & (rng.random(n) < 0.5)
    logs, marks = rng.normal(0, 0.3, n), rng.random((n, 2)) < 0.4
    records = cluster_bootstrap(transfer_ratios(problem, group, helped, harmed, logs, marks, ("x", "y")), 200, 1)
    table = {e.name: e for e in records}
    assert len(table) == 3 * 5
    here = group == "b"
    assert math.isclose(table["help rate | b"].estimate, helped[here].mean())
    assert math.isclose(table[f"paired lift % | {POOLED}"].estimate, 100 * math.expm1(logs.mean()))
    gap = 100 * (marks[harmed & here, 1].mean() - marks[helped & here, 1].mean())
    assert math.isclose(table["category: y | b"].estimate, gap)
    assert table["category: y | b"].n_by_cell == {"helped": int(helped[here].sum()), "harmed": int(harmed[here].sum())}


def test_helped_and_harmed_at_once_is_refused():
    with pytest.raises(ValueError, match="cannot be both"):
        transfer_ratios([1, 2], ["a", "a"], [1, 0], [1, 0], [0.0, 0.0])


def test_interval_without_spread_is_undefined():
    assert all(math.isnan(v) for v in bca_interval([1.0] * 50, 2.0, [1.0, 1.0, 1.0]))
    assert np.isnan(quantile([1.0, 2.0], [math.nan])).all()
    with pytest.raises(ValueError, match="rule=type9"):
        quantile([1.0], [0.5], "type9")
