"""Claims a second of the embedded rater on one core, splitting included: `python -m benchmarks.embedded`."""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import resource  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402

from annotators.claims import split  # noqa: E402
from annotators.raters.embedded import EmbeddedRater  # noqa: E402

NOTES = Path(__file__).resolve().parents[1] / "tests" / "data" / "notes" / "notes"
LEAST = 1500


def run(n_rounds: int = 10) -> dict[str, float]:
    """Rates in claims a second of processor time (one thread), and the peak of resident memory in MB."""
    texts = [p.read_text(encoding="utf-8") for p in sorted(NOTES.glob("*.md"))]
    rater = EmbeddedRater()
    for _ in rater.label_notes((t, split(t)) for t in texts):
        pass
    began, n_claims = time.process_time(), 0
    for _ in range(n_rounds):
        n_claims += sum(len(split(t)) for t in texts)
    split_s = time.process_time() - began
    began, n_labelled = time.process_time(), 0
    # each round's notes differ in their first line, so that no text is met twice
    for k in range(n_rounds):
        notes = ((u, split(u)) for u in (f"Round {k} of note {n}.\n\n{t}" for n, t in enumerate(texts)))
        n_labelled += sum(len(g) for g in rater.label_notes(notes))
    whole_s = time.process_time() - began
    return {
        "split_claims_per_s": n_claims / split_s,
        "whole_claims_per_s": n_labelled / whole_s,
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


if __name__ == "__main__":
    got = run()
    for name, value in got.items():
        print(f"{name:24}{value:12.0f}")
    print(f"at least {LEAST} claims a second: {'yes' if got['whole_claims_per_s'] >= LEAST else 'NO'}")
