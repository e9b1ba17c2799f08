"""Rates against published limits and against their own symmetry."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mkb_analyze.stats.estimate import FEW_CASES_NOTE
from mkb_analyze.stats.rates import clopper_pearson, newcombe, wilson


def test_wilson_published():
    # Newcombe 1998 (Stat Med 17:857), 81 of 263
    e = wilson(81, 263)
    assert (round(e.low, 4), round(e.high, 4)) == (0.2553, 0.3662)


def test_study_counts_are_the_published_shares():
    assert round(100 * wilson(12, 74).estimate, 1) == 16.2
    assert round(100 * wilson(33, 74).estimate, 1) == 44.6


def test_newcombe_published():
    # Newcombe 1998 (Stat Med 17:873), 56/70 - 48/80, method 10
    e = newcombe(56, 70, 48, 80)
    assert (round(e.low, 4), round(e.high, 4)) == (0.0524, 0.3339)


@given(st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_mirror_image(pair):
    x, n = pair
    for method in (wilson, clopper_pearson):
        one, other = method(x, n), method(n - x, n)
        assert math.isclose(one.low, 1 - other.high, abs_tol=1e-12)
        assert one.low <= one.estimate <= one.high


def test_no_cases_is_undefined_with_a_reason():
    for e in (wilson(0, 0), clopper_pearson(0, 0), newcombe(0, 0, 3, 9)):
        assert math.isnan(e.estimate) and e.reason


def test_few_cases_are_marked():
    assert FEW_CASES_NOTE in wilson(1, 3).notes


def test_impossible_counts_are_refused():
    with pytest.raises(ValueError, match="between 0 and its total"):
        wilson(5, 4)
