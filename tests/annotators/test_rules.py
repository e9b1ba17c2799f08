"""The plain rules: each rule fires on the case that it is written for, and names come from the rubric."""

import math

import pytest

from annotators.embedded.rules import adherence_of, cause_of, fate_of
from annotators.rubric import shipped

OTHERS = ["The tile is 128 by 64.", "Sums stay in fp32.", "Barriers cost 3 us."]


@pytest.mark.parametrize(
    ("before", "after", "fate"),
    [
        ("Swizzling removes all bank conflicts.", "Swizzling removes all bank conflicts.", "restated"),
        ("Swizzling probably removes bank conflicts.", "Swizzling removes bank conflicts.", "strengthened"),
        ("Swizzling removes bank conflicts.", "Swizzling may remove bank conflicts.", "weakened"),
        ("Swizzling removes bank conflicts.", "Swizzling removes bank conflicts, 310 us down to 268 us.", "verified"),
        ("Swizzling removes bank conflicts.", "Swizzling does not remove bank conflicts.", "refuted"),
        ("融合总能带来明显提升。", "融合可能带来明显提升。", "weakened"),
        ("Clusters of sixteen are ideal.", "Nothing to see.", "absent"),
    ],
)
def test_each_fate_has_its_case(before, after, fate):
    got = fate_of(before, [*OTHERS, after])
    assert got.fate == fate
    assert got.index == (None if fate == "absent" else 3)


def test_no_next_claims_is_absent_with_no_index():
    assert fate_of("Anything at all.", []) == ("absent", None, 0.0)


ADVICE = [
    "Keep the running maximum in registers.",
    "Load V through TMA multicast.",
    "Use three pipeline stages.",
    "Pad shared rows by eight.",
]


@pytest.mark.parametrize(("n_followed", "level"), [(4, "full"), (2, "partial"), (0, "none")])
def test_adherence_is_the_share_of_advice_with_a_trace(n_followed, level):
    got = adherence_of(ADVICE, ["// " + " ".join(ADVICE[:n_followed]), "int main() { return 0; }"])
    assert got == (level, n_followed / 4)


def test_without_advice_the_share_is_undefined():
    got = adherence_of([], ["code"])
    assert got.level == "none" and math.isnan(got.share)


BASE = {
    "adherence": "full",
    "solo_correct": True,
    "conditioned_correct": True,
    "n_submissions": 3,
    "budget": 5,
    "paired_ratio": 0.7,
    "conditioned_traces": ["tile = 128\nuse bf16 accumulate in the loop"],
}


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"paired_ratio": 0.97}, "unrelated_variation"),
        ({"adherence": "none"}, "unrelated_variation"),
        ({"adherence": "none", "conditioned_correct": False, "paired_ratio": None}, "execution_error"),
        (
            {"adherence": "none", "conditioned_correct": False, "paired_ratio": None, "n_submissions": 5},
            "budget_exhaustion",
        ),
        ({"conditioned_correct": False, "paired_ratio": None, "last_error_kind": "runtime"}, "execution_error"),
        ({"conditioned_correct": False, "paired_ratio": None, "timed_out": True}, "budget_exhaustion"),
        (
            {
                "conditioned_correct": False,
                "paired_ratio": None,
                "last_error_kind": "compile_error",
                "n_failed_submissions": 3,
                "source_dsl_advice": ["use bf16 accumulate"],
            },
            "inapplicable_transfer",
        ),
        ({"n_submissions": 5, "last_improved": True}, "budget_exhaustion"),
        (
            {"closures": ["split-K is pointless"], "solo_traces": ["split-K over 8 slices is pointless to skip"]},
            "search_truncation",
        ),
        ({"unverified": ["bf16 accumulate is fine in the loop"]}, "unverified_adoption"),
        ({}, "search_truncation"),
    ],
)
def test_each_cause_has_its_rule(change, cause):
    got = cause_of(**{**BASE, **change})
    assert got.cause == cause and got.reason


def test_quotations_are_letter_for_letter():
    claims = ["bf16 accumulate is fine in the loop"]
    got = cause_of(**BASE, unverified=claims)
    assert got.note_quotation == claims[0]
    assert got.attempt_quotation in BASE["conditioned_traces"][0]


def test_names_come_from_the_rubric_not_from_the_code():
    fates = shipped("fate")
    renamed = fates.model_copy(update={"roles": {**fates.roles, "absent": ("gone",)}})
    assert fate_of("Anything at all.", [], renamed).fate == "gone"
