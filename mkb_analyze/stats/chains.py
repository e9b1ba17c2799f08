"""How claims spread over generations of notes: new carriers per carrier."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mkb_analyze.stats.bootstrap import Ratio, cluster_bootstrap
from mkb_analyze.stats.estimate import Estimate, undefined


def reproduction_number(
    carriers: Sequence[int],
    new_carriers: Sequence[int],
    chains: Sequence[Any],
    generations: Sequence[int] | None = None,
    resamples: int = 10_000,
    rng: Any = 0,
    level: float = 0.95,
    name: str = "reproduction number",
) -> tuple[Estimate, ...]:
    """New carriers per carrier, pooled and then for each of `generations`: sum of new over sum of carriers.

    One row a generation of a chain: how many notes carried the claim, and how many of the next generation's notes
    took it from them. Chains are independent, their generations are not: the interval resamples chains. Above 1 the
    claim spreads, below 1 it dies out.
    """
    carriers, new = np.asarray(carriers, dtype=float), np.asarray(new_carriers, dtype=float)
    if np.any(carriers < 0) or np.any(new < 0):
        raise ValueError("carriers: counts of notes, 0 or more; count them again")
    labels, chain = np.unique(np.asarray(chains), return_inverse=True)
    if not len(labels):
        return (undefined(name, "no chains", level=level),)

    def per_chain(values: np.ndarray) -> np.ndarray:
        return np.bincount(chain, weights=values, minlength=len(labels))

    def ratio(label: str, keep: np.ndarray) -> Ratio:
        cells = {
            "chains": int(np.sum(per_chain(carriers * keep) > 0)),
            "carriers": int((carriers * keep).sum()),
            "new carriers": int((new * keep).sum()),
        }
        return Ratio(label, per_chain(new * keep), per_chain(carriers * keep), n=cells["carriers"], n_by_cell=cells)

    ratios = [ratio(name, np.ones(len(carriers), dtype=bool))]
    if generations is not None:
        at = np.asarray(generations)
        ratios += [ratio(f"{name}, generation {g}", at == g) for g in np.unique(at)]
    return cluster_bootstrap(ratios, resamples, rng, level, kind="bca")
