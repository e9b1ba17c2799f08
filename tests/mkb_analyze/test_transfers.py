"""Skip, failure, clip, band, tier and standing have one home, and its edges are where the measures put them."""

import math

import pytest

from mkb_analyze.transfers import Outcome, Settings, Standing, Tier, build, frame, outcome_of, standing_of, tier
from runner.errors import UserError
from runner.records import Attempt


def attempt(dsl: str, speedup: float | None = None, source: str | None = None, **fields) -> Attempt:
    verdict = (
        {"passed": True, "stage": "done", "speedup": speedup}
        if speedup
        else {"passed": False, "stage": "correctness", "reason": "wrong"}
    )
    if fields.get("state"):
        verdict = None
    arm = {"arm": "conditioned", "source_dsl": source} if source else {"arm": "solo"}
    return Attempt(**{"model": "m", "problem": 7, "dsl": dsl, "verdict": verdict, **arm, **fields})


def one(source, solo, conditioned, settings=Settings()):
    """The transfer cutedsl → tirx of three speedups (None: failed)."""
    found = build(
        [attempt("cutedsl", source), attempt("tirx", solo), attempt("tirx", conditioned, "cutedsl")], settings
    )
    return next(t for t in found if t.direction == "cutedsl2tirx")


@pytest.mark.parametrize(
    "solo, conditioned, ratio, outcome",
    [
        (1.0, 1.05, 1.05, Outcome.HELPED),
        (1.0, 1.049, 1.049, Outcome.NEUTRAL),
        (1.05, 1.0, 1 / 1.05, Outcome.HARMED),
        (1.0, 1.0, 1.0, Outcome.NEUTRAL),
        (8.0, 16.0, 1.0, Outcome.NEUTRAL),
        (0.1, 0.2, 1.0, Outcome.NEUTRAL),
        (None, None, 1.0, Outcome.NEUTRAL),
        (None, 2.0, 8.0, Outcome.HELPED),
        (2.0, None, 0.125, Outcome.HARMED),
        (None, 0.25, 1.0, Outcome.NEUTRAL),
    ],
)
def test_paired_ratio_and_outcome(solo, conditioned, ratio, outcome):
    t = one(1.0, solo, conditioned)
    assert (t.ratio, t.outcome) == (pytest.approx(ratio), outcome)


def test_unclipped_ratio_stands_beside():
    assert one(1.0, 8.0, 16.0).raw_ratio == 2.0
    assert one(1.0, None, 16.0).raw_ratio is None


@pytest.mark.parametrize("speedup, due", [(None, Tier.FAILED), (1.999, Tier.PASSED), (2.0, Tier.FAST)])
def test_tiers(speedup, due):
    assert tier(attempt("tirx", speedup), Settings()) is due


def test_standing_orders_tiers():
    order = [Tier.FAILED, Tier.PASSED, Tier.FAST]
    for i, a in enumerate(order):
        for j, b in enumerate(order):
            assert standing_of(a, b) is (Standing.ABOVE if i > j else Standing.BELOW if i < j else Standing.SAME)


def test_skipped_counts_as_its_solo_twin():
    found = build(
        [
            attempt("cutedsl", 1.0),
            attempt("tirx", 3.0),
            attempt("tirx", None, "cutedsl", state="skipped", reason="no note"),
        ]
    )
    t = next(t for t in found if t.direction == "cutedsl2tirx")
    assert (t.resolved, t.skipped, t.ratio, t.outcome) == (True, True, 1.0, Outcome.NEUTRAL)


@pytest.mark.parametrize(
    "drop, reason",
    [(0, "source solo is missing"), (1, "target solo is missing"), (2, "conditioned attempt is missing")],
)
def test_unresolved_names_what_is_missing(drop, reason):
    parts = [attempt("cutedsl", 1.0), attempt("tirx", 1.0), attempt("tirx", 1.0, "cutedsl")]
    del parts[drop]
    assert {t.reason for t in build(parts) if t.direction == "cutedsl2tirx"} == {reason}


def test_an_error_is_unresolved_never_a_failure():
    t = build(
        [
            attempt("cutedsl", 1.0),
            attempt("tirx", state="error", reason="sandbox gone"),
            attempt("tirx", 1.0, "cutedsl"),
        ]
    )
    assert next(x for x in t if x.direction == "cutedsl2tirx").reason == "target solo broke: sandbox gone"


def test_replicates_never_pair_across():
    found = build(
        [
            attempt("cutedsl", 1.0, replicate=1),
            attempt("tirx", 1.0, replicate=2),
            attempt("tirx", 1.0, "cutedsl", replicate=2),
        ]
    )
    assert not any(t.resolved for t in found)


def test_second_generation_compares_with_the_solo_and_takes_its_source_from_the_first():
    found = build(
        [
            attempt("cutedsl", 1.0),
            attempt("tirx", 1.0),
            attempt("tirx", 3.0, "cutedsl", generation=1),
            attempt("cutedsl", 0.5, "tirx", generation=2),
        ]
    )
    second = next(t for t in found if t.generation == 2)
    assert (second.source_tier, second.ratio) == (Tier.FAST, 0.5)


@pytest.mark.parametrize("fields", [{"floor": 0}, {"floor": 5}, {"band": -0.1}, {"band": math.inf}, {"tier_edge": 0}])
def test_impossible_settings_are_refused(fields):
    with pytest.raises(UserError):
        Settings(**fields)


def test_band_of_zero_still_leaves_equality_neutral():
    assert outcome_of(1.0, Settings(band=0)) is Outcome.NEUTRAL
    assert outcome_of(1.0001, Settings(band=0)) is Outcome.HELPED


def test_published_shares_are_whole_counts_of_74():
    # 16.2% and 44.6% of 74 problems, the study's lowest and highest harm rates, are 12 and 33 problems.
    assert (round(100 * 12 / 74, 1), round(100 * 33 / 74, 1)) == (16.2, 44.6)


def test_frame_is_one_row_a_transfer():
    rows = frame([one(1.0, 1.0, 2.0)])
    assert list(rows["outcome"]) == ["helped"] and rows.loc[0, "log_ratio"] == pytest.approx(math.log(2))


def test_pooled_baseline_takes_the_reference_out_of_the_ratio():
    def timed(kernel_ms, reference_ms, **fields):
        a = attempt("tirx", reference_ms / kernel_ms, **fields)
        v = a.verdict.model_copy(
            update={"kernel_ms": kernel_ms, "reference_ms": reference_ms, "device": "d", "size": "full"}
        )
        return a.model_copy(update={"verdict": v})

    found = [attempt("cutedsl", 1.0), timed(1.0, 2.0), timed(1.0, 3.0, source="cutedsl")]
    ratio = {b: next(t.ratio for t in build(found, Settings(baseline=b)) if t.resolved) for b in ("own", "pooled")}
    assert ratio == {"own": pytest.approx(1.5), "pooled": 1.0}


def test_settings_come_from_flags_then_the_manifest_then_defaults():
    manifest = {"settings": {"cap": 400, "baseline": "pooled", "colour": "red"}}
    assert Settings.of(manifest, cap=None, band=0.1) == Settings(cap=400, band=0.1, baseline="pooled")
