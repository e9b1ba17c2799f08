"""The panel's vote and the matrix that agreement is taken of."""

import numpy as np
import pytest

from annotators import majority
from annotators.records import Annotation, Attribution, ClaimLabel, Rater, TransferRef
from runner.study import Study

SHA = "ab" * 32


def rater(name, repeat=1):
    return Rater(kind="model", name=name, rubric_id="content", rubric_sha256=SHA, repeat=repeat)


@pytest.mark.parametrize(
    "labels, label, doubt, tie, n",
    [
        (["a", "a", "b"], "a", 1 / 3, False, 3),
        (["a", "b"], None, 1 / 2, True, 2),
        (["a", None, None], "a", 0.0, False, 1),
        ([None, None], None, 1.0, False, 0),
        ([], None, 1.0, False, 0),
        (["c", "b", "b", "c", "a"], None, 3 / 5, True, 5),
    ],
)
def test_a_vote(labels, label, doubt, tie, n):
    vote = majority.vote(labels)
    assert (vote.label, vote.tie, vote.n_raters) == (label, tie, n) and vote.doubt == pytest.approx(doubt)
    assert vote.review == (n == 0 or doubt > 0)


@pytest.fixture
def study(tmp_path):
    study = Study.create(tmp_path)

    def note(sha, who, labels, repeat=1):
        claims = [
            ClaimLabel(
                start=10 * n,
                end=10 * n + 5,
                label=x,
                flags={"dsl_specific": x == "a"} if x else {},
                unscored=None if x else "why",
            )
            for n, x in enumerate(labels)
        ]
        return Annotation(note_sha256=sha, rater=rater(who, repeat), claims=tuple(claims))

    one, two = "11" * 32, "22" * 32
    with study.writing():
        study.append(
            "annotations",
            [
                note(one, "x", ["a", "b", "a"]),
                note(one, "y", ["a", "a", None]),
                note(two, "x", ["b"]),
                note(one, "x", ["a", "b", "b"], 2),
                note(one, "y", ["b", "a", None]),
            ],
        )
        ref = {"model": "m", "problem": 1, "source_dsl": "s", "target_dsl": "t"}
        study.append(
            "attributions",
            [
                Attribution(transfer=TransferRef(**ref), rater=rater("x"), cause="c1", adherence="full"),
                Attribution(
                    transfer=TransferRef(**ref, replicate=2), rater=rater("x"), adherence="none", cause_asked=False
                ),
            ],
        )
    return study


def test_items_by_raters_with_repeats_as_columns_and_the_last_record_counting(study):
    m = majority.agreement_matrix(study, "content", ["a", "b"])
    assert m.raters == ("x", "x#2", "y") and m.items[0].startswith("11" * 32) and len(m.items) == 4
    assert m.codes.tolist() == [[0, 0, 1], [1, 1, 0], [0, 1, -1], [1, -1, -1]]
    assert m.labels().tolist() == [["a", "a", "b"], ["b", "b", "a"], ["a", "b", None], ["b", None, None]]
    assert m.clusters == ("11" * 32,) * 3 + ("22" * 32,)
    assert [v.label for v in m.votes()] == ["a", "b", None, "b"]
    assert m.review() == [m.items[2], m.items[0], m.items[1]]


def test_chosen_raters_flags_causes_and_adherence(study):
    assert majority.agreement_matrix(study, "content", ["a", "b"], ["y"]).codes.ravel().tolist() == [1, 0, -1, -1]
    flags = majority.agreement_matrix(study, "content.dsl_specific", ["false", "true"])
    assert flags.codes[0].tolist() == [1, 1, 0]
    assert majority.agreement_matrix(study, "cause", ["c1"]).items == ("m/p01_r1_s2t",)
    assert majority.agreement_matrix(study, "adherence", ["full", "none"]).codes.tolist() == [[0], [1]]
    with pytest.raises(ValueError, match="content.FLAG"):
        majority.agreement_matrix(study, "mood", [])


def test_a_label_that_is_no_level_is_none(study):
    assert np.all(majority.agreement_matrix(study, "content", ["z"]).codes == -1)


def test_an_empty_study_has_an_empty_matrix(tmp_path):
    m = majority.agreement_matrix(Study.create(tmp_path), "fate", ["restated"])
    assert m.codes.shape == (0, 0) and m.votes() == [] and m.review() == []
