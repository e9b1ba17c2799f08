"""The pages of causes and of fates in a real browser: blind items, traps, selection, comments, hotkeys, settling."""

import pytest

from annotators.records import Adjudication
from annotators.review import gold, pull, push
from annotators.review.answers import standing
from annotators.rubric import shipped
from mkb_analyze import labels as labels_
from mkb_analyze.review_status import status
from tests.annotators.review.support import REAL, transfers_study

pytestmark = REAL
CAUSE, FATE = shipped("attribution"), shipped("fate")
N = 6
BLIND = 0.5


def number(address: str) -> int:
    return int(address.rsplit("/", 1)[1])


def tasks(server, pushed, who):
    return [(t, data["item"]) for t, data in server.tasks(number(pushed.projects[who]))]


@pytest.fixture(scope="session")
def causes(tmp_path_factory, server, people):
    """Ana answers every cause: keeps what is shown, picks the third cause by hotkey where it is blind."""
    made = transfers_study(tmp_path_factory.mktemp("causes") / "s")
    pushed = push.push(made, server, CAUSE, select=["all"], reviewers=["ana", "bo"], blind=BLIND)
    ana = people["ana"][1]
    seen = {}
    for task, item in tasks(server, pushed, "ana"):
        ana.open(server.task_url(number(pushed.projects["ana"]), task))
        seen[item] = ana.chosen()
        if not any(seen[item]):
            ana.press("3")
            ana.choose(2, CAUSE.scales[0].ids[1])
        ana.choose(1, CAUSE.ids[5])
        ana.comment(f"hard <b>to</b> say, 难 🤔 {item}")
        ana.submit()
    pulled = pull.pull(made, server, CAUSE)
    return made, pushed, seen, pulled


def test_blind_items_show_nothing_and_the_others_what_the_panel_said(causes):
    made, pushed, seen, _ = causes
    blind = {i for i, chosen in seen.items() if not any(chosen)}
    assert 0 < len(blind) < N and pushed.n_blind == len(blind)
    for item in seen.keys() - blind:
        cause, second, adherence = seen[item]
        assert cause and adherence == [CAUSE.scales[0].ids[0]] and not second


def test_causes_come_back_with_origin_time_and_comment(causes, people):
    made, _, seen, pulled = causes
    said = standing(made.read("adjudications", Adjudication))
    assert len(said) == N == pulled.n_new and not pulled.unusable and not pulled.conflicts
    for a in said:
        assert a.person == people["ana"][0] and a.reviewer == "ana"
        assert a.decision["second_cause"] == CAUSE.ids[5] and a.comment == f"hard <b>to</b> say, 难 🤔 {a.item}"
        assert a.lead_time_s > 0 and a.at.endswith("Z")
        shown = seen[a.item]
        if a.blind:
            assert a.decision["cause"] == CAUSE.ids[2] and a.origin["new"] == 3
        else:
            assert [a.decision["cause"]] == shown[0] and (a.origin["kept"], a.origin["new"]) == (2, 1)


def test_anchoring_is_what_was_kept_where_it_was_shown(causes):
    made, *_ = causes
    found = status(made, CAUSE)
    n_blind = found["with_panel"]["blind"]["n"]
    assert found["with_panel"]["shown"] == {"n": N - n_blind, "share": 1.0}
    assert found["with_panel"]["anchoring"] == 1.0 - found["with_panel"]["blind"]["share"]
    assert found["progress"] == {
        "ana": {"n_sent": N, "n_done": N, "n_left": 0},
        "bo": {"n_sent": N, "n_done": 0, "n_left": N},
    }


def test_an_arbiter_settles_every_cause(causes, server, people):
    made, *_ = causes
    done = gold.write(made, CAUSE, arbiter=people["ana"][0].split("@")[0])
    assert done.n_arbiter == N
    label = labels_.load(made, "gold")
    assert all(t.cause.label for t in label.transfers.values()) and len(label.transfers) == N
    # Traps are a share of the fresh items, and nothing is fresh any more.
    assert push.push(made, server, CAUSE, select=["all"], reviewers=["ana"], traps=0.5).n_traps == 0


