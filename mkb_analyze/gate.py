"""The gate's verdict on one note: paired ratios on held-out problems to admit, reject, quarantine or too little."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from scipy import stats

from mkb_analyze.stats.bootstrap import Ratio, cluster_bootstrap
from mkb_analyze.stats.estimate import Estimate, json_number, undefined
from mkb_analyze.stats.rates import clopper_pearson
from runner.errors import UserError

# How sure the number of further runs is to settle the verdict, if the note's true lift is the one seen so far.
SETTLE_POWER = 0.8
MOST_PROBLEMS = 1000


class Verdict(StrEnum):
    """May the note be used: shown to help, shown to harm, neither shown, or not tried on enough problems."""

    ADMIT = "admit"
    REJECT = "reject"
    QUARANTINE = "quarantine"
    INSUFFICIENT = "insufficient evidence"


# From worst to best: a note tried in several targets is no better than its worst.
WORST_FIRST = (Verdict.REJECT, Verdict.QUARANTINE, Verdict.INSUFFICIENT, Verdict.ADMIT)


@dataclass(frozen=True)
class Rule:
    """The thresholds, as shares (0.05 is 5%): admit where the whole lift interval lies above `admit_above`; reject
    where the lift is below `harm_below` and the whole interval below `admit_above`; fewer than `min_problems`
    problems are no evidence. `band` says what counts as harm on one problem (ratio at most 1 / (1 + band)).

    Raises:
        UserError: thresholds that no note could meet or that contradict each other.
    """

    min_problems: int = 5
    admit_above: float = 0.0
    harm_below: float = -0.05
    level: float = 0.95
    band: float = 0.05
    n_resamples: int = 10_000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.min_problems < 2:
            raise UserError(f"--min-problems {self.min_problems}: at least 2 are due; the default is 5")
        if not -1 < self.harm_below <= self.admit_above < math.inf:
            raise UserError(
                f"--harm-below {self.harm_below}, --admit-above {self.admit_above}: -1 < harm-below <= admit-above "
                f"is due, as shares; the defaults are -0.05 and 0"
            )
        if not 0.5 <= self.level < 1:
            raise UserError(f"--level {self.level}: a confidence from 0.5 to below 1 is due; the default is 0.95")
        if not 0 <= self.band < math.inf or self.n_resamples < 100:
            raise UserError(f"band {self.band}, {self.n_resamples} resamples: band >= 0 and 100 resamples are due")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class More:
    """Further held-out problems, and attempts on them (a conditioned and a solo one a pair), that would settle the
    verdict with a power of 0.8; both None where no number up to 1000 would. `why` says what was assumed.
    """

    n_problems: int | None
    n_attempts: int | None
    why: str


@dataclass(frozen=True)
class Judgement:
    """A verdict with all that it rests on; `lift` and `harm` are shares (0.05 is 5%), `more` is None once settled.

    `harm.high` is the one-sided Clopper-Pearson bound on the share of problems that the note harms.
    """

    verdict: Verdict
    why: str
    lift: Estimate
    harm: Estimate
    n_problems: int
    n_pairs: int
    more: More | None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "verdict": self.verdict.value,
            "why": self.why,
            "n_problems": self.n_problems,
            "n_pairs": self.n_pairs,
            "lift": _numbers(self.lift),
            "harm_rate": _numbers(self.harm),
            "harm_bound": json_number(self.harm.high),
            "more": asdict(self.more) if self.more else None,
        }


def _numbers(e: Estimate) -> dict[str, Any]:
    told = {k: json_number(getattr(e, k)) for k in ("estimate", "low", "high")}
    return {**told, "level": e.level, "n": e.n, "method": e.method, **({"reason": e.reason} if e.reason else {})}


def judge(
    problems: Sequence[Hashable], log_ratios: Sequence[float], rule: Rule = Rule(), spread: float | None = None
) -> Judgement:
    """The verdict on one note from N paired runs; pure: the same pairs and rule give the same verdict.

    Args:
        problems: N names of problems, none of them the one that the note was made on; the clusters.
        log_ratios: N natural logs of the paired ratio, conditioned ÷ solo, both clipped, failures at the floor.
        rule: the thresholds.
        spread: standard deviation of a problem's mean log ratio in a like study, used to say how many runs are
            missing where fewer than two problems were tried.

    The lift is exp(mean log ratio) − 1 over all pairs, its interval the expanded percentile bootstrap over problems
    (Hesterberg 2015): with the few problems of a gate, BCa is too short and admits notes that do nothing
    (benchmarks/gate.py). A problem is harmed when its geometric mean ratio is at most 1 / (1 + band).

    Raises:
        ValueError: unequal lengths or a ratio that is not finite.
    """
    logs = np.asarray(log_ratios, dtype=float)
    if len(problems) != len(logs) or not np.isfinite(logs).all():
        raise ValueError(f"{len(problems)} problems, {len(logs)} log ratios: equally many finite ones; match them")
    names = sorted({str(p) for p in problems})
    codes = np.array([names.index(str(p)) for p in problems], dtype=int)
    sums = np.bincount(codes, logs, len(names))
    sizes = np.bincount(codes, minlength=len(names)).astype(float)
    means = sums / sizes
    lift, harm = _lift(sums, sizes, rule), _harm(means, rule)
    verdict, why = _verdict(lift, len(names), rule)
    more = None if verdict in (Verdict.ADMIT, Verdict.REJECT) else _more(means, sizes, rule, spread)
    return Judgement(verdict, why, lift, harm, len(names), len(logs), more)


def _lift(sums: np.ndarray, sizes: np.ndarray, rule: Rule) -> Estimate:
    n, cells = int(sizes.sum()), {"problems": len(sizes)}
    if n == 0:
        return undefined("lift", "no pair on a held-out problem", level=rule.level)
    value = math.expm1(float(sums.sum() / n))
    if len(sizes) == 1:
        reason = "one problem alone: no interval"
        return Estimate("lift", value, math.nan, math.nan, n, "none", rule.level, cells, reason=reason)
    ratio = Ratio("lift", sums, sizes, transform="exp-1", n=n, n_by_cell=cells)
    rng = np.random.default_rng(rule.seed)
    return cluster_bootstrap([ratio], rule.n_resamples, rng, rule.level, "expanded")[0]


def _harm(means: np.ndarray, rule: Rule) -> Estimate:
    edge = -math.log1p(rule.band)
    # A mean on the edge but for the last bits of a sum is on the edge, as for a single transfer.
    n_harmed = int((means <= edge + 1e-12).sum()) if rule.band else int((means < -1e-12).sum())
    one_sided = 2 * rule.level - 1 if rule.level > 0.5 else 1e-9
    return clopper_pearson(n_harmed, len(means), one_sided, "share of problems harmed")


def _verdict(lift: Estimate, n_problems: int, rule: Rule) -> tuple[Verdict, str]:
    if n_problems < rule.min_problems:
        return Verdict.INSUFFICIENT, f"{n_problems} of {rule.min_problems} held-out problems"
    if math.isnan(lift.low):
        return Verdict.INSUFFICIENT, lift.reason
    where = f"interval [{lift.low:+.1%}, {lift.high:+.1%}]"
    if lift.low > rule.admit_above:
        return Verdict.ADMIT, f"{where} lies above {rule.admit_above:+.1%}"
    if lift.high < rule.admit_above and lift.estimate < rule.harm_below:
        why = f"lift {lift.estimate:+.1%} is below {rule.harm_below:+.1%}, {where} below {rule.admit_above:+.1%}"
        return Verdict.REJECT, why
    if lift.high < rule.admit_above:
        return Verdict.QUARANTINE, f"{where} lies below {rule.admit_above:+.1%}, by less than a rejection asks"
    return Verdict.QUARANTINE, f"{where} crosses {rule.admit_above:+.1%}"


def settle_power(effect: float, spread: float, n_problems: int, level: float = 0.95) -> float:
    """Chance that a t interval on `n_problems` problem means excludes a bound that lies `effect` away (both logs).

    `spread` is the standard deviation of a problem's mean; the noncentral t of the one-sample test (Cohen 1988).
    """
    df = n_problems - 1
    edge = stats.t.ppf(0.5 + level / 2, df)
    return float(stats.nct.sf(edge, df, abs(effect) / spread * math.sqrt(n_problems)))


def _more(means: np.ndarray, sizes: np.ndarray, rule: Rule, spread: float | None) -> More:
    n, bound = len(means), math.log1p(rule.admit_above)
    pairs_a_problem = math.ceil(sizes.mean()) if n else 1
    sd = float(means.std(ddof=1)) if n > 1 else math.nan
    if not sd > 1e-12:
        least = max(rule.min_problems - n, 1)
        why = "the least that is judged"
        if spread is not None and spread > 1e-12:
            shown = _shown(spread, n + least, rule.level)
            why += (
                f"; with this study's spread of {spread:.2f} (log ratio, between problems) they would settle a lift "
                f"from {math.expm1(bound + shown):+.0%} up or {math.expm1(bound - shown):+.0%} down"
            )
        return More(least, 2 * least * pairs_a_problem, why)
    mean = float(means.mean())
    assumed = f"if the lift is {math.expm1(mean):+.1%} and problems spread by {sd:.2f} (log ratio), as seen"
    if math.log1p(rule.harm_below) <= mean <= bound:
        return More(None, None, f"{assumed}: neither an admission nor a rejection, however many runs")
    least = max(rule.min_problems, n + 1)
    if settle_power(mean - bound, sd, MOST_PROBLEMS, rule.level) < SETTLE_POWER:
        return More(None, None, f"{assumed}: not settled by {MOST_PROBLEMS} problems")
    low, high = least - 1, MOST_PROBLEMS
    while high - low > 1:
        middle = (low + high) // 2
        enough = settle_power(mean - bound, sd, middle, rule.level) >= SETTLE_POWER
        low, high = (low, middle) if enough else (middle, high)
    return More(high - n, 2 * (high - n) * pairs_a_problem, f"{assumed}, with power {SETTLE_POWER:g}")


def _shown(spread: float, n_problems: int, level: float) -> float:
    """The smallest effect (log ratio) that so many problems settle with the power asked for, by bisection."""
    low, high = 0.0, 20 * spread
    for _ in range(50):
        middle = (low + high) / 2
        if settle_power(middle, spread, n_problems, level) >= SETTLE_POWER:
            high = middle
        else:
            low = middle
    return high
