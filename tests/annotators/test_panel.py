"""The panel's verbs over HTTP: what is there is not asked again, what comes is kept, caps stop between requests."""

import json
import time

import pytest

from annotators import panel
from annotators.records import Annotation, Attribution, Fate
from annotators.rubric import shipped
from runner.errors import UserError
from runner.limits import Limits
from tests.annotators.support import FAST, lines, study_of_notes, study_of_transfers
from tests.servers import scripted
from tests.servers.misbehaving import Server


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-the-test")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def annotate(study, server, **how):
    how = {"limits": FAST, "progress": False, **how}
    return panel.annotate(study, how.pop("raters", "openai:tiny"), base_url=server.url, **how)


def test_all_notes_are_labelled_once_and_a_second_run_asks_nothing(tmp_path):
    study = study_of_notes(tmp_path, 12)
    with Server() as server:
        first, second = annotate(study, server), annotate(study, server)
        assert len(server.bodies) == 12
    assert (first.n_items, first.n_asked, first.n_scored, first.n_skipped_present) == (12, 12, 12, 0)
    assert (second.n_items, second.n_asked, second.n_skipped_present, second.usage.n_requests) == (12, 0, 12, 0)
    records = list(study.read("annotations", Annotation))
    assert sorted(r.note_sha256 for r in records) == panel.note_digests(study) and all(
        r.usage.n_input_tokens for r in records
    )


@pytest.mark.parametrize("change", ["note", "rubric", "model", "temperature", "seed", "repeats"])
def test_whatever_an_answer_depends_on_is_asked_anew_when_it_changes(tmp_path, change):
    study = study_of_notes(tmp_path, 2)
    with Server() as server:
        annotate(study, server)
        how, n_new = {}, 2
        if change == "note":
            study.update_manifest(notes={"new.md": study.put_text("notes", "- The kernel takes 3 ms now.\n")})
            n_new = 1
        elif change == "rubric":
            rubric = shipped("content")
            how = {"rubric": rubric.model_copy(update={"rules": (*rubric.rules, "One more rule.")})}
        elif change == "model":
            how = {"raters": "openai:other"}
        elif change == "repeats":
            how = {"repeats": 2, "temperature": 0.0}
        else:
            how = {change: 1 if change == "temperature" else 99}
        assert annotate(study, server, **how).n_asked == n_new


def test_what_the_server_turned_out_to_take_is_recorded_but_asks_nothing_anew(tmp_path):
    study = study_of_notes(tmp_path, 3)
    with Server(refuse=("json_schema",)) as server:
        annotate(study, server)
    with Server() as server:
        assert annotate(study, server).n_asked == 0
    found = [line["rater"]["settings"]["found"] for line in lines(study, "annotations")]
    assert found == [{"output": "json_object"}] * 3


def test_repeats_are_raters_of_their_own_seed_and_their_own_code(tmp_path):
    study = study_of_notes(tmp_path, 2)
    with Server() as server:
        summary = annotate(study, server, repeats=3)
        bodies = server.bodies
    assert summary.n_items == 6 == len(bodies) == len({json.dumps(b, sort_keys=True) for b in bodies})
    assert len({b["seed"] for b in bodies}) == 3 and {b["temperature"] for b in bodies} == {0.7}
    assert len({scripted.code_of(b["messages"][1]["content"]) for b in bodies}) == 6
    raters = [json.dumps(line["rater"], sort_keys=True) for line in lines(study, "annotations")]
    assert len(set(raters)) == 3 and sorted({line["rater"]["repeat"] for line in lines(study, "annotations")}) == [
        1,
        2,
        3,
    ]


def test_all_requests_of_a_task_share_their_prefix(tmp_path):
    with Server() as server:
        annotate(study_of_notes(tmp_path, 5), server)
    assert len({b["messages"][0]["content"] for b in server.bodies}) == 1
    assert all(len(b["messages"][0]["content"]) > 4000 for b in server.bodies)


def test_bad_answers_are_counted_by_reason_and_not_asked_again(tmp_path):
    study = study_of_notes(tmp_path, 6)

    def plan(body, n):
        return (
            "no-json"
            if "2049" in str(body)
            else "refusal"
            if "2050" in str(body)
            else "outside"
            if "2051" in str(body)
            else None
        )  # noqa: E731

    with Server(plan) as server:
        summary = annotate(study, server)
        assert annotate(study, server).n_asked == 0
    assert summary.n_scored == 4 and summary.n_unscored == {"unreadable answer": 1, "refused": 1}
    assert summary.n_claims_unscored == {"label outside the rubric": 1}
    raws = {line.get("unscored"): line["raw"] for line in lines(study, "annotations") if "raw" in line}
    assert raws["refused"] == "I cannot help with that." and any("excellent_claim" in r for r in raws.values())


