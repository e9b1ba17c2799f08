"""The experiment over real HTTP with a scripted model: order of arms, what each is told, what a repeated call does."""

import json

import pytest

from runner import digests, experiment
from runner.agent import Settings
from runner.limits import Limits
from runner.plan import Due
from runner.records import Arm, Stage, State, Verdict
from runner.study import Study
from tests.runner.experiment_support import Grader, asked, go
from tests.servers import agent as scripted_agent
from tests.servers.misbehaving import Server

pytest.importorskip("numba", reason="pip install numba")
pytest.importorskip("tvm", reason="pip install apache-tvm")


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789abcdef")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def by_key(path):
    return {a.key: a for a in Study(path).attempts()}


SOLO, OTHER = "tiny/p00_r1_solo_numba", "tiny/p00_r1_solo_tirx"
GIVEN = {"tiny/p00_r1_tirx2numba_note": (OTHER, SOLO), "tiny/p00_r1_numba2tirx_note": (SOLO, OTHER)}


def test_both_arms_are_told_the_same_but_for_the_note_and_the_records_show_it(tmp_path):
    with Server() as server:
        go(asked(tmp_path / "s", server))
    found = by_key(tmp_path / "s")
    assert set(found) == {SOLO, OTHER, *GIVEN}
    for key, (source, target) in GIVEN.items():
        conditioned, solo = found[key], found[target]
        assert conditioned.source_note_sha256 == found[source].note_sha256
        for role in ("system", "tools", "user_without_note"):
            assert conditioned.prompt_sha256[role] == solo.prompt_sha256[role], role
        assert solo.prompt_sha256["user"] == solo.prompt_sha256["user_without_note"]
        assert conditioned.prompt_sha256["user"] != conditioned.prompt_sha256["user_without_note"]


def test_nothing_of_the_target_solo_and_no_kernel_of_the_source_reaches_a_conditioned_request(tmp_path):
    """What was sent, as the server received it."""
    with Server() as server:
        go(asked(tmp_path / "s", server))
    study, found, n_checked = Study(tmp_path / "s"), by_key(tmp_path / "s"), 0
    for key, (source, target) in GIVEN.items():
        note = study.note(found[source].note_sha256)
        mine = [b for b in server.bodies if note.splitlines()[2] in scripted_agent.told(b) and not_distilled(b)]
        dsl = found[key].dsl
        mine = [b for b in mine if f"DSL: {dsl}." in scripted_agent.told(b)]
        assert mine, key
        own = {scripted_agent.mark(mine[0])}
        first = mine[0]["messages"]
        solo_first = next(
            b["messages"]
            for b in server.bodies
            if f"DSL: {dsl}." in scripted_agent.told(b) and "A note was left" not in scripted_agent.told(b)
        )
        assert first[0] == solo_first[0] and mine[0]["tools"]
        assert first[1]["content"].startswith(solo_first[1]["content"]) and note in first[1]["content"]
        for attempt in (found[source], found[target]):
            kernels = {study.kernel(s.kernel_sha256) for s in attempt.submissions}
            transcript = (study.path / "transcripts" / f"{attempt.transcript_sha256}.jsonl").read_text()
            words = {w.strip('\\".,') for w in transcript.split() if scripted_agent.SECRET in w}
            leaked = [w for w in words if w.split("-note")[0] not in own and w not in note]
            for body in mine:
                sent = json.dumps(body)
                assert not any(k in m["content"] for k in kernels for m in body["messages"])
                for word in leaked:
                    bare = word[word.index(scripted_agent.SECRET) :][: len(scripted_agent.SECRET) + 10]
                    # The source's own mark stands in its note, and there alone.
                    assert sent.count(bare) == note.count(bare), word
                n_checked += 1
    assert n_checked >= 10


def not_distilled(body):
    return not scripted_agent.distils(body)


