"""Rubrics: the shipped ones hold what the study needs, a bad file is refused with one line."""

import pytest
import yaml

from annotators.rubric import load, parse, shipped
from runner import plain_yaml
from runner.errors import UserError


def data(**change):
    base = {
        "id": "x",
        "version": "1",
        "task": "content",
        "title": "t",
        "unit": "u",
        "labels": [{"id": "a", "is": "A", "is_not": "B"}, {"id": "b", "is": "B", "is_not": "A"}],
    }
    return yaml.safe_dump({**base, **change})


@pytest.mark.parametrize(("name", "n_labels", "n_study"), [("content", 11, 6), ("attribution", 6, 3), ("fate", 6, 0)])
def test_shipped_rubrics_have_the_studys_counts(name, n_labels, n_study):
    got = shipped(name)
    assert len(got.labels) == n_labels
    assert sum(x.study for x in got.labels) == n_study
    assert all(3 <= len(x.examples) <= 6 for x in got.labels)


def test_study_labels_are_those_marked_in_the_specification():
    marked = {x.id for name in ("content", "attribution") for x in shipped(name).labels if x.study}
    assert marked == {
        "workload_census",
        "verified_reformulation",
        "bounded_failure_diagnosis",
        "verification_recipe",
        "unverified_claim",
        "unsupported_closure",
        "search_truncation",
        "unverified_adoption",
        "execution_error",
    }


def test_groups_and_roles_are_data():
    causes = shipped("attribution")
    assert causes.groups["misled"] == ("search_truncation", "unverified_adoption")
    assert sum(len(v) for v in causes.groups.values()) == len(causes.labels)
    assert causes.scale("adherence").ids == ("full", "partial", "none")
    assert shipped("fate").role("propagated") == ("restated", "strengthened")
    assert shipped("content").answers[-1] == shipped("content").none_label == "none"
    assert shipped("content").scale("dsl_specific").ids == ("true", "false")


def test_digest_ignores_spelling_and_sees_content():
    plain = parse(data())
    assert parse("# a remark\n" + data()).sha256 == plain.sha256
    assert parse(data(rules=["one"])).sha256 != plain.sha256
    assert parse(data(version="2")).sha256 != plain.sha256


def test_a_rubric_cannot_be_changed():
    with pytest.raises(ValueError):
        shipped("fate").version = "9"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "mapping"),
        ("[1]", "mapping"),
        ("a: [", "YAML"),
        ("!!python/object/apply:os.getcwd []", "YAML"),
        ("a: &x [1]\nb: *x", "aliases"),
        ("id: a\nid: b", "twice"),
        ("[" * 50 + "]" * 50, "nested"),
        (data(labels=[]), "labels"),
        (data(none_label="a"), "none_label"),
        (data(extra=1), "extra"),
        (data(labels=[{"id": "a", "is": "A", "is_not": s} for s in "BC"]), "twice"),
        (data(roles={"r": ["nobody"]}), "nobody"),
        (data(labels=[{"id": "a b", "is": "A", "is_not": s} for s in "BC"]), "labels"),
        (b"\xff\xfe\x00", "YAML"),
    ],
)
def test_a_bad_file_is_one_line(text, word):
    with pytest.raises(UserError) as caught:
        parse(text, "mine.yaml")
    assert "mine.yaml" in str(caught.value) and word in str(caught.value) and "\n" not in str(caught.value)


def test_a_huge_file_is_refused_unread(tmp_path, monkeypatch):
    monkeypatch.setattr(plain_yaml, "MAX_BYTES", 100)
    path = tmp_path / "big.yaml"
    path.write_text("x" * 101)
    with pytest.raises(UserError, match="100 bytes"):
        load(path)


def test_a_missing_file_and_a_missing_label_say_so(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        load(tmp_path / "none.yaml")
    with pytest.raises(UserError, match="restated"):
        shipped("fate").label("nope")


def test_another_labs_labels_need_no_code(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(data())
    assert load(path).ids == ("a", "b")
