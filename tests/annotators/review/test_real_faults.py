"""Kills, edits, deletions, other rubrics, other studies between push and pull: nothing is doubled, nothing lost."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from annotators.label_studio import Server
from annotators.records import Adjudication
from annotators.review import pull, push
from annotators.review.answers import standing
from annotators.review.plan import KEY
from mkb_analyze.review_status import status
from runner.errors import UserError
from runner.study import Study
from tests.annotators.review.support import REAL, RUBRIC, study

pytestmark = REAL


def number(address: str) -> int:
    return int(address.rsplit("/", 1)[1])


def labelled(label: str, start: int = 0, end: int = 4) -> list[dict]:
    """One region, as the page would send it."""
    value = {"start": start, "end": end, "labels": [label]}
    return [{"id": "x", "from_name": "label", "to_name": "text", "type": "labels", "value": value}]


def pushed_one(folder, server, who="cy", n_notes=1):
    made = study(folder, n_notes)
    project = number(push.push(made, server, RUBRIC, select=["all"], reviewers=[who]).projects[who])
    return made, project, [t for t, _ in server.tasks(project)]


def first_labels(made: Study) -> list[str]:
    """The first label of each answer that stands."""
    return [a.decision["claims"][0]["label"] for a in standing(made.read("adjudications", Adjudication))]


def n_lines(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


def killed_now_and_then(served, made: Study, words: list[str], file: Path, total: int, n_kills: int, seed: int) -> int:
    """Run a verb and kill it outright where `file` grows past a random length, then run it to its end; how many kills
    met it at work."""
    env = {**os.environ, "LABEL_STUDIO_URL": served[0], "LABEL_STUDIO_API_KEY": served[1]}
    command = [sys.executable, "-m", "mkb_analyze", *words, "--study", str(made.path)]
    draw, n_met = random.Random(seed), 0
    for n in range(n_kills):
        due = total * n // n_kills + draw.randrange(total // n_kills)
        child = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while child.poll() is None and n_lines(file) <= due:
            time.sleep(0.005)
        time.sleep(draw.uniform(0.0, 0.3))
        n_met += child.poll() is None
        child.send_signal(signal.SIGKILL)
        child.wait()
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return n_met


def test_killed_pushes_and_pulls_double_nothing(tmp_path, served, server):
    made = study(tmp_path / "s", n_notes=1000)
    words = ["review", "push", "--select", "all", "--reviewers", "ana"]
    # The ledger gets two lines a task.
    assert killed_now_and_then(served, made, words, made.path / "review" / "sent.jsonl", 2000, n_kills=5, seed=1) > 2
    project = number(push.push(made, server, RUBRIC, select=["all"], reviewers=["ana"]).projects["ana"])
    ids = [data[KEY] for _, data in server.tasks(project)]
    assert len(ids) == len(set(ids)) == 1000
    marker = f"mkb-analyze {Study(made.path).manifest['review_id']} "
    assert sum(len(there) for there in server.projects(marker).values()) == 1
    everything = {"all": True, "excluded": []}
    server._client.actions.create(project=project, id="predictions_to_annotations", selected_items=everything)
    table = made.path / "adjudications.jsonl"
    assert killed_now_and_then(served, made, ["review", "pull"], table, 1000, n_kills=5, seed=2) > 0
    said = list(made.read("adjudications", Adjudication))
    assert len({a.item for a in said}) == len(said) == 1000


def test_an_answer_changed_there_and_back_counts_as_it_is(tmp_path, server):
    made, _, (task,) = pushed_one(tmp_path / "s", server)
    a, b = RUBRIC.ids[:2]
    answer = server._client.annotations.create(task, result=labelled(a)).id
    for label in (a, b, a):
        server._client.annotations.update(answer, result=labelled(label))
        pull.pull(made, server, RUBRIC)
        assert first_labels(made) == [label]
    assert pull.pull(made, server, RUBRIC).n_present == 1 and len(list(made.lines("adjudications"))) == 3


def test_a_deleted_answer_stands_no_more_and_a_new_one_does(tmp_path, server):
    made, project, (task,) = pushed_one(tmp_path / "s", server)
    answer = server._client.annotations.create(task, result=labelled(RUBRIC.ids[0])).id
    pull.pull(made, server, RUBRIC)
    server._client.annotations.delete(answer)
    assert pull.pull(made, server, RUBRIC).n_withdrawn == 1 and first_labels(made) == []
    assert status(made, RUBRIC)["progress"]["cy"]["n_left"] == 1
    assert pull.pull(made, server, RUBRIC).n_withdrawn == 0
    server._client.annotations.create(task, result=labelled(RUBRIC.ids[1]))
    assert pull.pull(made, server, RUBRIC).n_new == 1 and first_labels(made) == [RUBRIC.ids[1]]


def test_answers_of_a_deleted_task_stand_and_are_listed(tmp_path, server):
    made, project, tasks = pushed_one(tmp_path / "s", server, n_notes=2)
    for task in tasks:
        server._client.annotations.create(task, result=labelled(RUBRIC.ids[0]))
    pull.pull(made, server, RUBRIC)
    server._client.tasks.delete(str(tasks[0]))
    pulled = pull.pull(made, server, RUBRIC)
    assert pulled.n_withdrawn == 0 and len(first_labels(made)) == 2
    assert len(pulled.conflicts) == 1 and "1 answered tasks were deleted" in pulled.conflicts[0]


def test_a_text_that_was_edited_on_the_server_is_listed_and_not_taken(tmp_path, server):
    made, project, tasks = pushed_one(tmp_path / "s", server, n_notes=2)
    data = dict(server._client.tasks.get(id=str(tasks[0])).data)
    server._client.tasks.update(str(tasks[0]), data={**data, "text": "!" + data["text"]})
    for task in tasks:
        server._client.annotations.create(task, result=labelled(RUBRIC.ids[0]))
    pulled = pull.pull(made, server, RUBRIC)
    assert pulled.n_new == 1 and len(pulled.conflicts) == 1
    assert "was edited" in pulled.conflicts[0] and f"task={tasks[0]}" in pulled.conflicts[0]


def test_a_skipped_task_is_counted_and_takes_no_answer(tmp_path, server):
    made, _, (task,) = pushed_one(tmp_path / "s", server)
    server._client.annotations.create(task, result=labelled(RUBRIC.ids[0]), was_cancelled=True)
    pulled = pull.pull(made, server, RUBRIC)
    assert (pulled.n_new, pulled.n_skipped) == (0, 1) and first_labels(made) == []


def test_a_rubric_that_changed_since_the_push_is_noticed(tmp_path, server):
    made, project, (task,) = pushed_one(tmp_path / "s", server)
    server._client.annotations.create(task, result=labelled(RUBRIC.ids[0]))
    pull.pull(made, server, RUBRIC)
    newer = RUBRIC.model_copy(update={"version": "next"})
    pulled = pull.pull(made, server, newer)
    assert pulled.n_new == 0 and len(pulled.conflicts) == 1 and "another version" in pulled.conflicts[0]
    pushed = push.push(made, server, newer, select=["all"], reviewers=["cy"])
    assert pushed.n_sent == 1 and number(pushed.projects["cy"]) != project
    assert f"/projects/{project}:" in pushed.conflicts[0]
    assert status(made, newer)["n_other_rubric"] == 1


def test_two_studies_on_one_server_do_not_mix(tmp_path, server):
    one, _, (task,) = pushed_one(tmp_path / "one", server)
    two, _, (other,) = pushed_one(tmp_path / "two", server)  # the same note, reviewer and rubric
    server._client.annotations.create(task, result=labelled(RUBRIC.ids[0]))
    server._client.annotations.create(other, result=labelled(RUBRIC.ids[1]))
    pull.pull(one, server, RUBRIC)
    pull.pull(two, server, RUBRIC)
    assert (first_labels(one), first_labels(two)) == ([RUBRIC.ids[0]], [RUBRIC.ids[1]])


def test_the_server_at_another_address_is_the_same_server(tmp_path, served, server):
    made, _, (task,) = pushed_one(tmp_path / "s", server)
    server._client.annotations.create(task, result=labelled(RUBRIC.ids[0]))
    pull.pull(made, server, RUBRIC)
    elsewhere = Server(served[0].replace("127.0.0.1", "localhost"), served[1])
    assert pull.pull(made, elsewhere, RUBRIC).n_present == 1
    server._client.tasks.delete(str(task))
    again = push.push(made, elsewhere, RUBRIC, select=["all"], reviewers=["cy"])
    assert again.n_sent == 0 and "was deleted" in again.conflicts[0]


def test_tokens_of_both_kinds_work(served, server):
    answer = httpx.post(f"{served[0]}/api/token/", headers={"Authorization": f"Token {served[1]}"})
    if answer.status_code == 409 and os.environ.get("LABEL_STUDIO_URL"):
        pytest.skip("this server's user has a personal token, and shows it to nobody twice")
    assert Server(served[0], answer.json()["token"]).people() == server.people()


@pytest.mark.parametrize(
    "token, kind",
    [
        ("f" * 40, "legacy token"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJ0b2tlbl90eXBlIjoicmVmcmVzaCIsImV4cCI6OTk5OTk5OTk5OX0.x", "personal token"),
        ("a.b.c", "personal token"),
        ("abc", "neither kind"),
        ("tök\nen", "neither kind"),
    ],
)
def test_a_wrong_token_says_which_kind_was_met(served, token, kind):
    with pytest.raises(UserError, match=kind) as met:
        Server(served[0], token)
    assert token not in str(met.value)
