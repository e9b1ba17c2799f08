"""Counts how often intervals held the truth and tests rejected it."""

import math
from dataclasses import dataclass, field
from typing import Any

WANTED = {"coverage": (0.93, 0.97), "type I error": (0.04, 0.06), "FDR": (0.0, 0.05)}


@dataclass
class Tally:
    """Hits a row: (kind, what, method, where, used) -> [hits, trials, undefined, exact value]."""

    rows: dict[tuple[str, str, str, str, bool], list[float]] = field(default_factory=dict)

    def _add(self, kind: str, what: str, method: str, where: str, used: bool, hit: bool, lost: bool) -> None:
        row = self.rows.setdefault((kind, what, method, where, used), [0, 0, 0, math.nan])
        row[0] += hit
        row[1] += not lost
        row[2] += lost

    def interval(self, what: str, method: str, where: str, estimate: Any, truth: float, used: bool) -> None:
        lost = math.isnan(estimate.low) or math.isnan(estimate.high)
        hit = not lost and estimate.low <= truth <= estimate.high
        self._add("coverage", what, method, where, used, hit, lost)

    def p_value(self, what: str, method: str, where: str, p: float, used: bool, alpha: float = 0.05) -> None:
        lost = math.isnan(p)
        self._add("type I error", what, method, where, used, not lost and p <= alpha, lost)

    def rejection(self, kind: str, what: str, method: str, where: str, rejected: bool, used: bool) -> None:
        self._add(kind, what, method, where, used, rejected, False)

    def exact(self, what: str, method: str, where: str, value: float, used: bool) -> None:
        self.rows[("coverage", what, method, where, used)] = [0, 0, 0, float(value)]

    def table(self) -> list[dict[str, Any]]:
        out = []
        for (kind, what, method, where, used), (hits, trials, lost, exact) in self.rows.items():
            value = exact if not math.isnan(exact) else hits / trials if trials else math.nan
            error = 0.0 if not math.isnan(exact) else math.sqrt(value * (1 - value) / trials) if trials else math.nan
            low, high = WANTED[kind]
            out.append(
                {
                    "kind": kind, "what": what, "method": method, "where": where, "used": used, "value": value,
                    "monte_carlo_error": error, "n_simulated": int(trials), "n_undefined": int(lost),
                    "wanted": [low, high], "within": bool(low <= value <= high),
                    "within_error": bool(low - 2 * error <= value <= high + 2 * error),
                }
            )  # fmt: skip
        return out
