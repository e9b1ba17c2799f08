"""Sends items to people: one project a task and reviewer, only what is missing, nothing overwritten."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from annotators.label_studio import Project
from annotators.progress import Progress
from annotators.records import Adjudication
from annotators.review import book, page, plan
from annotators.review.items import Item, items
from annotators.review.select import Shown, selected
from annotators.rubric import Rubric
from runner.clock import utc_now
from runner.study import Study

CHUNK = 100
STILL_S = 4.0


@dataclass
class Pushed:
    """What a push did: tasks sent and there already, blind items and traps of a reviewer, the projects' addresses by
    reviewer, and what a person must look at."""

    n_sent: int = 0
    n_present: int = 0
    n_blind: int = 0
    n_traps: int = 0
    projects: dict[str, str] = field(default_factory=dict)
    conflicts: list[str] = field(default_factory=list)


def marker(study_id: str, task: str, reviewer: str = "", rubric_sha256: str = "") -> str:
    """The first line of a project's description: whose study, which task, who, under which rubric."""
    head = f"mkb-analyze {study_id} {task} "
    return head + (f"{reviewer} {rubric_sha256[:16]}" if reviewer else "")


def push(
    study: Study,
    server: Any,
    rubric: Rubric,
    *,
    select: Sequence[str],
    reviewers: Sequence[str],
    blind: float = 0.0,
    traps: float = 0.0,
    harmed: frozenset[str] = frozenset(),
    weights: dict[str, float] | None = None,
    progress: bool = True,
) -> Pushed:
    """Send what `select` picks to every reviewer; a second call sends only what is new.

    Args:
        server: an `annotators.label_studio.Server`.
        harmed: items that count as harmed; weights: item -> weight in the result.

    A task that a person deleted is not sent again; it is listed.
    """
    weights = weights or {}
    with study.writing():
        name = book.study_id(study)
        every = [_weighed(i, weights, harmed) for i in items(study, rubric.task)]
        gold = {
            a.item
            for a in study.read("adjudications", Adjudication)
            if a.gold and a.task == rubric.task and a.rubric_sha256 == rubric.sha256
        }
        settled = [i for i in every if i.item in gold]
        fresh = [i for i in selected(every, select, name) if i.item not in gold]
        ledger = book.sent(study)
        done = Pushed()
        for reviewer in reviewers:
            had = [s for s in ledger.values() if s.reviewer == reviewer and s.rubric_sha256 == rubric.sha256]
            shown = plan.queue(fresh, settled, traps, blind, had, name)
            done.n_blind, done.n_traps = sum(s.blind and not s.trap for s in shown), sum(s.trap for s in shown)
            bar = Progress(f"push {reviewer}", len(shown), progress)
            try:
                project = _project(study, server, rubric, name, reviewer, done)
                _send(study, server, rubric, name, reviewer, project, shown, ledger, bar, done)
            finally:
                bar.close()
        return done


def _project(study: Study, server: Any, rubric: Rubric, name: str, reviewer: str, done: Pushed) -> Project:
    """The reviewer's project under this rubric, made where there is none; others of the reviewer's are listed."""
    line = marker(name, rubric.task, reviewer, rubric.sha256)
    there = server.projects(marker(name, rubric.task))
    for other, projects in sorted(there.items()):
        if other != line and other.split()[3:4] == [reviewer]:
            done.conflicts += [
                f"{server.url}/projects/{p.id}: {reviewer}'s tasks under another version of the rubric; answers there "
                "are not taken"
                for p in projects
            ]
    done.conflicts += [
        f"{server.url}/projects/{p.id}: made twice by a push that was stopped; delete it"
        for p in there.get(line, ())[1:]
    ]
    if line in there:
        project = there[line][0]
    else:
        title = f"{rubric.task} {reviewer} {study.path.resolve().name}"
        project = server.make_project(title, f"{line}\n{rubric.title}", page.page(rubric))
    done.projects[reviewer] = f"{server.url}/projects/{project.id}"
    return project


def _send(
    study: Study,
    server: Any,
    rubric: Rubric,
    name: str,
    reviewer: str,
    project: Project,
    shown: list[Shown],
    ledger: dict[str, book.Sent],
    bar: Progress,
    done: Pushed,
) -> None:
    if any(s.project == project.name and not s.landed for s in ledger.values()):
        _still(server, project)
    present: dict[str, int] = {}
    for number, data in server.tasks(project.id):
        if (key := str(data.get(plan.KEY))) in present:
            done.conflicts.append(f"{server.task_url(project.id, number)}: copy of task {present[key]}; delete one")
        present.setdefault(key, number)
    found = plan.plan(
        shown, lambda s: s.item.external_id(name, reviewer, rubric.sha256, s.trap), ledger, present, project
    )
    done.n_present += found.n_present
    url = done.projects[reviewer]
    done.conflicts += [
        f"{url}: the task of {rubric.task} {item} was deleted there; it is not sent again" for item in found.lost
    ]
    book.note(study, found.arrived)
    bar.step(found.n_present + len(found.lost))
    due = iter(found.due)
    while chunk := list(islice(due, CHUNK)):
        tasks = [plan.task(s, key, rubric) for s, key in chunk]
        lines = [
            plan.line(s, key, url, project, reviewer, rubric, t["data"])
            for (s, key), t in zip(chunk, tasks, strict=True)
        ]
        book.note(study, lines)
        server.send(project.id, tasks)
        book.note(study, [x.model_copy(update={"landed": True, "at": utc_now()}) for x in lines])
        done.n_sent += len(chunk)
        bar.step(len(chunk))


def _still(server: Any, project: Project) -> None:
    """Wait until the number of tasks stays the same: what a killed push sent last may still be on its way."""
    until, last, since = time.monotonic() + 20 * STILL_S, -1, time.monotonic()
    while time.monotonic() < until:
        n = server.n_tasks(project.id)
        if n != last:
            last, since = n, time.monotonic()
        elif time.monotonic() - since >= STILL_S:
            return
        time.sleep(0.5)


def _weighed(item: Item, weights: dict[str, float], harmed: frozenset[str]) -> Item:
    names = (item.item, item.source, item.item.rpartition(":")[0])  # a fate's item begins with its transfer
    return replace(
        item,
        weight=max((weights[n] for n in names if n in weights), default=0.0),
        harmed=any(n in harmed for n in names),
    )
