"""What one attempt leaves behind: frozen records in which an impossible state cannot be written down."""

import math
import re
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

SCHEMA_VERSION = 1
_SHA256 = re.compile(r"[0-9a-f]{64}")


def _sha256(value: str) -> str:
    if not _SHA256.fullmatch(value):
        raise ValueError(f"{value!r} is not a SHA-256 in 64 lower-case hex digits")
    return value


def _utc(value: str) -> str:
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)", value):
        raise ValueError(f"{value!r} is not a UTC time in ISO 8601")
    return value


Sha256 = Annotated[str, AfterValidator(_sha256)]
UtcTime = Annotated[str, AfterValidator(_utc)]
Ms = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]


class Record(BaseModel):
    """Base of every line of a study: frozen, and fields it does not know are kept as they are."""

    model_config = ConfigDict(frozen=True, extra="allow")

    def line(self) -> dict[str, Any]:
        """The record as plain JSON values; fields that were never measured are left out."""
        return self.model_dump(mode="json", exclude_none=True)


class Arm(StrEnum):
    SOLO = "solo"
    CONDITIONED = "conditioned"


class Stage(StrEnum):
    """How far an evaluation came; `DONE` is the only one with a time."""

    LOAD = "load"
    COMPILE = "compile"
    CORRECTNESS = "correctness"
    TIMING = "timing"
    GUARD = "guard"
    DONE = "done"


class State(StrEnum):
    """What became of an attempt: it ended with or without a kernel, was never due, or broke for outside reasons."""

    FINISHED = "finished"
    SKIPPED = "skipped"
    ERROR = "error"


class DeviceKernels(Record):
    """Kernels seen on the device in one call: how many, whose, for how long (milliseconds)."""

    n_required: Count = 0
    n_other_dsl: Count = 0
    n_array_library: Count = 0
    required_ms: float | None = None
    total_ms: float | None = None
    names: tuple[str, ...] = ()


class Verdict(Record):
    """One grading of one kernel by the contract; times are milliseconds, speedup is reference ÷ kernel, uncapped."""

    passed: bool
    stage: Stage
    reason: str | None = None
    kernel_ms: Ms | None = None
    reference_ms: Ms | None = None
    speedup: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    kernel_ms_samples: tuple[Ms, ...] = ()
    error_ratio: float | None = None
    n_draws_passed: Count | None = None
    kernels: DeviceKernels | None = None
    findings: tuple[str, ...] = ()
    device: str | None = None
    size: str | None = None
    contract_sha256: Sha256 | None = None
    stderr_tail: str | None = None
    eval_s: Seconds | None = None
    at: UtcTime | None = None

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.passed:
            if self.stage is not Stage.DONE:
                raise ValueError(f"stage {self.stage.value!r}: a passed verdict has stage 'done'")
            if self.speedup is None:
                raise ValueError("speedup missing: a passed verdict has a speedup")
            if self.reason is not None:
                raise ValueError("reason given: a passed verdict has no reason for failing")
            if self.kernel_ms is not None and self.reference_ms is not None:
                ratio = self.reference_ms / self.kernel_ms
                if not math.isclose(ratio, self.speedup, rel_tol=5e-3):
                    raise ValueError(f"speedup {self.speedup} is not reference ÷ kernel = {ratio:.6g}")
        else:
            if self.speedup is not None:
                raise ValueError("speedup given: a failed verdict has none")
            if self.stage is Stage.DONE:
                raise ValueError("stage 'done': a failed verdict names the stage where it failed")
            if not self.reason:
                raise ValueError("reason missing: a failed verdict says why")
        return self


class Submission(Record):
    """A kernel sent for feedback `at_s` seconds into the attempt, with the verdict it was shown."""

    index: Annotated[int, Field(ge=1)]
    at_s: Seconds | None = None
    counted: bool = True
    kernel_sha256: Sha256 | None = None
    verdict: Verdict | None = None
    remark: str | None = None


class Usage(Record):
    """Tokens, money and time that an attempt or a label took; what was not measured is None, never 0."""

    n_requests: Count | None = None
    n_input_tokens: Count | None = None
    n_cached_tokens: Count | None = None
    n_output_tokens: Count | None = None
    cost_usd: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    agent_s: Seconds | None = None


