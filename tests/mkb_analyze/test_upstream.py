"""A store of the published harness keeps its numbers to the last digit, and its broken trials keep their reason."""

import json

import pytest

from mkb_analyze import ladder, transfers
from mkb_analyze.imports.upstream import import_upstream
from runner.errors import UserError
from runner.records import State
from runner.study import Study
from tests.mkb_analyze import upstream_store as store


@pytest.fixture(params=range(3))
def imported(request, tmp_path):
    written = store.write(tmp_path / "results" / "some-model", request.param)
    import_upstream(tmp_path / "results" / "some-model", tmp_path / "study")
    return written, transfers.build(Study(tmp_path / "study").attempts())


def test_figures_equal_to_the_last_digit(imported):
    written, found = imported
    rows = store.resolved(written)
    block = ladder.overall(found)
    assert block["n_resolved"] == len(rows)
    for name in ("base", "skill", "lift"):
        assert block[name] == store.contrast(rows)[name]
    assert block["with_skill"] == store.contrast([r for r in rows if not r[4]["skipped"]])
    for verdict, passed in (("passed", True), ("failed", False)):
        chosen = [r for r in rows if (r[2]["rewards"].get("passed", 0.0) >= 1.0) is passed]
        assert block["by_source_verdict"][verdict] == store.contrast(chosen)


@pytest.mark.parametrize("direction", ["cutedsl2tirx", "tirx2cutedsl"])
def test_by_direction(imported, direction):
    written, found = imported
    mine = ladder.overall(found)["by_direction"][direction]
    assert {k: mine[k] for k in ("base", "skill", "lift")} == store.contrast(
        [r for r in store.resolved(written) if r[1] == direction]
    )


def test_by_category(imported):
    written, found = imported
    for family, block in ladder.overall(found)["by_category"].items():
        rows = [r for r in store.resolved(written) if store.CATEGORY[r[0]] == family]
        assert {k: block[k] for k in ("base", "skill", "lift")} == store.contrast(rows)


@pytest.fixture
def whole(tmp_path):
    store.write(tmp_path / "m", 1)
    return tmp_path


def first_trial(root):
    return sorted((root / "m" / "problems").glob("*/abc123_*"))[0]


@pytest.mark.parametrize(
    "damage, reason",
    [
        (lambda t: (t / "record.json").unlink(), "record.json missing"),
        (lambda t: (t / "record.json").write_text("{"), "record.json unreadable"),
        (
            lambda t: (t / "record.json").write_text(
                json.dumps({"rewards": {"passed": 1.0}, "timed_out": False, "error": None})
            ),
            "speedup_vs_eager is None",
        ),
        (lambda t: (t / "record.json").write_text(json.dumps({"timed_out": False, "error": None})), "rewards missing"),
    ],
)
def test_half_missing_trials_become_records_with_their_reason(whole, damage, reason):
    damage(first_trial(whole))
    import_upstream(whole / "m", whole / "s")
    errors = [a.reason for a in Study(whole / "s").attempts() if a.state is State.ERROR]
    assert any(reason in r for r in errors)


def test_second_import_adds_nothing(whole):
    first = import_upstream(whole / "m", whole / "s")
    before = (whole / "s" / "attempts.jsonl").read_bytes()
    again = import_upstream(whole / "m", whole / "s")
    assert (again.n_new, again.n_present) == (0, first.n_new)
    assert (whole / "s" / "attempts.jsonl").read_bytes() == before


def test_what_is_no_trial_is_listed(whole):
    (whole / "m" / "problems" / "03_gqa_decode" / "abc123_p03_r1_other_arm").mkdir()
    done = import_upstream(whole / "m", whole / "s")
    assert done.left_out == ("03_gqa_decode/abc123_p03_r1_other_arm: not a trial of this store",)


def test_what_is_no_store_is_refused(tmp_path):
    with pytest.raises(UserError, match="no store of the published harness"):
        import_upstream(tmp_path, tmp_path / "s")