def test_a_repeated_call_asks_nothing_and_writes_nothing(tmp_path):
    with Server() as server:
        go(asked(tmp_path / "s", server))
        before, n_asked = (tmp_path / "s" / "attempts.jsonl").read_bytes(), len(server.bodies)
        found, summary = go(asked(tmp_path / "s", server))
    assert len(server.bodies) == n_asked and not summary.recorded and not found.due
    assert (tmp_path / "s" / "attempts.jsonl").read_bytes() == before
    assert not list((tmp_path / "s" / "open").iterdir())


def test_every_transcript_is_there_by_its_digest_and_holds_no_key(tmp_path):
    with Server() as server:
        go(asked(tmp_path / "s", server))
    for attempt in by_key(tmp_path / "s").values():
        file = tmp_path / "s" / "transcripts" / f"{attempt.transcript_sha256}.jsonl"
        assert digests.of_file(file) == attempt.transcript_sha256
        assert "sk-test-0123456789abcdef" not in file.read_text()
        assert [json.loads(x)["event"] for x in file.read_text().splitlines()][:2] == ["head", "reply"]


def test_the_note_is_distilled_at_a_low_temperature_where_the_agent_wrote_none(tmp_path):
    with Server(writer=scripted_agent.Writer(notes=False)) as server:
        go(asked(tmp_path / "s", server))
    found, study = by_key(tmp_path / "s"), Study(tmp_path / "s")
    sent = [b for b in server.bodies if scripted_agent.distils(b)]
    assert len(sent) == 4 and all(b["temperature"] <= 0.3 and "tools" not in b for b in sent)
    for attempt in found.values():
        assert attempt.note_by == "distillation" and attempt.distilled_note_sha256 == (attempt.note_sha256,)
        assert study.note(attempt.note_sha256).startswith("# Distilled")


def test_a_failed_attempt_leaves_a_note_too(tmp_path):
    with Server(writer=scripted_agent.Writer(notes=False, submits=False)) as server:
        go(asked(tmp_path / "s", server))
    for attempt in by_key(tmp_path / "s").values():
        assert not attempt.verdict.passed and attempt.verdict.reason == "no kernel was ever submitted"
        assert attempt.note_sha256 and attempt.state is State.FINISHED


def test_k_distillations_are_kept_beside_the_agents_own_note(tmp_path):
    with Server() as server:
        go(asked(tmp_path / "s", server, settings=Settings(n_distillations=3)))
    for attempt in by_key(tmp_path / "s").values():
        assert len(set(attempt.distilled_note_sha256)) == 3 and attempt.note_by == "agent"
        assert attempt.note_sha256 not in attempt.distilled_note_sha256
        for sha in attempt.distilled_note_sha256:
            assert Study(tmp_path / "s").note(sha)


def test_a_server_without_tools_gets_one_json_action_a_reply(tmp_path):
    with Server(refuse=("tools",)) as server:
        go(asked(tmp_path / "s", server))
    for attempt in by_key(tmp_path / "s").values():
        assert attempt.verdict.passed and attempt.calls_by == "text" and attempt.note_by == "agent"
    assert sum("tools" in b for b in server.bodies) == 1


def test_one_broken_attempt_is_an_error_and_the_next_run_goes_on_where_it_broke(tmp_path):
    broken = {"on": True}

    def trouble(body, n):
        in_tirx = "DSL: tirx." in str(body["messages"][1]["content"]) and len(body["messages"]) > 4
        return "503" if broken["on"] and in_tirx and "A note was left" not in str(body["messages"][1]) else None

    with Server(trouble) as server:
        found, summary = go(asked(tmp_path / "s", server))
        first = by_key(tmp_path / "s")
        assert first[OTHER].state is State.ERROR and "503" in first[OTHER].reason
        assert first[SOLO].verdict.passed and first["tiny/p00_r1_numba2tirx_note"].verdict.passed
        assert "broke" in summary.left["tiny/p00_r1_tirx2numba_note"]
        broken["on"], n_before = False, len(server.bodies)
        go(asked(tmp_path / "s", server))
        resumed = [b for b in server.bodies[n_before:] if len(b["messages"]) == 2 and not_distilled(b)]
    assert all(a.state is State.FINISHED for a in by_key(tmp_path / "s").values()) and len(by_key(tmp_path / "s")) == 4
    # Only the conditioned attempt that had to wait begins anew.
    assert len(resumed) == 1 and "DSL: numba." in scripted_agent.told(resumed[0])