def test_an_item_without_answer_is_not_recorded_and_is_asked_by_the_next_run(tmp_path):
    study = study_of_notes(tmp_path, 5)
    with Server(lambda body, n: "500" if "2050" in str(body) else None) as server:
        summary = annotate(study, server, limits=Limits(n_tries=2, concurrency=2))
    assert (
        summary.n_failed == {"no answer": 1}
        and summary.n_retries == {"500": 2}
        and len(lines(study, "annotations")) == 4
    )
    with Server() as server:
        assert annotate(study, server).n_asked == 1


@pytest.mark.parametrize("cap", [{"max_requests": 7}, {"max_tokens": 60_000}])
def test_a_cap_stops_the_run_between_requests_and_the_next_run_goes_on(tmp_path, cap):
    study = study_of_notes(tmp_path, 30)
    with Server() as server:
        stopped = annotate(study, server, limits=Limits(concurrency=3, **cap))
        n_sent = len(server.bodies)
        assert stopped.stopped and 0 < stopped.n_scored == n_sent == len(lines(study, "annotations")) < 30
        assert annotate(study, server).n_asked == 30 - n_sent
    assert stopped.usage.n_requests <= cap.get("max_requests", 99)
    assert stopped.usage.n_input_tokens + stopped.usage.n_output_tokens <= cap.get("max_tokens", 1e9)


def test_a_money_cap_holds_over_all_raters_of_a_panel(tmp_path):
    study = study_of_notes(tmp_path / "s", 40)
    prices = tmp_path / "prices.yaml"
    prices.write_text("a: {input_usd: 10, output_usd: 10}\nb: {input_usd: 10, output_usd: 10}\n")
    with Server() as server:
        summary = annotate(
            study, server, raters=["openai:a", "openai:b"], prices=prices, limits=Limits(concurrency=4, max_usd=1.0)
        )
    assert summary.stopped.startswith("max-usd 1") and 0.4 < summary.cost_usd <= 1.0
    assert sum(line["usage"]["cost_usd"] for line in lines(study, "annotations")) == pytest.approx(summary.cost_usd)


def test_a_refused_key_ends_the_run_with_one_line_and_keeps_nothing_of_the_key(tmp_path):
    study = study_of_notes(tmp_path, 3)
    with Server(key="other") as server, pytest.raises(UserError, match="refused the key"):
        annotate(study, server)
    with Server() as server:
        annotate(study, server)
    for file in study.path.rglob("*"):
        if file.is_file():
            assert b"sk-secret-of-the-test" not in file.read_bytes()


def test_a_missing_note_ends_the_run_and_keeps_what_came(tmp_path):
    study = study_of_notes(tmp_path, 9)
    lost = panel.note_digests(study)[5]
    (study.path / "notes" / f"{lost}.md").unlink()
    with Server() as server, pytest.raises(UserError, match="missing, though a record names it"):
        annotate(study, server, limits=Limits(concurrency=2))
    assert 4 <= len(lines(study, "annotations")) <= 5


def test_one_writer_at_a_time(tmp_path):
    study = study_of_notes(tmp_path, 1)
    with study.writing(), pytest.raises(UserError, match="one writer at a time"):
        panel.annotate(study, "embedded", progress=False)


def test_each_answer_is_on_disk_while_the_next_is_awaited(tmp_path):
    study, seen = study_of_notes(tmp_path, 4), []

    def plan(body, n_before):
        file = study.path / "annotations.jsonl"
        deadline = time.monotonic() + 3
        while (
            seen and (not file.exists() or file.read_bytes().count(b"\n") < len(seen)) and time.monotonic() < deadline
        ):
            time.sleep(0.005)
        seen.append(file.read_bytes().count(b"\n") if file.exists() else 0)
        return None

    with Server(plan) as server:
        annotate(study, server, limits=Limits(concurrency=1))
    assert seen == [0, 1, 2, 3]


