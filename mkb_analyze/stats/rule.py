"""A transfer rule learned and tested: how well what is known before predicts help or harm on problems not seen."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mkb_analyze.stats.bootstrap import Ratio, cluster_bootstrap, cluster_counts
from mkb_analyze.stats.estimate import Estimate, undefined
from mkb_analyze.stats.rates import wilson


@dataclass(frozen=True)
class Rule:
    """Held-out quality of a logistic rule against the base rate of the problems it learned from.

    `log_loss` and `brier` of the rule, the gain of each over the base rate (positive is better), `auc`, the
    calibration curve (mean predicted share, share seen) and the standardised coefficients of the rule fitted on all.
    """

    log_loss: Estimate
    log_loss_gain: Estimate
    brier: Estimate
    brier_gain: Estimate
    auc: Estimate
    calibration: tuple[tuple[float, Estimate], ...]
    coefficients: tuple[tuple[str, float], ...]
    predicted: np.ndarray


def held_out_rule(
    features: Any,
    outcome: Sequence[int],
    problems: Sequence[Any],
    names: Sequence[str],
    folds: int = 10,
    strength: float = 1.0,
    bins: int = 5,
    resamples: int = 2000,
    rng: np.random.Generator | int = 0,
    level: float = 0.95,
) -> Rule:
    """Logistic rule with an L2 penalty (`strength` is scikit-learn's C), cross-validated over whole problems.

    `features` (N, F) numbers, scaled within each fold; `outcome` 0/1; every problem is predicted by a rule that never
    saw it, and the base rate beside it is that of the same learning folds. Intervals resample problems; the learned
    rules stay as they are, so that they judge these rules and not the learning.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GroupKFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x, y = np.asarray(features, dtype=float), np.asarray(outcome, dtype=int)
    labels, problem = np.unique(np.asarray(problems), return_inverse=True)
    n, method = len(y), f"logistic rule, {folds}-fold over problems; cluster bootstrap"
    cells = {"yes": int(y.sum()), "no": int(n - y.sum()), "problems": len(labels)}
    folds = min(folds, len(labels))
    if min(cells["yes"], cells["no"]) < folds or folds < 2:
        reason = "fewer cases of one outcome than folds: nothing to learn from"
        none = undefined("rule", reason, n, method, level, cells)
        return Rule(none, none, none, none, none, (), (), np.full(n, np.nan))

    def learner() -> Any:
        return make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=1000))

    rng = np.random.default_rng(rng)
    mixed = rng.permutation(len(labels))[problem]
    predicted, base = np.empty(n), np.empty(n)
    for learn, held in GroupKFold(folds).split(x, y, mixed):
        share = y[learn].mean()
        # a fold that learned one outcome alone knows the base rate, kept off 0 and 1
        base[held] = np.clip(share, 0.5 / len(learn), 1 - 0.5 / len(learn))
        fitted = learner().fit(x[learn], y[learn]) if 0 < share < 1 else None
        predicted[held] = base[held] if fitted is None else fitted.predict_proba(x[held])[:, 1]

    def loss(p: np.ndarray) -> np.ndarray:
        return -np.log(np.where(y == 1, p, 1 - p))

    def per_problem(values: np.ndarray) -> np.ndarray:
        return np.bincount(problem, weights=values, minlength=len(labels))

    size = per_problem(np.ones(n))
    columns = {
        "log loss": loss(predicted),
        "log loss gain": loss(base) - loss(predicted),
        "Brier score": (predicted - y) ** 2,
        "Brier gain": (base - y) ** 2 - (predicted - y) ** 2,
    }
    ratios = [Ratio(name, per_problem(v), size, n=n, n_by_cell=cells) for name, v in columns.items()]
    quality = cluster_bootstrap(ratios, resamples, rng, level)
    edges = np.quantile(predicted, np.linspace(0, 1, bins + 1)[1:-1])
    place = np.searchsorted(edges, predicted, side="right")
    curve = tuple(
        (
            float(predicted[place == b].mean()),
            wilson(int(y[place == b].sum()), int((place == b).sum()), level, "share seen").with_notes(
                "cases taken as independent"
            ),
        )
        for b in np.unique(place)
    )
    weights = learner().fit(x, y)[-1].coef_[0]
    auc = _auc(predicted, y, problem, len(labels), resamples, rng, level, cells)
    coefficients = tuple((name, float(w)) for name, w in zip(names, weights, strict=True))
    return Rule(*quality, auc, curve, coefficients, predicted)


def _auc(predicted, y, problem, n_problems, resamples, rng, level, cells) -> Estimate:
    """Chance that a yes is ranked above a no (ties half): (G, G) wins between problems, weighted by their counts."""
    yes, no = predicted[y == 1], predicted[y == 0]
    wins = (yes[:, None] > no).astype(float) + (yes[:, None] == no) / 2
    rows, columns = np.zeros((n_problems, len(yes))), np.zeros((n_problems, len(no)))
    rows[problem[y == 1], np.arange(len(yes))] = 1
    columns[problem[y == 0], np.arange(len(no))] = 1
    between, pairs = rows @ wins @ columns.T, np.outer(rows.sum(1), columns.sum(1))
    weights = cluster_counts(n_problems, resamples, rng, np).astype(float)
    with np.errstate(all="ignore"):
        drawn = ((weights @ between) * weights).sum(1) / ((weights @ pairs) * weights).sum(1)
    low, high = np.nanquantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    method = f"area under the held-out ROC curve; cluster bootstrap, percentile, {resamples} resamples"
    return Estimate("AUC", float(wins.mean()), low, high, len(y), method, level, cells)