def test_a_submission_that_never_reached_evaluation_is_given_back(tmp_path):
    def trouble(n, kernel):
        if n == 1:
            return Verdict(passed=False, stage=Stage.LOAD, reason="infrastructure fault: x", infrastructure=True)
        return None

    with Server(writer=scripted_agent.Writer(wrong_first=False)) as server:
        go(asked(tmp_path / "s", server, concurrency=1), Grader(trouble))
        told = [m["content"] for b in server.bodies for m in b["messages"] if m["content"].startswith("Submission 1\n")]
    assert "never reached evaluation" in told[0] and "10 submissions left" in told[0]
    assert sum(not s.counted for a in by_key(tmp_path / "s").values() for s in a.submissions) == 1


def test_every_answer_shows_the_clock_and_the_submissions_left(tmp_path):
    with Server() as server:
        go(asked(tmp_path / "s", server, settings=Settings(max_submissions=2)))
    answers = [m["content"] for b in server.bodies for m in b["messages"] if m["role"] == "tool"]
    assert len(answers) > 20 and all("of 40 minutes used" in a and "submissions left]" in a for a in answers)
    assert {a.rsplit("; ", 1)[1] for a in answers} == {f"{n} submissions left]" for n in (0, 1, 2)}


def test_a_cap_stops_cleanly_and_the_next_run_repeats_no_request(tmp_path):
    with Server() as server:
        _, summary = go(asked(tmp_path / "s", server, limits=Limits(max_requests=9), concurrency=1))
        assert "max-requests 9" in summary.stopped and len(server.bodies) == 9
        go(asked(tmp_path / "s", server, concurrency=1))
        sent = [json.dumps(b["messages"]) + str(b.get("seed")) for b in server.bodies]
    assert len(sent) == len(set(sent)) and len(by_key(tmp_path / "s")) == 4


def test_dry_run_names_what_changed_and_redo_stale_runs_it_and_what_rests_on_it(tmp_path, monkeypatch):
    with Server() as server:
        what = asked(tmp_path / "s", server)
        go(what)
        monkeypatch.setattr("runner.contract.MAX_EVAL_S", 601.0)
        agent = experiment.agent_of(what, "cpu")
        states = {o.key: o for o in experiment.planned(what, agent).orders}
        assert all(o.state is Due.STALE and "contract" in o.why for o in states.values())
        found, summary = go(what)
        assert not summary.recorded and len(summary.left) == 4
        found, summary = go(asked(tmp_path / "s", server, redo_stale=True))
        assert len(summary.recorded) == 4
        assert all(o.state is Due.DONE for o in experiment.planned(what, experiment.agent_of(what, "cpu")).orders)


def test_twins_are_told_apart_and_no_transfer_knows_them(tmp_path):
    from runner import pairing

    with Server() as server:
        go(asked(tmp_path / "s", server, n_aa=3))
    found = by_key(tmp_path / "s")
    twins = [a for a in found.values() if a.aa]
    assert len(twins) == 3 and len({a.seed for a in found.values()}) == 7
    assert all(a.arm is Arm.SOLO and not a.ordinary for a in twins)
    assert len(pairing.transfers(found.values())) == 2
    assert all(t.target_solo.aa is None for t in pairing.transfers(found.values()))


def test_a_study_begun_under_another_budget_is_refused(tmp_path):
    from runner.errors import UserError

    with Server() as server:
        go(asked(tmp_path / "s", server))
        with pytest.raises(UserError, match="begun with budget"):
            go(asked(tmp_path / "s", server, settings=Settings(budget_minutes=5)))
