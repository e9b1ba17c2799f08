"""The record that every number of a report travels in: the estimate with the doubt it deserves."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

FEW_CASES = 5
FEW_CASES_NOTE = f"fewer than {FEW_CASES} cases"


def json_number(value: float | None) -> float | int | str | None:
    """A number that strict JSON can hold: NaN becomes None, an infinity the string "Inf" or "-Inf"."""
    if value is None:
        return None
    if isinstance(value, (bool, int)):
        return value
    number = float(value)
    if math.isnan(number):
        return None
    if math.isinf(number):
        return "Inf" if number > 0 else "-Inf"
    return number


def _refuse_impossible(record: "Estimate | HypothesisTest") -> None:
    if record.n < 0:
        raise ValueError(f"n={record.n}: a number of cases cannot be negative; count the cases again")
    for what in ("p", "q"):
        value = getattr(record, what)
        if not (math.isnan(value) or 0.0 <= value <= 1.0):
            raise ValueError(f"{what}={value}: a probability lies in [0, 1]; check {record.method}")


def _with_mark(notes: tuple[str, ...], n: int) -> tuple[str, ...]:
    notes = tuple(notes)
    if n < FEW_CASES and FEW_CASES_NOTE not in notes:
        return (*notes, FEW_CASES_NOTE)
    return notes


@dataclass(frozen=True)
class Estimate:
    """One number with its interval and its origin.

    `estimate` in [`low`, `high`] at confidence `level` (0 < level < 1) from `n` cases (`n_by_cell` names the parts);
    `method` says how the interval and `p` were made; `q` is `p` adjusted within its table. NaN means unknown:
    whenever the estimate or a limit is NaN, `reason` says why. A record of fewer than 5 cases marks itself in `notes`.
    """

    name: str
    estimate: float
    low: float
    high: float
    n: int
    method: str
    level: float = 0.95
    n_by_cell: Mapping[str, int] = field(default_factory=dict)
    p: float = math.nan
    q: float = math.nan
    notes: tuple[str, ...] = ()
    reason: str = ""

    def __post_init__(self) -> None:
        for what in ("estimate", "low", "high", "level", "p", "q"):
            object.__setattr__(self, what, float(getattr(self, what)))
        object.__setattr__(self, "n", int(self.n))
        object.__setattr__(self, "n_by_cell", {str(k): int(v) for k, v in self.n_by_cell.items()})
        object.__setattr__(self, "notes", _with_mark(self.notes, self.n))
        if not 0.0 < self.level < 1.0:
            raise ValueError(f"level={self.level}: a confidence level lies between 0 and 1; give 0.95 for 95%")
        _refuse_impossible(self)
        if not self.reason and any(math.isnan(v) for v in (self.estimate, self.low, self.high)):
            raise ValueError(f"{self.name}: a NaN needs a reason; say why it is undefined")

    @property
    def defined(self) -> bool:
        """True where there is a number to show."""
        return not math.isnan(self.estimate)

    def with_q(self, q: float, family: str) -> "Estimate":
        """The same record with its adjusted p and the family that it was adjusted in."""
        return replace(self, q=q, notes=(*self.notes, f"q: {family}"))

    def with_notes(self, *notes: str) -> "Estimate":
        return replace(self, notes=(*self.notes, *notes))

    def renamed(self, name: str) -> "Estimate":
        return replace(self, name=name)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: NaN as None, infinities as the strings "Inf" and "-Inf"."""
        return {
            "name": self.name,
            "estimate": json_number(self.estimate),
            "low": json_number(self.low),
            "high": json_number(self.high),
            "level": self.level,
            "n": self.n,
            "n_by_cell": dict(self.n_by_cell),
            "method": self.method,
            "p": json_number(self.p),
            "q": json_number(self.q),
            "notes": list(self.notes),
            "reason": self.reason,
        }


@dataclass(frozen=True)
class HypothesisTest:
    """A test that estimates nothing: `statistic` with `df` degrees of freedom (NaN where it has none), p, q and n."""

    name: str
    statistic: float
    p: float
    n: int
    method: str
    df: float = math.nan
    n_by_cell: Mapping[str, int] = field(default_factory=dict)
    q: float = math.nan
    notes: tuple[str, ...] = ()
    reason: str = ""

    def __post_init__(self) -> None:
        for what in ("statistic", "p", "df", "q"):
            object.__setattr__(self, what, float(getattr(self, what)))
        object.__setattr__(self, "n", int(self.n))
        object.__setattr__(self, "n_by_cell", {str(k): int(v) for k, v in self.n_by_cell.items()})
        object.__setattr__(self, "notes", _with_mark(self.notes, self.n))
        _refuse_impossible(self)
        if not self.reason and math.isnan(self.p):
            raise ValueError(f"{self.name}: a NaN p needs a reason; say why it is undefined")

    def with_q(self, q: float, family: str) -> "HypothesisTest":
        return replace(self, q=q, notes=(*self.notes, f"q: {family}"))

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "statistic": json_number(self.statistic),
            "df": json_number(self.df),
            "n": self.n,
            "n_by_cell": dict(self.n_by_cell),
            "method": self.method,
            "p": json_number(self.p),
            "q": json_number(self.q),
            "notes": list(self.notes),
            "reason": self.reason,
        }


def undefined(
    name: str,
    reason: str,
    n: int = 0,
    method: str = "none",
    level: float = 0.95,
    n_by_cell: Mapping[str, int] | None = None,
    notes: tuple[str, ...] = (),
) -> Estimate:
    """The record of a number that does not exist, with the reason."""
    nan = math.nan
    return Estimate(name, nan, nan, nan, n, method, level, n_by_cell or {}, notes=notes, reason=reason)


def untested(
    name: str,
    reason: str,
    n: int = 0,
    method: str = "none",
    n_by_cell: Mapping[str, int] | None = None,
    df: float = math.nan,
) -> HypothesisTest:
    """The record of a test that cannot be made, with the reason."""
    return HypothesisTest(name, math.nan, math.nan, n, method, df, n_by_cell or {}, reason=reason)
