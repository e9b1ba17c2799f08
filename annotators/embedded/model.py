"""The rater's model file: plain arrays and one JSON text, never a pickle; saving, loading and scoring."""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from annotators.claims import Claim
from annotators.embedded import features
from runner import digests
from runner.errors import UserError

HOME = Path(__file__).resolve().parents[1] / "data" / "embedded.npz"
MAX_BYTES = 20_000_000
FORMAT = 1
_ARRAYS = ("idf", "weights", "scale", "bias")


@dataclass(frozen=True)
class Head:
    """One question the model answers: its name, its answers, the columns of the weights that hold them."""

    name: str
    answers: tuple[str, ...]
    start: int
    temperature: float

    @property
    def columns(self) -> slice:
        return slice(self.start, self.start + len(self.answers))


@dataclass(frozen=True, eq=False)
class Model:
    """Weights [N_FEATURES, n_answers] of all heads, and what is known of how they came about."""

    idf: np.ndarray
    weights: np.ndarray
    bias: np.ndarray
    heads: tuple[Head, ...]
    threshold: float  # a label less probable than this is withheld
    facts: dict[str, Any]
    sha256: str = ""

    def head(self, name: str) -> Head:
        return next(h for h in self.heads if h.name == name)

    def scores(self, notes: Sequence[Sequence[Claim]]) -> np.ndarray:
        """Raw scores of every claim of the notes, [n_claims, n_answers]."""
        hashed = features.counts(notes)
        return np.asarray(features.weigh(hashed, self.idf) @ self.weights) + self.bias

    def probabilities(self, notes: Sequence[Sequence[Claim]]) -> dict[str, np.ndarray]:
        """Per head the calibrated probabilities, [n_claims, n_answers of the head]."""
        raw = self.scores(notes)
        out = {}
        for head in self.heads:
            out[head.name] = softmax(raw[:, head.columns] / head.temperature)
        return out


def softmax(scores: np.ndarray) -> np.ndarray:
    """Rows to probabilities, [n, k]."""
    shifted = np.exp(scores - scores.max(axis=1, keepdims=True)) if len(scores) else scores
    return shifted / shifted.sum(axis=1, keepdims=True)


def save(model: Model, path: Path = HOME) -> str:
    """Writes the model; the same model gives the same bytes. Returns the digest of the file."""
    scale = np.abs(model.weights).max(axis=0) / 127
    scale[scale == 0] = 1
    packed = np.round(model.weights / scale).astype(np.int8)
    facts = {
        "format": FORMAT,
        "threshold": model.threshold,
        "facts": model.facts,
        "heads": [
            {"name": h.name, "answers": h.answers, "start": h.start, "temperature": h.temperature} for h in model.heads
        ],
    }
    arrays = {
        "idf": model.idf.astype(np.float16),
        "weights": packed,
        "scale": scale.astype(np.float32),
        "bias": model.bias.astype(np.float32),
        "facts": np.frombuffer(json.dumps(facts, sort_keys=True).encode(), dtype=np.uint8),
    }
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    path.write_bytes(stream.getvalue())
    return digests.of_file(path)


def load(path: Path = HOME) -> Model:
    """Reads a model file; UserError when it is none. Nothing in the file is ever executed."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UserError(f"{path}: over {MAX_BYTES} bytes, no model of this rater; train one with train-rater")
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in (*_ARRAYS, "facts")}
        said = json.loads(arrays["facts"].tobytes().decode())
        heads = tuple(
            Head(h["name"], tuple(h["answers"]), int(h["start"]), float(h["temperature"])) for h in said["heads"]
        )
        version, threshold, facts = said["format"], float(said["threshold"]), dict(said["facts"])
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); train one with train-rater") from None
    except Exception as error:  # a broken archive fails in many ways, none of them the user's to tell apart
        raise UserError(
            f"{path}: no model of this rater ({type(error).__name__}); train one with train-rater"
        ) from None
    n_answers = sum(len(h.answers) for h in heads)
    if (
        version != FORMAT
        or arrays["weights"].shape != (features.N_FEATURES, n_answers)
        or arrays["idf"].shape != (features.N_FEATURES,)
    ):
        raise UserError(f"{path}: made for other features than this version has; train it anew with train-rater")
    weights = arrays["weights"].astype(np.float32) * arrays["scale"]
    return Model(
        arrays["idf"].astype(np.float32), weights, arrays["bias"], heads, threshold, facts, digests.of_file(path)
    )
