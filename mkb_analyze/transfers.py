"""Attempts to transfers: the one home of skip, failure, clip, band, tier and relative standing."""

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import pandas as pd

from annotators.records import TransferRef
from runner import pairing
from runner.errors import UserError
from runner.records import Attempt


class Tier(StrEnum):
    """One attempt's outcome: `failed`, `passed` (below the tier edge) or `fast`."""

    FAILED = "failed"
    PASSED = "passed"
    FAST = "fast"


class Outcome(StrEnum):
    HELPED = "helped"
    NEUTRAL = "neutral"
    HARMED = "harmed"


class Standing(StrEnum):
    """The source solo's tier relative to the target solo's."""

    ABOVE = "above"
    SAME = "same"
    BELOW = "below"


@dataclass(frozen=True)
class Settings:
    """The named settings behind every outcome: speedups are clipped to [floor, cap], a failure counts as `floor`;
    a paired ratio within 1 + band either way is neutral; `fast` begins at `tier_edge`.

    `baseline` says which reference time a speedup is taken against: `own`, the one of the same evaluation (as the
    published harness), or `pooled`, the median over all verdicts of the problem on one device and size, where the
    reference's own time varies from evaluation to evaluation.
    """

    floor: float = 0.25
    cap: float = 4.0
    band: float = 0.05
    tier_edge: float = 2.0
    baseline: str = "own"

    def __post_init__(self):
        for name in ("floor", "cap", "band", "tier_edge"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise UserError(f"{name} {str(value)[:60]!r}: a number is due")
        if not 0 < self.floor < self.cap < math.inf:
            raise UserError(f"floor {self.floor}, cap {self.cap}: 0 < floor < cap is due; the defaults are 0.25 and 4")
        if not 0 <= self.band < math.inf:
            raise UserError(f"band {self.band}: a share of at least 0 is due; the default is 0.05")
        if self.baseline not in ("own", "pooled"):
            raise UserError(f"baseline {self.baseline}: own or pooled is due; the default is own")
        if not 0 < self.tier_edge < math.inf:
            raise UserError(f"tier edge {self.tier_edge}: a speedup above 0 is due; the default is 2")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, manifest: dict[str, Any], **given: Any) -> "Settings":
        """The defaults, then what the study's manifest says under `settings`, then what was given (None: not given)."""
        own = manifest.get("settings") or {}
        if not isinstance(own, dict):
            raise UserError(
                f"study.json: settings {str(own)[:60]!r} is no object; name floor, cap, band … in it or drop it"
            )
        known = {k: v for k, v in own.items() if k in cls.__dataclass_fields__}
        return cls(**{**known, **{k: v for k, v in given.items() if v is not None}})


@dataclass(frozen=True)
class Transfer:
    """One transfer; `ratio` is the paired ratio of clipped speedups, None while unresolved (`reason` says why).

    `raw_ratio` is the unclipped ratio, None where either attempt failed. A skipped transfer has ratio 1.
    """

    model: str
    problem: int
    problem_name: str | None
    family: str | None
    source_dsl: str
    target_dsl: str
    replicate: int
    generation: int
    source: Attempt | None
    target_solo: Attempt | None
    conditioned: Attempt | None
    skipped: bool
    reason: str | None
    ratio: float | None = None
    raw_ratio: float | None = None
    outcome: Outcome | None = None
    standing: Standing | None = None
    source_tier: Tier | None = None
    solo_tier: Tier | None = None
    conditioned_tier: Tier | None = None

    @property
    def resolved(self) -> bool:
        return self.ratio is not None

    @property
    def direction(self) -> str:
        return f"{self.source_dsl}2{self.target_dsl}"

    @property
    def log_ratio(self) -> float | None:
        return None if self.ratio is None else math.log(self.ratio)

    @property
    def key(self) -> str:
        return self.ref.key

    @property
    def ref(self) -> TransferRef:
        """What labels of this transfer name: the cell and the digests of all that a rater sees."""
        conditioned, solo = self.conditioned, self.target_solo
        return TransferRef(
            model=self.model,
            problem=self.problem,
            source_dsl=self.source_dsl,
            target_dsl=self.target_dsl,
            replicate=self.replicate,
            generation=self.generation,
            source_note_sha256=self.source_note_sha256,
            solo_kernel_sha256=solo.kernel_sha256 if solo else None,
            conditioned_kernel_sha256=conditioned.kernel_sha256 if conditioned else None,
            own_note_sha256=conditioned.note_sha256 if conditioned else None,
        )

    @property
    def source_note_sha256(self) -> str | None:
        """The note that was given: as the conditioned attempt recorded it, else the one the source left."""
        if self.conditioned and self.conditioned.source_note_sha256:
            return self.conditioned.source_note_sha256
        return self.source.note_sha256 if self.source else None

    @property
    def own_note_sha256(self) -> str | None:
        return self.conditioned.note_sha256 if self.conditioned else None