@pytest.fixture(scope="session")
def trapped(tmp_path_factory, server, people):
    """Four fates are settled, two are not; bo gets one of the settled ones as a trap and misses it."""
    made = transfers_study(tmp_path_factory.mktemp("fates") / "s")
    from annotators.review.items import items

    settled = [i.item for i in items(made, "fate")][:4]
    with made.writing():
        made.append(
            "adjudications",
            [
                Adjudication(
                    task="fate",
                    item=i,
                    person="ana",
                    rubric_id=FATE.id,
                    rubric_sha256=FATE.sha256,
                    decision={"fate": "refuted"},
                    gold=True,
                )
                for i in settled
            ],
        )
    pushed = push.push(made, server, FATE, select=["doubtful"], reviewers=["bo"], traps=0.5)
    again = push.push(made, server, FATE, select=["doubtful"], reviewers=["bo"], traps=0.5)
    bo = people["bo"][1]
    for task, _ in tasks(server, pushed, "bo"):
        bo.open(server.task_url(number(pushed.projects["bo"]), task))
        bo.choose(0, "weakened")
        bo.submit()
    return made, pushed, again, pull.pull(made, server, FATE), settled


def test_a_trap_is_mixed_in_once_and_its_miss_is_counted(trapped, server):
    made, pushed, again, pulled, settled = trapped
    assert (pushed.n_sent, pushed.n_traps, again.n_sent, again.n_present) == (3, 1, 0, 3)
    said = standing(made.read("adjudications", Adjudication))
    assert pulled.n_new == 3 and [a.item in settled for a in said if a.trap] == [True]
    assert status(made, FATE)["traps"] == {"n": 1, "n_missed": 1}
    # The same reviewer is shown that trap again only as the same task, answered already.
    assert push.push(made, server, FATE, select=["doubtful"], reviewers=["bo"], traps=0.5).n_sent == 0


def test_a_trap_settles_nothing(trapped, people):
    made, *_ = trapped
    before = [a for a in made.read("adjudications", Adjudication) if a.gold]
    gold.write(made, FATE, arbiter=people["bo"][0])
    fresh = [a for a in made.read("adjudications", Adjudication) if a.gold][len(before) :]
    assert {a.item for a in fresh}.isdisjoint({a.item for a in before}) and len(fresh) == 2


def test_an_unanswered_required_choice_stops_submit(server, people, tmp_path):
    made = transfers_study(tmp_path / "s")
    pushed = push.push(made, server, FATE, select=["all"], reviewers=["bo"], blind=1.0)
    task, _ = tasks(server, pushed, "bo")[0]
    bo = people["bo"][1]
    bo.open(server.task_url(number(pushed.projects["bo"]), task))
    bo.submit()
    assert bo.page.locator(".ant-modal, [role=dialog]").count() >= 1
    assert not list(server.answered(number(pushed.projects["bo"])))


def test_an_answer_that_somebody_else_changed_is_not_taken(server, trapped, people):
    made, pushed, *_ = trapped
    task = next(iter(server.answered(number(pushed.projects["bo"]))))
    answer = task["annotations"][0]
    changed = [{**r, "value": {"choices": ["absent"]}} for r in answer["result"]]
    server._client.annotations.update(answer["id"], result=changed)  # as the server's first user
    pulled = pull.pull(made, server, FATE)
    assert (pulled.n_new, pulled.n_withdrawn, len(pulled.conflicts)) == (0, 0, 1)
    assert people["bo"][0] in pulled.conflicts[0] and f"task={task['id']}" in pulled.conflicts[0]
    assert {a.decision["fate"] for a in standing(made.read("adjudications", Adjudication))} == {"weakened"}
