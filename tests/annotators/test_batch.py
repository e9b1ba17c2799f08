"""The Batch API over real HTTP: any step may be cut, results come in no order, a bad line loses one item."""

import asyncio
import json

import pytest

from annotators import batch, panel
from annotators.records import Annotation
from runner.errors import UserError
from runner.limits import Limits
from tests.annotators.support import NOTE, lines, study_of_notes
from tests.servers import scripted
from tests.servers.misbehaving import Server

QUICK = Limits(concurrency=4, n_tries=3, timeout_s=10)


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-the-test")


def annotate(study, server, **how):
    how = {"limits": QUICK, "progress": False, "batch": True, "poll_s": 0.02, **how}
    return panel.annotate(study, "openai:tiny", base_url=server.url, **how)


def state_files(study):
    return sorted((study.path / batch.FOLDER).glob("*.json")) if (study.path / batch.FOLDER).exists() else []


def right(study):
    """Whether every claim has the label that the scripted model gives its text: answers were not mixed up."""
    for record in study.read("annotations", Annotation):
        text = study.note(record.note_sha256)
        for c in record.claims:
            line = text[c.start : c.end].split("\n", 1)[0]
            assert c.label == scripted.pick(line, scripted.CONTENT)
    return True


def test_the_first_item_goes_alone_and_the_rest_in_one_batch(tmp_path):
    study = study_of_notes(tmp_path, 20)
    with Server() as server:
        summary = annotate(study, server)
        assert len(server.bodies) == 1 and server.batches.n_created == 1
        assert annotate(study, server).n_asked == 0 and server.batches.n_created == 1
    assert (summary.n_scored, summary.n_items) == (20, 20) and right(study) and state_files(study) == []
    assert summary.usage.n_requests == 20 and summary.usage.n_input_tokens > 20 * 1000


def test_a_batch_is_asked_as_the_server_takes_it(tmp_path):
    study = study_of_notes(tmp_path, 4)
    with Server(refuse=("json_schema", "max_tokens")) as server:
        annotate(study, server)
        sent = [json.loads(line)["body"] for line in server.batches.files["file-1"].splitlines()]
    assert (
        all(b["response_format"] == {"type": "json_object"} and "max_completion_tokens" in b for b in sent)
        and len(sent) == 3
    )


@pytest.mark.parametrize("step", ["_submit", "_wait", "_collect", "_find"])
def test_a_run_cut_at_any_step_goes_on_and_sends_nothing_twice(tmp_path, monkeypatch, step):
    study = study_of_notes(tmp_path, 10)
    original = getattr(batch._SeatBatch, step)

    async def cut(self, *arguments):
        raise KeyboardInterrupt

    with Server() as server:
        monkeypatch.setattr(batch._SeatBatch, step, cut)
        with pytest.raises(KeyboardInterrupt):
            annotate(study, server)
        monkeypatch.setattr(batch._SeatBatch, step, original)
        summary = annotate(study, server)
        assert server.batches.n_created == 1
    assert summary.n_scored == 9 + (summary.n_items - summary.n_skipped_present - 9) and right(study)
    assert len(lines(study, "annotations")) == 10 and state_files(study) == []


def test_cut_in_the_middle_of_recording_each_item_is_recorded_once(tmp_path, monkeypatch):
    study = study_of_notes(tmp_path, 12)
    keep, kept = batch._SeatBatch._keep, []

    async def cut(self, outcome):
        await keep(self, outcome)
        kept.append(outcome)
        if len(kept) == 5:
            raise KeyboardInterrupt

    with Server() as server:
        monkeypatch.setattr(batch._SeatBatch, "_keep", cut)
        with pytest.raises(KeyboardInterrupt):
            annotate(study, server)
        monkeypatch.setattr(batch._SeatBatch, "_keep", keep)
        assert annotate(study, server).n_skipped_present == 5 and server.batches.n_created == 1
    assert len({line["note_sha256"] for line in lines(study, "annotations")}) == 12 == len(lines(study, "annotations"))


def test_a_batch_made_by_a_lost_call_is_found_again(tmp_path):
    study = study_of_notes(tmp_path, 6)
    with Server() as server:
        server.batches.lose_after_create = True
        annotate(study, server)
        assert server.batches.n_created == 1 and right(study) and len(lines(study, "annotations")) == 6


@pytest.mark.parametrize(
    "bad", ["{broken", '"text"', '{"custom_id": "unknown"}', '{"custom_id": 3, "response": null}', ""]
)
def test_a_bad_line_loses_one_item_which_the_next_run_asks(tmp_path, bad):
    study = study_of_notes(tmp_path, 8)
    with Server() as server:
        server.batches.spoil = lambda result: [bad, *result[1:]]
        summary = annotate(study, server)
        assert summary.n_failed == {"no line came back": 1} and len(lines(study, "annotations")) == 7
        server.batches.spoil = lambda result: result
        assert annotate(study, server).n_asked == 1 and right(study)
    assert len(lines(study, "annotations")) == 8


