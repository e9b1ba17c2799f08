"""Agreement against scikit-learn, statsmodels and the krippendorff package, and its edges."""

import math

import krippendorff
import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score
from statsmodels.stats.inter_rater import fleiss_kappa as their_fleiss

from mkb_analyze.stats.agreement import cohen_kappa, fleiss_general, fleiss_kappa, gwet_ac1
from mkb_analyze.stats.alpha import krippendorff_alpha
from mkb_analyze.stats.percent import percent_agreement
from mkb_analyze.stats.rates import wilson
from mkb_analyze.stats.ratings import codes, label_counts

LEVELS = [1, 2, 3, 4, 5]


def ratings(seed: int, n: int = 80, raters: int = 3, missing: float = 0.15) -> np.ndarray:
    rng = np.random.default_rng(seed)
    gold = rng.integers(1, 5, n)
    out = np.where(rng.random((n, raters)) < 0.7, gold[:, None], rng.integers(1, 5, (n, raters))).astype(float)
    out[rng.random(out.shape) < missing] = np.nan
    return out


@pytest.mark.parametrize("weights", ["unweighted", "linear", "quadratic"])
def test_cohen_is_scikit_learns(weights):
    pair = ratings(1, raters=2, missing=0)
    theirs = cohen_kappa_score(
        pair[:, 0], pair[:, 1], labels=LEVELS, weights=None if weights == "unweighted" else weights
    )
    assert math.isclose(cohen_kappa(*pair.T.tolist(), LEVELS, weights).value.estimate, theirs, rel_tol=1e-12)


def test_missing_pairs_are_dropped_not_a_category():
    a, b = [1, None, 2, 1], [1, 2, 2, math.nan]
    fit = cohen_kappa(a, b, [1, 2])
    assert fit.value.n == 2 and fit.value.estimate == 1.0


def test_fleiss_is_statsmodels_where_complete_and_the_general_form():
    full = ratings(2, missing=0)
    counts = label_counts(codes(full, LEVELS), 5)
    assert math.isclose(fleiss_kappa(counts).kappa.value.estimate, their_fleiss(counts), rel_tol=1e-12)
    assert math.isclose(fleiss_general(full, LEVELS).value.estimate, their_fleiss(counts), rel_tol=1e-12)


@pytest.mark.parametrize("measurement", ["nominal", "ordinal", "interval"])
def test_alpha_is_the_packages(measurement):
    seen = ratings(3)
    theirs = krippendorff.alpha(seen.T, level_of_measurement=measurement, value_domain=LEVELS)
    ours = krippendorff_alpha(seen, LEVELS, measurement, resamples=0)
    assert math.isclose(ours.estimate, theirs, rel_tol=1e-12)


@pytest.mark.parametrize("measurement", ["nominal", "ordinal"])
def test_alpha_by_patterns_spreads_as_resampled_items_do(measurement):
    seen = ratings(4)
    rng = np.random.default_rng(5)
    loop = [
        krippendorff_alpha(seen[rng.integers(0, len(seen), len(seen))], LEVELS, measurement, resamples=0).estimate
        for _ in range(800)
    ]
    spread = np.quantile(loop, 0.975) - np.quantile(loop, 0.025)
    ours = krippendorff_alpha(seen, LEVELS, measurement, resamples=8000, rng=6)
    # BCa moves both limits a little up against percentiles, and keeps the width
    assert abs((ours.high - ours.low) / spread - 1) < 0.1
    assert abs(ours.low - np.quantile(loop, 0.025)) < 0.04


def test_claims_of_one_note_move_together():
    seen = np.repeat(ratings(7, n=20, missing=0), 6, axis=0)
    notes = np.repeat(np.arange(20), 6)
    alone = krippendorff_alpha(seen, LEVELS, rng=1)
    together = krippendorff_alpha(seen, LEVELS, rng=1, clusters=notes)
    assert together.high - together.low > 1.8 * (alone.high - alone.low)
    assert together.n_by_cell["clusters"] == 20


def test_a_label_nobody_used_still_counts_for_ac1():
    seen = ratings(8, missing=0)
    assert gwet_ac1(seen, [1, 2, 3, 4]).value.estimate < gwet_ac1(seen, LEVELS).value.estimate


def test_one_label_everywhere_has_a_reason_and_the_raw_share():
    ones = [[1, 1, 1]] * 6
    for e in (
        krippendorff_alpha(ones, [1, 2]),
        fleiss_general(ones, [1, 2]).value,
        cohen_kappa([1] * 6, [1] * 6, [1, 2]).value,
    ):
        assert math.isnan(e.estimate) and "same label" in e.reason
    assert percent_agreement(ones, [1, 2]).over_items.estimate == 1.0


def test_raw_agreement_of_two_raters_is_wilson():
    pair = [[1, 1]] * 7 + [[1, 2]] * 3
    ours, theirs = percent_agreement(pair, [1, 2]).over_items, wilson(7, 10)
    assert math.isclose(ours.low, theirs.low) and math.isclose(ours.high, theirs.high)


def test_a_label_outside_the_levels_is_refused():
    for strange in ([[1, 9]], [["a", "b"]]):
        with pytest.raises(ValueError, match="not among the levels"):
            krippendorff_alpha(strange, [1, 2])


def test_words_are_labels_too():
    assert krippendorff_alpha([["x", "x"], ["y", "y"], ["x", None]], ["x", "y"], resamples=0).estimate == 1.0


def test_same_seed_same_interval():
    seen = ratings(9)
    assert krippendorff_alpha(seen, LEVELS, rng=4) == krippendorff_alpha(seen, LEVELS, rng=4)
