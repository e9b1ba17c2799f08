"""Exact p of an r x c table with fixed margins, by a network of column choices with bounds."""

import math

import numpy as np
from scipy.special import gammaln

from mkb_analyze.stats.exact import TIE

# values of partial tables that agree to this in the log are one: far above rounding, far below the tie rule's 1e-7
SAME = 1e-10
CHUNK = 1_000_000


def fisher_rxc_p(table: np.ndarray, max_work: int = 30_000_000) -> float | None:
    """P of all tables, margins fixed, no likelier than the one seen (Freeman & Halton 1951); None beyond `max_work`.

    Columns are filled one at a time (Mehta & Patel 1983): a node is the places left in the rows, a path's value the
    log of the product of 1/k! so far. The best and the worst completion of a node are found backwards; then a path
    whose every completion counts adds its whole mass, one of which none counts is dropped, and paths that meet with
    the same value are merged.
    """
    table = np.asarray(table, dtype=np.int64)
    table = table[table.sum(1) > 0][:, table.sum(0) > 0]
    if min(table.shape) < 2:
        return 1.0
    if table.shape[0] > table.shape[1]:
        table = table.T
    rows, columns = table.sum(1), np.sort(table.sum(0))[::-1]
    if float(np.prod(rows + 1.0)) > 2.0**62:
        return None
    constant = gammaln(rows + 1).sum() + gammaln(columns + 1).sum() - gammaln(table.sum() + 1)
    stages = _stages(rows, columns, max_work)
    if stages is None:
        return None
    limit = math.log(TIE) - float(gammaln(table + 1).sum())
    mass = _walk(stages, columns, limit, max_work)
    return None if mass is None else float(min(mass * math.exp(constant), 1.0))


class _Stage:
    """The nodes before one column: places left (S, r) and keys, the column's fillings, and completion bounds."""

    def __init__(self, nodes: np.ndarray, keys: np.ndarray):
        self.nodes, self.keys = nodes, keys
        self.parts = self.part_keys = self.costs = np.zeros(0)
        self.best = self.worst = np.zeros(len(keys))

    def moves(self, chosen: np.ndarray):
        """For blocks of the chosen nodes: (which of them, which filling) of every filling that fits."""
        size = max(1, CHUNK // max(1, len(self.parts)))
        for start in range(0, len(chosen), size):
            block = chosen[start : start + size]
            fits = (self.parts[None] <= self.nodes[block][:, None]).all(2)
            at, part = np.nonzero(fits)
            yield start + at, part


def _fillings(rows: np.ndarray, total: int) -> np.ndarray:
    """All (M, r) ways to put `total` into rows with that many places."""
    out, left = np.zeros((1, 0), dtype=np.int64), np.array([total])
    for i, places in enumerate(rows):
        behind = int(rows[i + 1 :].sum())
        low, high = np.maximum(0, left - behind), np.minimum(places, left)
        n = np.maximum(high - low + 1, 0)
        index = np.repeat(np.arange(len(left)), n)
        k = np.arange(n.sum()) - np.repeat(np.cumsum(n) - n, n) + low[index]
        out, left = np.column_stack([out[index], k]), left[index] - k
    return out


def _stages(rows: np.ndarray, columns: np.ndarray, max_work: int) -> list[_Stage] | None:
    weights = np.concatenate([[1], np.cumprod(rows[:-1] + 1)])
    stages, work = [_Stage(rows[None], np.array([rows @ weights]))], 0
    for total in columns[:-1]:
        here = stages[-1]
        here.parts = _fillings(rows, int(total))
        here.part_keys, here.costs = here.parts @ weights, gammaln(here.parts + 1).sum(1)
        work += len(here.nodes) * len(here.parts)
        if work > max_work:
            return None
        found = [np.unique(here.keys[n] - here.part_keys[p]) for n, p in here.moves(np.arange(len(here.keys)))]
        keys = np.unique(np.concatenate(found))
        stages.append(_Stage(keys[:, None] // weights % (rows + 1), keys))
    stages[-1].best = stages[-1].worst = -gammaln(stages[-1].nodes + 1).sum(1)
    for here, after in zip(stages[-2::-1], stages[:0:-1], strict=True):
        here.best, here.worst = np.full(len(here.keys), -np.inf), np.full(len(here.keys), np.inf)
        for n, p in here.moves(np.arange(len(here.keys))):
            to = np.searchsorted(after.keys, here.keys[n] - here.part_keys[p])
            np.maximum.at(here.best, n, after.best[to] - here.costs[p])
            np.minimum.at(here.worst, n, after.worst[to] - here.costs[p])
    return stages


def _walk(stages: list[_Stage], columns: np.ndarray, limit: float, max_work: int) -> float | None:
    node, value, count = np.zeros(1, dtype=int), np.zeros(1), np.ones(1)
    mass = 0.0
    for j, here in enumerate(stages):
        whole = value + here.best[node] <= limit
        left = here.nodes[node[whole]]
        # all completions of a node: the multinomial sum of products of 1/k!
        rest = gammaln(left.sum(1) + 1) - gammaln(left + 1).sum(1) - gammaln(columns[j:] + 1).sum()
        mass += float((count[whole] * np.exp(value[whole] + rest)).sum())
        open_ = ~whole & (value + here.worst[node] <= limit)
        if j == len(stages) - 1 or not open_.any():
            break
        node, value, count = node[open_], value[open_], count[open_]
        if len(node) * len(here.parts) > max_work // 4:
            return None
        after, parts = stages[j + 1], []
        for n, p in here.moves(node):
            to = np.searchsorted(after.keys, here.keys[node[n]] - here.part_keys[p])
            parts.append(_merged(to, value[n] - here.costs[p], count[n]))
        node, value, count = _merged(*(np.concatenate(v) for v in zip(*parts, strict=True)))
    return mass


def _merged(node: np.ndarray, value: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Paths at one node with one value as one path with their number."""
    order = np.lexsort((value, node))
    node, value, count = node[order], value[order], count[order]
    first = np.flatnonzero((np.diff(node, prepend=-1) != 0) | (np.diff(value, prepend=-np.inf) > SAME))
    return node[first], value[first], np.add.reduceat(count, first)
