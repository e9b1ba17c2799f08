"""The transfer rule: held-out problems, the base rate beside it, scikit-learn's AUC."""

import math

import numpy as np
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from mkb_analyze.stats.rule import held_out_rule


def world(seed, signal, n_problems=60, per=8):
    rng = np.random.default_rng(seed)
    problem = np.repeat(np.arange(n_problems), per)
    x = rng.normal(0, 1, (len(problem), 3))
    y = rng.random(len(problem)) < 1 / (1 + np.exp(0.7 - signal * x[:, 0]))
    return x, y.astype(int), problem, ("a", "b", "c")


def test_scores_are_scikit_learns():
    x, y, problem, names = world(1, 1.5)
    rule = held_out_rule(x, y, problem, names)
    assert math.isclose(rule.log_loss.estimate, log_loss(y, rule.predicted), rel_tol=1e-9)
    assert math.isclose(rule.brier.estimate, brier_score_loss(y, rule.predicted), rel_tol=1e-9)
    assert math.isclose(rule.auc.estimate, roc_auc_score(y, rule.predicted), rel_tol=1e-9)
    assert rule.log_loss_gain.low > 0 and rule.auc.low > 0.6


def test_noise_gains_nothing():
    rule = held_out_rule(*world(2, 0.0))
    assert rule.log_loss_gain.estimate < 0.01 and rule.auc.low < 0.5 < rule.auc.high


def test_what_names_the_problem_does_not_help_on_others():
    rng = np.random.default_rng(3)
    problem = np.repeat(np.arange(30), 10)
    y = (rng.random(30) < 0.5)[problem].astype(int)
    marks = np.eye(30)[problem]
    rule = held_out_rule(marks, y, problem, [str(j) for j in range(30)], folds=5)
    assert rule.log_loss_gain.estimate < 0.01


def test_calibration_bins_hold_every_case():
    x, y, problem, names = world(4, 1.5)
    rule = held_out_rule(x, y, problem, names)
    assert sum(e.n for _, e in rule.calibration) == len(y)
    assert all(abs(mean - e.estimate) < 0.15 for mean, e in rule.calibration)


def test_one_outcome_teaches_nothing():
    x, y, problem, names = world(5, 1.0)
    assert "nothing to learn" in held_out_rule(x, np.zeros_like(y), problem, names).auc.reason


def test_same_seed_same_rule():
    one, other = held_out_rule(*world(6, 1.0), rng=3), held_out_rule(*world(6, 1.0), rng=3)
    assert one.auc == other.auc and np.array_equal(one.predicted, other.predicted)
