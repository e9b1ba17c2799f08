"""Trains the embedded rater from what the repository holds: `python -m annotators.embedded.train [--check]`."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import minimize_scalar
from sklearn.linear_model import LogisticRegression

from annotators.embedded import corpus as corpora
from annotators.embedded import features, model
from annotators.embedded.corpus import Corpus
from annotators.embedded.measure import Measured, measure

N_WORDINGS = 3
GOLD_WEIGHT = 2.0
STRENGTH = 5.0  # inverse of the penalty on the weights
BALANCE = 0.5  # 0: categories weigh as often as they occur, 1: all alike
ABSTAIN_SHARE = 0.10  # the threshold withholds the least sure tenth of the held-out claims
N_FOLDS = 5


def _fit(
    x: sparse.csr_matrix, y: np.ndarray, weight: np.ndarray, answers: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Multinomial logistic regression: weights [N_FEATURES, n_answers] and bias, zero-sum over the answers."""
    total = weight.sum()
    share = {a: weight[y == a].sum() / total for a in answers}
    weight = weight * np.array([share[a] ** -BALANCE for a in y])
    weight *= len(y) / weight.sum()
    fitted = LogisticRegression(C=STRENGTH, max_iter=150, tol=1e-3).fit(x, y, sample_weight=weight)
    coefficients, bias = fitted.coef_, fitted.intercept_
    if len(answers) == 2:
        coefficients, bias = np.vstack([-coefficients / 2, coefficients / 2]), np.array([-bias[0] / 2, bias[0] / 2])
    order = [list(fitted.classes_).index(a) for a in answers]
    return coefficients[order].T.astype(np.float32), bias[order].astype(np.float32)


def _targets(corpus: Corpus) -> list[tuple[str, np.ndarray]]:
    dsl = [None if d is None else str(bool(d)).lower() for d in corpus.dsl_specific]
    return [
        ("category", np.array([c or "" for c in corpus.category])),
        ("evidence", np.array([e or "" for e in corpus.evidence])),
        ("dsl_specific", np.array([d or "" for d in dsl])),
    ]


def fit(corpus: Corpus, hashed: sparse.csr_matrix, rows: np.ndarray) -> model.Model:
    """A model from some rows of a corpus (`hashed` is `features.counts` of all its notes), uncalibrated."""
    idf = features.inverse_frequency(hashed[rows])
    x = features.weigh(hashed, idf)
    weight = np.array(corpus.weight)
    heads, weights, bias, start = [], [], [], 0
    for name, y in _targets(corpus):
        known = rows[y[rows] != ""]
        answers = tuple(sorted(set(y[known])))
        w, b = _fit(x[known], y[known], weight[known], answers)
        heads.append(model.Head(name, answers, start, 1.0))
        weights.append(w)
        bias.append(b)
        start += len(answers)
    return model.Model(idf, np.hstack(weights), np.concatenate(bias), tuple(heads), 0.0, {})


def cross_validated(corpus: Corpus, hashed: sparse.csr_matrix) -> tuple[tuple[model.Head, ...], np.ndarray, np.ndarray]:
    """Heads, held-out scores [n_claims, n_answers] and which rows are held out: the labelled notes, in folds by note.

    A fold leaves out its notes, every written note that follows one of them, and all that follow several.
    """
    group = np.array(corpus.group)
    weight = np.array(corpus.weight)
    labelled = (weight >= 1.0) & (group != "") & (group != "*")
    notes = sorted(set(group[labelled]))
    n_folds = min(N_FOLDS, len(notes))
    everything = fit(corpus, hashed, np.arange(len(group)))
    scores = np.full((len(group), everything.weights.shape[1]), np.nan, dtype=np.float32)
    for fold in range(n_folds):
        out = np.isin(group, notes[fold::n_folds])
        fitted = fit(corpus, hashed, np.flatnonzero(~out & (group != "*")))
        if [h.answers for h in fitted.heads] != [h.answers for h in everything.heads]:
            raise ValueError("a category stands in one fold only; add training sentences for it")
        test = np.flatnonzero(out & labelled)
        scores[test] = features.weigh(hashed[test], fitted.idf) @ fitted.weights + fitted.bias
    return everything.heads, scores, labelled


def _temperature(scores: np.ndarray, y: np.ndarray, answers: Sequence[str]) -> float:
    """The temperature that makes the held-out answers most likely."""
    at = np.array([answers.index(a) for a in y])

    def loss(log_t: float) -> float:
        p = model.softmax(scores / np.exp(log_t))
        return -float(np.log(p[np.arange(len(at)), at] + 1e-12).mean())

    return float(np.exp(minimize_scalar(loss, bounds=(-2, 3), method="bounded").x))


def calibrate(
    corpus: Corpus, heads: tuple[model.Head, ...], scores: np.ndarray, rows: np.ndarray
) -> tuple[tuple[model.Head, ...], float, dict[str, Measured]]:
    """Heads with temperatures, the abstention threshold, and what the held-out labels measure."""
    out, measured, threshold = [], {}, 0.0
    for head, (name, y) in zip(heads, _targets(corpus), strict=True):
        own = scores[rows][:, head.columns]
        truth = y[rows]
        known = truth != ""
        temperature = _temperature(own[known], truth[known], head.answers)
        p = model.softmax(own[known] / temperature)
        out.append(model.Head(name, head.answers, head.start, temperature))
        measured[name] = measure(truth[known], p, head.answers)
        if head.start == 0:
            threshold = float(np.quantile(p.max(axis=1), ABSTAIN_SHARE))
    return tuple(out), threshold, measured


def train(corpus: Corpus) -> tuple[model.Model, dict[str, Measured]]:
    """The model on all of a corpus, calibrated on folds of its labelled notes, and what those folds measure."""
    hashed = features.counts(corpus.notes)
    heads, scores, rows = cross_validated(corpus, hashed)
    heads, threshold, measured = calibrate(corpus, heads, scores, rows)
    fitted = fit(corpus, hashed, np.arange(len(corpus)))
    facts: dict[str, Any] = {
        "training_sha256": corpus.sha256(),
        "n_claims": len(corpus),
        "n_notes": len(corpus.notes),
        "held_out": {name: m.summary() for name, m in measured.items()},
    }
    return model.Model(fitted.idf, fitted.weights, fitted.bias, heads, threshold, facts), measured


def shipped_corpus(gold: Path | None = None) -> Corpus:
    """What the repository ships to train on."""
    return corpora.joined(corpora.written(N_WORDINGS), corpora.labelled(gold or corpora.GOLD, GOLD_WEIGHT))


def main() -> None:
    """Train, print what was measured on held-out notes, and write the model file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gold", type=Path, default=corpora.GOLD, help="folder with gold.jsonl and notes/")
    parser.add_argument("--out", type=Path, default=model.HOME)
    parser.add_argument("--check", action="store_true", help="measure only, write nothing")
    asked = parser.parse_args()
    trained, measured = train(shipped_corpus(asked.gold))
    rows = (asked.gold / "gold.jsonl").read_text("utf-8").splitlines()
    # the notes of its training, so that a calibration on them is marked
    trained.facts["note_sha256"] = sorted({json.loads(row)["note_sha256"] for row in rows if row.strip()})
    for name, m in measured.items():
        print(f"== {name}, held-out notes\n{m.table()}")
    print(f"trained on {trained.facts['n_claims']} claims; abstains under {trained.threshold:.3f}")
    if not asked.check:
        print(f"{asked.out} {model.save(trained, asked.out)} {asked.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