def test_a_full_disk_ends_the_run_and_the_next_one_goes_on(tmp_path, monkeypatch):
    study, written = study_of_notes(tmp_path, 20), []
    append = type(study).append

    def full_after_three(self, table, records):
        written.extend(records)
        if len(written) > 3:
            raise OSError(28, "No space left on device")
        return append(self, table, records)

    with Server() as server:
        monkeypatch.setattr(type(study), "append", full_after_three)
        with pytest.raises(OSError, match="No space left"):
            annotate(study, server, limits=Limits(concurrency=2))
        monkeypatch.setattr(type(study), "append", append)
        assert len(server.bodies) < 20
        annotate(study, server)
    assert len(lines(study, "annotations")) == 20


# Transfers -------------------------------------------------------------------------------------------------------


def harmed(triple):
    return triple.conditioned.verdict.speedup < triple.target_solo.verdict.speedup


def test_causes_go_to_the_selected_transfers_and_adherence_to_all(tmp_path):
    study = study_of_transfers(tmp_path, 4)
    with Server() as server:
        how = {"select": harmed, "base_url": server.url, "limits": FAST, "progress": False}
        first = panel.attribute(study, "openai:tiny", **how)
        assert panel.attribute(study, "openai:tiny", **how).n_asked == 0
    records = {r.transfer.problem: r for r in study.read("attributions", Attribution)}
    assert first.n_scored == 4 and all(r.adherence for r in records.values())
    assert {p: r.cause is not None for p, r in records.items()} == {1: True, 2: False, 3: True, 4: False}


def test_a_transfer_that_turns_out_harmed_is_asked_for_its_cause(tmp_path):
    study = study_of_transfers(tmp_path, 2)
    with Server() as server:
        how = {"base_url": server.url, "limits": FAST, "progress": False}
        panel.attribute(study, "openai:tiny", select=harmed, **how)
        assert panel.attribute(study, "openai:tiny", **how).n_asked == 1
        assert panel.attribute(study, "openai:tiny", select=lambda t: False, **how).n_asked == 0


def test_a_trace_follows_the_unsupported_claims_of_the_majority(tmp_path):
    study = study_of_transfers(tmp_path, 2)
    with Server() as server:
        how = {"base_url": server.url, "limits": FAST, "progress": False}
        with pytest.raises(UserError, match="run annotate first"):
            panel.trace(study, "openai:tiny", **how)
        panel.annotate(study, "openai:tiny", **how)
        first = panel.trace(study, "openai:tiny", **how)
        assert panel.trace(study, "openai:tiny", **how).n_asked == 0
    roles = set(shipped("content").role("unsupported"))
    sources = {t.source.note_sha256 for t in panel.attributable(study)}
    due = {
        (line["note_sha256"], c["start"])
        for line in lines(study, "annotations")
        if line["note_sha256"] in sources
        for c in line["claims"]
        if c["label"] in roles
    }
    assert first.n_scored == len(due) > 0 and {(f.note_sha256, f.start) for f in study.read("fates", Fate)} == due


def test_the_embedded_rater_does_all_three_tasks_alone(tmp_path):
    study = study_of_transfers(tmp_path, 2)
    how = {"progress": False}
    assert panel.annotate(study, "embedded", repeats=3, **how).n_scored == 4  # it repeats itself: one seat
    assert panel.attribute(study, "embedded", select=harmed, **how).n_scored == 2
    spans = {
        line["note_sha256"]: [(c["start"], c["end"]) for c in line["claims"]] for line in lines(study, "annotations")
    }
    assert panel.trace(study, "embedded", unsupported=lambda sha: spans[sha], **how).n_scored > 5
    texts = {sha: study.note(sha) for sha in panel.note_digests(study)}
    for fate in study.read("fates", Fate):
        if fate.quotation:
            assert texts[fate.quotation.sha256][fate.quotation.start : fate.quotation.end] == fate.quotation.text
    for record in study.read("attributions", Attribution):
        assert record.quotations and (record.cause is None) == (not record.cause_asked)


def test_the_embedded_rater_refuses_a_rubric_that_its_model_does_not_know(tmp_path):
    study = study_of_notes(tmp_path, 1)
    rubric = shipped("content")
    other = rubric.model_copy(update={"labels": rubric.labels[1:], "roles": {}})
    with pytest.raises(UserError, match="train a model for this rubric"):
        panel.annotate(study, "embedded", rubric=other, progress=False)


def test_a_rubric_of_another_task_is_refused(tmp_path):
    with pytest.raises(UserError, match="it is for task fate, content is due"):
        panel.annotate(study_of_notes(tmp_path, 1), "embedded", rubric="fate", progress=False)