class Attempt(Record):
    """One finished agent run on one variant (problem × DSL) in one arm.

    A conditioned attempt names the DSL its note came from (`source_dsl`) and the note's digest; a solo attempt has
    neither. `note_sha256` is the note that this attempt left behind; `distilled_note_sha256` are the notes that one
    standard request each made of it. An A/A twin (`aa` = 1, 2 …) repeats an attempt of its cell with nothing changed;
    an ablation (`ablation` = its name) is a conditioned attempt that was given an edited note. Neither is ever paired
    as an ordinary attempt.
    """

    model: Annotated[str, Field(min_length=1, max_length=300)]
    problem: Annotated[int, Field(ge=0)]
    problem_name: str | None = None
    family: str | None = None
    dsl: Annotated[str, Field(pattern=r"^[a-z0-9_]{1,40}$")]
    arm: Arm
    replicate: Annotated[int, Field(ge=1)] = 1
    generation: Count = 0
    source_dsl: Annotated[str, Field(pattern=r"^[a-z0-9_]{1,40}$")] | None = None
    source_note_sha256: Sha256 | None = None
    aa: Annotated[int, Field(ge=1)] | None = None
    ablation: Annotated[str, Field(pattern=r"^[a-z0-9]{1,40}$")] | None = None
    state: State = State.FINISHED
    reason: str | None = None
    verdict: Verdict | None = None
    submissions: tuple[Submission, ...] = ()
    kernel_sha256: Sha256 | None = None
    note_sha256: Sha256 | None = None
    distilled_note_sha256: tuple[Sha256, ...] | None = None
    transcript_sha256: Sha256 | None = None
    problem_sha256: Sha256 | None = None
    prompt_sha256: dict[str, Sha256] = Field(default_factory=dict)
    usage: Usage | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    device: str | None = None
    timed_out: bool = False
    at: UtcTime | None = None

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.arm is Arm.SOLO:
            if self.source_dsl is not None or self.source_note_sha256 is not None:
                raise ValueError("a solo attempt has no source DSL and was given no note")
            if self.ablation is not None:
                raise ValueError("only a conditioned attempt has a note that an ablation could edit")
        else:
            if self.source_dsl is None:
                raise ValueError("a conditioned attempt names its source_dsl")
            if self.source_dsl == self.dsl:
                raise ValueError(f"source_dsl {self.source_dsl!r} is the target's own DSL")
        if self.state is State.SKIPPED:
            if self.verdict is not None or self.submissions:
                raise ValueError("a skipped attempt never ran: it has no verdict and no submissions")
            if self.arm is Arm.SOLO:
                raise ValueError("only a conditioned attempt can be skipped (its source left no note)")
        if self.state is not State.FINISHED and not self.reason:
            raise ValueError(f"state {self.state.value!r} needs its reason")
        if [s.index for s in self.submissions] != sorted({s.index for s in self.submissions}):
            raise ValueError("submissions are numbered upwards, each number once")
        return self

    @property
    def direction(self) -> str | None:
        """`source2target` for a conditioned attempt, None for a solo one."""
        return f"{self.source_dsl}2{self.dsl}" if self.source_dsl else None

    @property
    def key(self) -> str:
        """The attempt's name within a study: model, problem, replicate, arm and DSL.

        Generations past the first, ablations and A/A twins have their own tails.
        """
        return key_of(self)

    @property
    def ordinary(self) -> bool:
        """Whether this attempt may stand in a transfer: no A/A twin and no ablation."""
        return self.aa is None and self.ablation is None


def key_of(who: Any) -> str:
    """The key of an attempt, or of whatever else has its coordinates as attributes (an order)."""
    arm = f"solo_{who.dsl}" if who.arm is Arm.SOLO else f"{who.source_dsl}2{who.dsl}_note"
    tail = f"_g{who.generation}" if who.generation > 1 else ""
    tail += f"_x{who.ablation}" if who.ablation else ""
    tail += f"_aa{who.aa}" if who.aa else ""
    return f"{who.model}/p{who.problem:02d}_r{who.replicate}_{arm}{tail}"