def test_a_line_that_comes_twice_counts_once(tmp_path):
    study = study_of_notes(tmp_path, 5)
    with Server() as server:
        server.batches.spoil = lambda result: result + result
        assert annotate(study, server).n_scored == 5


def test_errors_refusals_and_wrong_answers_of_single_lines(tmp_path):
    study = study_of_notes(tmp_path, 9)
    names = {"2049": "500", "2050": "refusal", "2051": "outside", "2052": "400", "2053": "no-choices"}
    with Server(
        lambda body, n: next((t for k, t in names.items() if k in body["messages"][1]["content"]), None)
    ) as server:
        first = panel.note_digests(study)[0]
        alone = next((t for k, t in names.items() if k in study.note(first)), None)
        assert alone is None  # the first item is asked alone, and must be a good one here
        summary = annotate(study, server)
    assert summary.n_failed == {"server refused the question": 1, "broken body": 1}
    assert summary.n_unscored == {"refused": 1, "server refused the question": 1}
    assert summary.n_claims_unscored == {"label outside the rubric": 1}


def test_an_answer_without_room_is_asked_again_alone_with_more(tmp_path):
    study = study_of_notes(tmp_path, 4)
    truncated = {"2049"}

    def plan(body, n_before):
        hit = any(t in body["messages"][1]["content"] for t in truncated) and body["max_tokens"] < 800
        return "short-of-room" if hit else None

    with Server(plan) as server:
        assert annotate(study, server).n_scored == 4
        rooms = [b["max_tokens"] for b in server.bodies]
    assert len(set(rooms)) == 2 and max(rooms) == 2 * min(rooms) and right(study)


@pytest.mark.parametrize("end", ["failed", "expired", "cancelled"])
def test_a_batch_that_does_not_complete_leaves_its_items_for_the_next_run(tmp_path, end):
    study = study_of_notes(tmp_path, 5)
    with Server() as server:
        server.batches.end = end
        if end != "failed":
            server.batches.spoil = lambda result: result[:2]
        summary = annotate(study, server)
        n_came = 1 if end == "failed" else 3
        assert summary.n_failed == {"no line came back": 5 - n_came} and state_files(study) == []
        server.batches.spoil = lambda result: result
        assert annotate(study, server).n_scored == 5 - n_came and right(study)


def test_large_runs_go_in_several_files(tmp_path, monkeypatch):
    monkeypatch.setattr(batch, "MAX_LINES", 4)
    study = study_of_notes(tmp_path, 12)
    with Server() as server:
        assert annotate(study, server).n_scored == 12
        assert server.batches.n_created == 3 and right(study)


def test_a_long_note_has_several_lines_of_one_item(tmp_path):
    study = study_of_notes(tmp_path, 3, NOTE + "".join(f"- Item {k} takes 2048.{k} ms here.\n" for k in range(60)))
    with Server() as server:
        summary = annotate(study, server)
        assert len(server.batches.files["file-1"].splitlines()) == 4
    assert summary.n_scored == 3 and right(study)


def test_caps_hold_for_batches(tmp_path):
    study = study_of_notes(tmp_path, 10)
    with Server() as server:
        summary = annotate(study, server, limits=Limits(n_tries=2, max_requests=6))
        assert summary.stopped.startswith("max-requests") and summary.n_scored == 6 == summary.usage.n_requests
        assert annotate(study, server).n_scored == 4


def test_a_batch_is_cheaper_by_its_factor(tmp_path):
    study = study_of_notes(tmp_path / "s", 3)
    prices = tmp_path / "p.yaml"
    prices.write_text("tiny: {input_usd: 100, output_usd: 100, batch_factor: 0.5}\n")
    with Server() as server:
        annotate(study, server, prices=prices)
    costs = {
        round(line["usage"]["cost_usd"] / (line["usage"]["n_input_tokens"] + line["usage"]["n_output_tokens"]) * 1e6)
        for line in lines(study, "annotations")
    }
    assert costs == {50, 100}


def test_a_server_without_the_batch_api_is_one_line(tmp_path):
    study = study_of_notes(tmp_path, 3)
    with Server() as server:
        server.batches.routes = lambda router: None
        with pytest.raises(UserError, match="404"):
            asyncio.run(_bare(server, study))


async def _bare(server, study):
    """A server of the same answers that has chat completions only."""
    from aiohttp import web

    app = web.Application()
    app.router.add_post("/v1/chat/completions", server._completion)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        await asyncio.to_thread(
            panel.annotate, study, "openai:tiny", base_url=url, limits=QUICK, progress=False, batch=True
        )
    finally:
        await runner.cleanup()


def test_the_embedded_rater_in_batch_mode_just_computes(tmp_path):
    assert panel.annotate(study_of_notes(tmp_path, 2), "embedded", batch=True, progress=False).n_scored == 2