def key_of(triple: pairing.Triple) -> str:
    """The name of a triple's transfer, as `Transfer.key` has it."""
    return TransferRef(
        model=triple.model,
        problem=triple.problem,
        source_dsl=triple.source_dsl,
        target_dsl=triple.target_dsl,
        replicate=triple.replicate,
        generation=triple.generation,
    ).key


def tier(attempt: Attempt, settings: Settings) -> Tier:
    """failed, passed (speedup < tier edge) or fast."""
    if not (attempt.verdict and attempt.verdict.passed):
        return Tier.FAILED
    return Tier.FAST if attempt.verdict.speedup >= settings.tier_edge else Tier.PASSED


def effective_speedup(attempt: Attempt, settings: Settings) -> float:
    """clip(speedup, floor, cap); a failed attempt counts as floor."""
    if not (attempt.verdict and attempt.verdict.passed):
        return settings.floor
    return min(max(attempt.verdict.speedup, settings.floor), settings.cap)


def outcome_of(ratio: float, settings: Settings) -> Outcome:
    """helped at r ≥ 1 + band, harmed at r ≤ 1 / (1 + band), else neutral.

    With a band of 0 a ratio of exactly 1 is neutral, since nothing moved.
    """
    # The edges are inclusive; a ratio that is on the edge but for the last bits of a division is on the edge.
    if ratio != 1 and ratio >= (1 + settings.band) * (1 - 1e-12):
        return Outcome.HELPED
    if ratio != 1 and ratio <= 1 / (1 + settings.band) * (1 + 1e-12):
        return Outcome.HARMED
    return Outcome.NEUTRAL


_RANK = {Tier.FAILED: 0, Tier.PASSED: 1, Tier.FAST: 2}


def standing_of(source: Tier, solo: Tier) -> Standing:
    """The source's tier above, same as or below the target solo's."""
    step = _RANK[source] - _RANK[solo]
    return Standing.ABOVE if step > 0 else Standing.BELOW if step < 0 else Standing.SAME


def build(attempts: Iterable[Attempt], settings: Settings = Settings()) -> list[Transfer]:
    """All transfers of a study, resolved or not, ordered by model, problem, direction and replicate."""
    (found,) = sweep(attempts, [settings])
    return found


def sweep(attempts: Iterable[Attempt], several: Sequence[Settings]) -> Iterator[list[Transfer]]:
    """The transfers under each of several settings (of one baseline), paired once."""
    if {s.baseline for s in several} == {"pooled"}:
        attempts = pooled_baseline(list(attempts))
    unjudged = [_unjudged(triple) for triple in pairing.transfers(attempts)]
    for settings in several:
        yield [_judge(t, settings) for t in unjudged]


def references(attempts: Sequence[Attempt]) -> dict[tuple, list[float]]:
    """Every reference time (ms) measured in a study's verdicts, by problem, device and size."""
    found: dict[tuple, list[float]] = {}
    for a in attempts:
        for v in (a.verdict, *(s.verdict for s in a.submissions)):
            if v is not None and v.reference_ms is not None:
                found.setdefault((a.problem, v.device, v.size), []).append(v.reference_ms)
    return found


