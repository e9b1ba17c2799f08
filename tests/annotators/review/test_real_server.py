"""Two people label in a real browser on a real server, and what they did comes back letter for letter."""

import os

import pytest

from annotators.claims import split
from annotators.records import Adjudication
from annotators.review import gold, pull, push
from mkb_analyze import labels as labels_
from tests.annotators.review.support import NOTE, REAL, RUBRIC, study

pytestmark = REAL


@pytest.fixture(scope="session")
def session(tmp_path_factory, server, people):
    """One round: pushed to two people; ana changes a label, adds a region; bo submits what the panel said; pulled."""
    made = study(tmp_path_factory.mktemp("study") / "s")
    pushed = push.push(made, server, RUBRIC, select=["all"], reviewers=["ana", "bo"])
    shown = {}
    for name, (_, person) in people.items():
        project = int(pushed.projects[name].rsplit("/", 1)[1])
        task = next(server.tasks(project))[0]
        person.open(server.task_url(project, task))
        shown[name] = person.spans()
        if name == "ana":
            person.click_span(1)
            person.click_label("open_question")
            person.escape()
            person.click_label("verification_recipe")
            person.drag("笔记 🚀 on rmsnorm")
            person.escape()
            if os.environ.get("MKB_SCREENSHOT"):
                person.click_span(2)
                person.page.evaluate("window.scrollTo(0, 0)")
                person.page.screenshot(path=os.environ["MKB_SCREENSHOT"])
                person.escape()
        person.submit()
    first = pull.pull(made, server, RUBRIC)
    return made, pushed, shown, first


def answers(made, email):
    return next(a for a in made.read("adjudications", Adjudication) if a.person == email and not a.gold)


def test_spans_stand_where_they_should(session):
    text = [c.text for c in split(NOTE)]
    assert session[2]["ana"] == text and session[2]["bo"] == text


def test_what_a_person_did_comes_back_letter_for_letter(session, people):
    made = session[0]
    decided = answers(made, people["ana"][0])
    note = made.note(decided.item)
    said = {note[c["start"] : c["end"]]: c["label"] for c in decided.decision["claims"]}
    claims = split(NOTE)
    assert said["笔记 🚀 on rmsnorm"] == "verification_recipe"
    assert said[claims[1].text] == "open_question"
    assert len(said) == len(claims) + 1
    assert decided.origin == {"kept": len(claims) - 1, "changed": 1, "new": 1, "deleted": 0}


def test_an_untouched_page_comes_back_as_it_was_shown(session, people):
    decided = answers(session[0], people["bo"][0])
    assert [(c["start"], c["end"]) for c in decided.decision["claims"]] == [(c.start, c.end) for c in split(NOTE)]
    assert decided.origin["changed"] == decided.origin["new"] == 0
    assert decided.lead_time_s > 0


def test_pushing_and_pulling_again_doubles_nothing(session, server):
    made, *_ = session
    n_lines = len(list(made.lines("adjudications")))
    again = push.push(made, server, RUBRIC, select=["all"], reviewers=["ana", "bo"])
    pulled = pull.pull(made, server, RUBRIC)
    assert (again.n_sent, again.n_present, pulled.n_new, pulled.n_present) == (0, 2, 0, 2)
    assert len(list(made.lines("adjudications"))) == n_lines


def test_gold_takes_the_panels_place(session, people):
    made, *_ = session
    email, _ = people["ana"]
    done = gold.write(made, RUBRIC, arbiter=email)
    assert done.n_arbiter == 1
    sha = answers(made, email).item
    label = {(c.start, c.end): c.label for c in labels_.load(made, "gold").notes[sha]}
    claim = split(NOTE)[1]
    assert label[claim.start, claim.end] == "open_question"


def test_a_deleted_task_is_listed_and_not_sent_again(tmp_path, server):
    made = study(tmp_path / "other", n_notes=3)
    pushed = push.push(made, server, RUBRIC, select=["all"], reviewers=["cy"])
    project = int(pushed.projects["cy"].rsplit("/", 1)[1])
    task = next(server.tasks(project))[0]
    server._client.tasks.delete(str(task))
    again = push.push(made, server, RUBRIC, select=["all"], reviewers=["cy"])
    assert (pushed.n_sent, again.n_sent, again.n_present) == (3, 0, 2)
    assert len(again.conflicts) == 1 and "was deleted" in again.conflicts[0]


def test_a_bad_answer_is_listed_with_its_address_and_stops_nothing(tmp_path, server):
    made = study(tmp_path / "bad", n_notes=2)
    pushed = push.push(made, server, RUBRIC, select=["all"], reviewers=["di"])
    project = int(pushed.projects["di"].rsplit("/", 1)[1])
    for task, label in zip([t for t, _ in server.tasks(project)], ("no_such_label", RUBRIC.ids[0]), strict=True):
        server._client.annotations.create(
            task,
            result=[
                {
                    "id": "x",
                    "from_name": "label",
                    "to_name": "text",
                    "type": "labels",
                    "value": {"start": 0, "end": 4, "labels": [label]},
                }
            ],
        )
    pulled = pull.pull(made, server, RUBRIC)
    assert pulled.n_new == 1 and len(pulled.unusable) == 1
    assert f"/projects/{project}/data?task=" in pulled.unusable[0] and "no_such_label" in pulled.unusable[0]
