"""Says how good labels with probabilities are: agreement, per category precision and recall, calibration."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.metrics import cohen_kappa_score, f1_score, precision_recall_fscore_support

N_BINS = 10


@dataclass(frozen=True, eq=False)
class Measured:
    """What n answers with probabilities are worth against the settled ones."""

    n: int
    accuracy: float
    macro_f1: float  # mean over the categories that occur among the settled answers
    kappa: float
    expected_calibration_error: float
    per_category: tuple[tuple[str, float, float, float, int], ...]  # id, precision, recall, F1, n settled
    reliability: tuple[tuple[float, float, float, int], ...]  # bin's lower edge, mean probability, share right, n

    def summary(self) -> dict[str, float]:
        """The figures that are kept with a model."""
        return {
            "n": self.n,
            "accuracy": round(self.accuracy, 4),
            "macro_f1": round(self.macro_f1, 4),
            "kappa": round(self.kappa, 4),
            "expected_calibration_error": round(self.expected_calibration_error, 4),
        }

    def table(self) -> str:
        """Plain text for a terminal."""
        lines = [
            f"n {self.n}  accuracy {self.accuracy:.3f}  macro-F1 {self.macro_f1:.3f}  kappa {self.kappa:.3f}  "
            f"ECE {self.expected_calibration_error:.3f}",
            f"{'':28}{'prec':>6}{'rec':>6}{'F1':>6}{'n':>6}",
        ]
        lines += [f"{name:28}{p:6.2f}{r:6.2f}{f:6.2f}{n:6d}" for name, p, r, f, n in self.per_category]
        lines += [
            f"  p {low:.1f}+: mean {mean:.2f}, right {right:.2f}, n {n}" for low, mean, right, n in self.reliability
        ]
        return "\n".join(lines)


def measure(truth: np.ndarray, probabilities: np.ndarray, answers: Sequence[str]) -> Measured:
    """Measures probabilities [n, n_answers] against settled answers [n].

    Expected calibration error: the mean over ten equal bins of |mean probability - share right|, weighted by size
    (Guo et al. 2017, On Calibration of Modern Neural Networks, equation 3).
    """
    sure = probabilities.max(axis=1)
    told = np.array(answers)[probabilities.argmax(axis=1)]
    right = told == truth
    bins = np.minimum((sure * N_BINS).astype(int), N_BINS - 1)
    rows, error = [], 0.0
    for b in range(N_BINS):
        some = bins == b
        if some.any():
            rows.append((b / N_BINS, float(sure[some].mean()), float(right[some].mean()), int(some.sum())))
            error += some.mean() * abs(sure[some].mean() - right[some].mean())
    present = [a for a in answers if (truth == a).any()]
    p, r, f, n = precision_recall_fscore_support(truth, told, labels=present, zero_division=0)
    return Measured(
        len(truth),
        float(right.mean()),
        float(f1_score(truth, told, labels=present, average="macro", zero_division=0)),
        float(cohen_kappa_score(truth, told)),
        float(error),
        tuple((a, float(p[k]), float(r[k]), float(f[k]), int(n[k])) for k, a in enumerate(present)),
        tuple(rows),
    )
