"""The study's tables by group and pooled, as ratios of per-problem sums for one cluster bootstrap."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mkb_analyze.stats.bootstrap import Ratio, array_module

POOLED = "pooled"


def cluster_sums(clusters: Any, values: Any, n_clusters: int) -> Any:
    """(G, K) sums of (N, K) values over the G clusters that the N codes name, as one indicator product."""
    xp = array_module(values)
    indicator = xp.zeros((n_clusters, len(values)))
    indicator[xp.asarray(clusters), xp.arange(len(values))] = 1.0
    return indicator @ values


def transfer_ratios(
    problems: Sequence[Any],
    groups: Sequence[Any],
    helped: Any,
    harmed: Any,
    log_ratios: Any,
    categories: Any | None = None,
    category_names: Sequence[str] = (),
    xp: Any = np,
) -> tuple[Ratio, ...]:
    """Help rate, harm rate, paired lift (percent) and category differences (points), for each group and pooled.

    N transfers: `problems` (the clusters) and `groups` are labels, `helped` and `harmed` 0/1, `log_ratios` natural
    logs of the paired ratio, `categories` (N, C) 0/1. A category difference is P(category | harmed) -
    P(category | helped). The pooled row gives each transfer one vote; problems stay the clusters in every row. Names
    are "measure | group" or "category: name | group". `xp` is NumPy or CuPy.
    """
    problem_labels, problem = np.unique(np.asarray(problems), return_inverse=True)
    group_labels, group = np.unique(np.asarray(groups), return_inverse=True)
    n, n_problems, n_groups = len(problem), len(problem_labels), len(group_labels)
    helped, harmed = (np.asarray(v, dtype=float) for v in (helped, harmed))
    if np.any((helped > 0) & (harmed > 0)):
        raise ValueError("helped and harmed: a transfer cannot be both; check the outcomes")
    marks = np.zeros((n, 0)) if categories is None else np.asarray(categories, dtype=float)
    names = list(category_names) or [str(j) for j in range(marks.shape[1])]
    base = np.column_stack([np.ones(n), helped, harmed, np.asarray(log_ratios, dtype=float)])
    per_case = np.hstack([base, marks * harmed[:, None], marks * helped[:, None]])
    width = per_case.shape[1]
    wide = np.zeros((n, (n_groups + 1) * width))
    wide[:, n_groups * width :] = per_case
    for g in range(n_groups):
        wide[group == g, g * width : (g + 1) * width] = per_case[group == g]
    sums = cluster_sums(problem, xp.asarray(wide), n_problems)
    out: list[Ratio] = []
    for g, label in enumerate([*(str(v) for v in group_labels), POOLED]):
        column = [sums[:, g * width + j] for j in range(width)]
        here = group == g if g < n_groups else np.ones(n, dtype=bool)
        n_here, n_helped, n_harmed = int(here.sum()), int(helped[here].sum()), int(harmed[here].sum())
        cells = {"transfers": n_here, "helped": n_helped, "harmed": n_harmed}
        out.append(Ratio(f"help rate | {label}", column[1], column[0], n=n_here, n_by_cell=cells))
        out.append(Ratio(f"harm rate | {label}", column[2], column[0], n=n_here, n_by_cell=cells))
        out.append(
            Ratio(
                f"paired lift % | {label}", column[3], column[0], transform="exp-1", scale=100.0, n=n_here,
                n_by_cell=cells,
            )
        )  # fmt: skip
        for c, name in enumerate(names):
            out.append(
                Ratio(
                    f"category: {name} | {label}", column[4 + c], column[2], column[4 + len(names) + c], column[1],
                    scale=100.0, n=n_helped + n_harmed, n_by_cell={"helped": n_helped, "harmed": n_harmed},
                )
            )  # fmt: skip
    return tuple(out)


def share_ratios(
    problems: Sequence[Any], groups: Sequence[Any], labels: Sequence[Any], names: Sequence[Any], xp: Any = np
) -> tuple[Ratio, ...]:
    """Share of each label among cases that carry exactly one (a cause, a fate), for each group and pooled.

    `names` lists the labels that may occur; resampling problems makes this the multinomial bootstrap that respects
    clusters. Names are "label | group".
    """
    problem_labels, problem = np.unique(np.asarray(problems), return_inverse=True)
    group_labels, group = np.unique(np.asarray(groups), return_inverse=True)
    labels = np.asarray(labels, dtype=object)
    unknown = sorted({str(v) for v in labels} - {str(v) for v in names})
    if unknown:
        raise ValueError(f"label {unknown[0]!r}: not among {list(names)}; name every label that may occur")
    marks = np.column_stack([np.ones(len(labels)), *(labels == name for name in names)]).astype(float)
    out: list[Ratio] = []
    for g, label in enumerate([*(str(v) for v in group_labels), POOLED]):
        here = group == g if g < len(group_labels) else np.ones(len(labels), dtype=bool)
        sums = cluster_sums(problem, xp.asarray(marks * here[:, None]), len(problem_labels))
        total = sums[:, 0]
        for j, name in enumerate(names):
            cells = {"cases": int(here.sum()), str(name): int(marks[here, j + 1].sum())}
            out.append(Ratio(f"{name} | {label}", sums[:, j + 1], total, n=int(here.sum()), n_by_cell=cells))
    return tuple(out)
