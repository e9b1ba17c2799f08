"""Sends items to people: one project a task and reviewer, only what is missing, nothing overwritten."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from annotators.progress import Progress
from annotators.records import Adjudication
from annotators.review import book, check, page
from annotators.review.items import Item, items
from annotators.review.select import Shown, arranged, selected
from annotators.rubric import Rubric
from runner import digests
from runner.clock import utc_now
from runner.study import Study

CHUNK = 100
VERSION = "panel"
KEY = "mkb_id"


@dataclass(frozen=True)
class Pushed:
    """What a push did: counts, the projects' addresses by reviewer, and what a person must look at."""

    n_sent: int
    n_present: int
    n_blind: int
    n_traps: int
    projects: dict[str, str]
    conflicts: tuple[str, ...]


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
        shown = arranged(selected(every, select, name), settled, blind, traps, name)
        ledger = book.sent(study)
        n_sent = n_present = 0
        projects: dict[str, str] = {}
        conflicts: list[str] = []
        for reviewer in reviewers:
            bar = Progress(f"push {reviewer}", len(shown), progress)
            try:
                line = marker(name, rubric.task, reviewer, rubric.sha256)
                there = server.projects(marker(name, rubric.task))
                for other, number in sorted(there.items()):
                    if other != line and other.split()[3:4] == [reviewer]:
                        conflicts.append(
                            f"{server.url}/projects/{number}: {reviewer}'s tasks under another version of the rubric; "
                            "answers there are not taken"
                        )
                project = there.get(line) or server.make_project(
                    f"{rubric.task} {reviewer} {study.path.resolve().name}",
                    f"{line}\n{rubric.title}",
                    page.page(rubric),
                )
                projects[reviewer] = f"{server.url}/projects/{project}"
                present: dict[str, int] = {}
                for task, data in server.tasks(project):
                    if (key := str(data.get(KEY))) in present:
                        conflicts.append(f"{server.task_url(project, task)}: copy of task {present[key]}; delete one")
                    present.setdefault(key, task)
                due = []
                arrived = []
                for s in shown:
                    key = s.item.external_id(name, reviewer, rubric.sha256)
                    old = ledger.get(key)
                    if key in present:
                        n_present += 1
                        if old is not None and not old.landed:
                            arrived.append(old.model_copy(update={"landed": True, "at": utc_now()}))
                    elif old is not None and old.landed and old.url == projects[reviewer]:
                        conflicts.append(
                            f"{projects[reviewer]}: the task of {rubric.task} {s.item.item} was deleted there; "
                            "it is not sent again"
                        )
                    else:
                        due.append((s, key))
                        continue
                    bar.step()
                if arrived:
                    book.note(study, arrived)
                for chunk in _chunks(iter(due)):
                    made = [_task(s, key, rubric) for s, key in chunk]
                    lines = [
                        _sent(s, key, projects[reviewer], reviewer, rubric, t["data"], ledger.get(key))
                        for (s, key), t in zip(chunk, made, strict=True)
                    ]
                    for t, told in zip(made, lines, strict=True):
                        if told.blind:
                            t["predictions"] = []
                    book.note(study, lines)
                    server.send(project, made)
                    book.note(study, [x.model_copy(update={"landed": True, "at": utc_now()}) for x in lines])
                    n_sent += len(chunk)
                    bar.step(len(chunk))
            finally:
                bar.close()
        return Pushed(
            n_sent,
            n_present,
            sum(s.blind and not s.trap for s in shown),
            sum(s.trap for s in shown),
            projects,
            tuple(conflicts),
        )


def _weighed(item: Item, weights: dict[str, float], harmed: frozenset[str]) -> Item:
    return replace(
        item,
        weight=weights.get(item.item, weights.get(item.source, 0.0)),
        harmed=item.item in harmed or item.source in harmed or item.item.rpartition(":")[0] in harmed,
    )


def _task(shown: Shown, key: str, rubric: Rubric) -> dict[str, Any]:
    item = shown.item
    data = {KEY: key, **item.load(), "item": item.item}
    result = check.predicted(item.said, rubric.task, page.TEXTS[rubric.task][0][0])
    guess = (
        [] if shown.blind or not result else [{"model_version": VERSION, "score": 1.0 - item.doubt, "result": result}]
    )
    if guess:
        data["doubt"] = round(item.doubt, 4)
    return {"data": data, "predictions": guess}


def text_digest(data: dict[str, Any], task: str) -> str:
    """Digest of the texts that a task shows: a person can edit them on the server."""
    return digests.of_value({name: data.get(name) for name, _ in page.TEXTS[task]})


def _sent(
    shown: Shown, key: str, url: str, reviewer: str, rubric: Rubric, data: dict[str, Any], old: book.Sent | None
) -> book.Sent:
    # What a killed push decided stays decided: the server may already have shown it.
    blind, trap = (old.blind, old.trap) if old is not None else (shown.blind, shown.trap)
    return book.Sent(
        external_id=key,
        url=url,
        task=rubric.task,
        item=shown.item.item,
        reviewer=reviewer,
        blind=blind,
        trap=trap,
        rubric_sha256=rubric.sha256,
        data_sha256=text_digest(data, rubric.task),
        said=shown.item.said,
        cause_due=shown.item.harmed or "cause" in shown.item.said,
        at=utc_now(),
    )


def _chunks(stream: Iterator[Any]) -> Iterator[list[Any]]:
    while chunk := list(islice(stream, CHUNK)):
        yield chunk
