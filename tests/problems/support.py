"""Small draws of problems for the tests: inputs, anchors and the quality bar, each computed once."""

from functools import cache

import ml_dtypes
import numpy as np

from runner import catalogue, problem_check


@cache
def quality(number: int) -> problem_check.Quality:
    return problem_check.quality(catalogue.problem(number))


def inputs(number: int, seed: int = 3) -> tuple:
    """Inputs of the small size."""
    return catalogue.problem(number).module.make_inputs(np, np.random.default_rng(seed), "small")


def exact(number: int, *values) -> tuple:
    """The reference in float64 on the given inputs."""
    return problem_check.anchor(catalogue.problem(number), np, values)


def f64(x) -> np.ndarray:
    return np.asarray(x).astype(np.float64)


def close(got, due, rtol: float = 1e-9) -> None:
    """Equal to a relative error of the largest value; infinities in the same places."""
    got, due = f64(got), f64(due)
    finite = np.isfinite(due)
    np.testing.assert_array_equal(got[~finite], due[~finite])
    np.testing.assert_allclose(got[finite], due[finite], rtol=0, atol=rtol * np.abs(due[finite]).max(initial=0))


def softmax_mix(scores: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, float]:
    """Online softmax: one key at a time with a running maximum; scores [n], values [n, d] -> (mix [d], log-sum-exp)."""
    top, norm, mix = -np.inf, 0.0, np.zeros(values.shape[1])
    for score, value in zip(scores, values, strict=True):
        new = max(top, score)
        shrink = np.exp(top - new)
        weight = np.exp(score - new)
        norm, mix, top = norm * shrink + weight, mix * shrink + weight * value, new
    return (mix / norm, top + np.log(norm)) if norm else (mix, -np.inf)


@cache
def _line(kind) -> np.ndarray:
    n = 16 if kind == ml_dtypes.float4_e2m1fn else 256
    return np.arange(n, dtype=np.uint8).view(kind).astype(np.float64)


def nearest(x, kind) -> np.ndarray:
    """uint8 codes of the finite values of an ml_dtypes type nearest to float64 `x`: every one is tried, ties to even.

    The type's own cast goes through float32, which moves values next to a tie onto it.
    """
    values = _line(kind)
    distance = np.where(np.isfinite(values), np.abs(f64(x)[..., None] - values), np.inf)
    distance = np.where(np.signbit(values) == np.signbit(f64(x))[..., None], distance, np.inf)
    tied = distance == distance.min(-1, keepdims=True)
    even = np.where(tied & (np.arange(len(values)) % 2 == 0), 0, np.where(tied, 1, 2))
    return even.argmin(-1).astype(np.uint8)


def rounded(x, kind) -> np.ndarray:
    """`x` rounded to the nearest finite value of an ml_dtypes type, in float64."""
    return _line(kind)[nearest(x, kind)]