def pooled_baseline(attempts: Sequence[Attempt]) -> list[Attempt]:
    """The attempts with final speedups taken against the problem's median reference on that device and size."""
    medians = {key: statistics.median(times) for key, times in references(attempts).items()}
    out = []
    for a in attempts:
        v = a.verdict
        if v is not None and v.passed and v.kernel_ms is not None and v.reference_ms is not None:
            reference = medians[(a.problem, v.device, v.size)]
            v = v.model_copy(update={"reference_ms": reference, "speedup": reference / v.kernel_ms})
            a = a.model_copy(update={"verdict": v})
        out.append(a)
    return out


def _unjudged(triple: pairing.Triple) -> Transfer:
    return Transfer(
        model=triple.model,
        problem=triple.problem,
        problem_name=triple.problem_name,
        family=triple.family,
        source_dsl=triple.source_dsl,
        target_dsl=triple.target_dsl,
        replicate=triple.replicate,
        generation=triple.generation,
        source=triple.source,
        target_solo=triple.target_solo,
        conditioned=triple.conditioned,
        skipped=triple.skipped,
        reason=triple.reason,
    )


def _judge(base: Transfer, settings: Settings) -> Transfer:
    if base.reason is not None:
        return base
    source, solo = tier(base.source, settings), tier(base.target_solo, settings)
    final = base.target_solo if base.skipped else base.conditioned
    ratio = effective_speedup(final, settings) / effective_speedup(base.target_solo, settings)
    both = final.verdict.passed and base.target_solo.verdict.passed
    raw = final.verdict.speedup / base.target_solo.verdict.speedup if both else None
    conditioned = tier(final, settings)
    neutral = base.skipped or (conditioned is Tier.FAILED and solo is Tier.FAILED)
    return Transfer(
        **{
            **vars(base),
            "ratio": ratio,
            "raw_ratio": raw,
            "outcome": Outcome.NEUTRAL if neutral else outcome_of(ratio, settings),
            "standing": standing_of(source, solo),
            "source_tier": source,
            "solo_tier": solo,
            "conditioned_tier": conditioned,
        }
    )


def frame(transfers: Iterable[Transfer]) -> pd.DataFrame:
    """One tidy row a transfer: names, tiers, speedups, ratio, outcome, standing, digests."""
    rows: list[dict[str, Any]] = []
    for t in transfers:
        rows.append(
            {
                "transfer": t.key,
                "model": t.model,
                "problem": t.problem,
                "problem_name": t.problem_name,
                "family": t.family,
                "source_dsl": t.source_dsl,
                "target_dsl": t.target_dsl,
                "direction": t.direction,
                "replicate": t.replicate,
                "generation": t.generation,
                "resolved": t.resolved,
                "skipped": t.skipped,
                "reason": t.reason,
                "source_tier": t.source_tier,
                "solo_tier": t.solo_tier,
                "conditioned_tier": t.conditioned_tier,
                "standing": t.standing,
                "source_speedup": _speedup(t.source),
                "solo_speedup": _speedup(t.target_solo),
                "conditioned_speedup": _speedup(t.conditioned),
                "ratio": t.ratio,
                "raw_ratio": t.raw_ratio,
                "log_ratio": t.log_ratio,
                "outcome": t.outcome,
                "source_note_sha256": t.source_note_sha256,
                "own_note_sha256": t.own_note_sha256,
            }
        )
    columns = [
        "transfer",
        "model",
        "problem",
        "problem_name",
        "family",
        "source_dsl",
        "target_dsl",
        "direction",
        "replicate",
        "generation",
        "resolved",
        "skipped",
        "reason",
        "source_tier",
        "solo_tier",
        "conditioned_tier",
        "standing",
        "source_speedup",
        "solo_speedup",
        "conditioned_speedup",
        "ratio",
        "raw_ratio",
        "log_ratio",
        "outcome",
        "source_note_sha256",
        "own_note_sha256",
    ]
    return pd.DataFrame(rows, columns=columns)


def _speedup(attempt: Attempt | None) -> float | None:
    return attempt.verdict.speedup if attempt and attempt.verdict else None
