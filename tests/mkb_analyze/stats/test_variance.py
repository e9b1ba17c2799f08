"""Variance parts against a world that has them, the balanced formula, and what cannot be told apart."""

import math

import numpy as np

from mkb_analyze.stats.variance import variance_parts


def crossed(seed, sd=(0.5, 0.3, 0.4), n_problems=60, n_models=30):
    rng = np.random.default_rng(seed)
    problem, model = np.repeat(np.arange(n_problems), n_models), np.tile(np.arange(n_models), n_problems)
    y = rng.normal(0, sd[0], n_problems)[problem] + rng.normal(0, sd[1], n_models)[model]
    return y + rng.normal(0, sd[2], len(y)), {"problem": problem, "model": model}


def test_a_known_world_is_recovered():
    found = [variance_parts(*crossed(seed), resamples=2) for seed in range(30)]
    mean = np.mean([[e.estimate for e in parts] for parts in found], axis=0)
    assert np.allclose(mean, [0.25, 0.09, 0.16], rtol=0.15)


def test_one_balanced_factor_is_the_analysis_of_variance():
    rng = np.random.default_rng(1)
    y = rng.normal(0, 1, (20, 4)) + rng.normal(0, 1, (20, 1))
    between, within = 4 * y.mean(1).var(ddof=1), y.var(axis=1, ddof=1).mean()
    parts = variance_parts(y.ravel(), {"attempt": np.repeat(np.arange(20), 4)})
    assert math.isclose(parts[0].estimate, (between - within) / 4) and math.isclose(parts[1].estimate, within)
    assert parts[0].low < parts[0].estimate < parts[0].high


def test_timing_is_taken_out_of_the_rest():
    y, factors = crossed(2)
    plain, timed = variance_parts(y, factors), variance_parts(y, factors, timing_variance=0.05)
    assert [e.name.split(": ")[1] for e in timed] == ["problem", "model", "timing", "rest"]
    assert math.isclose(timed[-1].estimate, plain[-1].estimate - 0.05)


def test_factors_that_coincide_are_undefined():
    y, factors = crossed(3)
    parts = variance_parts(y, {**factors, "again": factors["model"]})
    assert all(math.isnan(e.estimate) and "coincide" in e.reason for e in parts)
    assert "one level" in variance_parts(y, {"model": np.zeros(len(y))})[0].reason


def test_a_part_below_zero_says_so():
    y = np.tile([1.0, -1.0], 10)
    parts = variance_parts(y, {"attempt": np.repeat(np.arange(10), 2)}, resamples=50)
    assert parts[0].estimate == 0 and "set to 0" in parts[0].notes[0]
