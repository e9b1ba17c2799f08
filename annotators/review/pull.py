"""Brings answers back: each checked, recorded once with who, when and how long, and what cannot be used is listed."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from annotators.label_studio import Project
from annotators.progress import Progress
from annotators.records import Adjudication
from annotators.review import book
from annotators.review.answers import identity, standing
from annotators.review.push import marker
from annotators.review.read import Reader
from annotators.rubric import Rubric
from runner.clock import utc_now
from runner.study import Study

BATCH = 200


@dataclass(frozen=True)
class Pulled:
    """What a pull did: new and known answers, those taken back by people, skipped tasks, the origin of every label that
    is new, and (address and reason) what could not be used."""

    n_new: int
    n_present: int
    n_withdrawn: int
    n_skipped: int
    origins: dict[str, int]
    unusable: tuple[str, ...]
    conflicts: tuple[str, ...]


def pull(study: Study, server: Any, rubric: Rubric, *, progress: bool = True) -> Pulled:
    """Record every answer of the study's projects of one task that is not recorded yet.

    An answer that its person changed since is recorded again, one that was deleted is recorded as withdrawn: of an
    answer's lines the last counts, and none is overwritten. A bad answer never stops the rest.
    """
    with study.writing():
        name = book.study_id(study)
        ledger = book.sent(study)
        known: dict[tuple, str | None] = {}
        for a in study.read("adjudications", Adjudication):
            if a.label_studio and not a.gold:
                known[identity(a.label_studio)] = None if a.withdrawn else str(a.label_studio.get("sha256"))
        counts: Counter = Counter()
        origins: Counter = Counter()
        unusable: list[str] = []
        conflicts: list[str] = []
        for line, there in sorted(server.projects(marker(name, rubric.task)).items()):
            reviewer, tag = (*line.split()[3:5], "", "")[:2]
            for project in there:
                if tag != rubric.sha256[:16]:
                    if n := sum(1 for _ in server.answered(project.id)):
                        conflicts.append(
                            f"{server.url}/projects/{project.id}: {n} tasks answered under another version of the "
                            "rubric; push again, and have them answered anew"
                        )
                    continue
                reader = Reader(
                    rubric,
                    ledger,
                    known,
                    server.people,
                    project,
                    reviewer,
                    server.url,
                    lambda task, p=project.id: server.task_url(p, task),
                )
                _walk(study, server, reader, project, reviewer, progress)
                counts.update(reader.counts)
                origins.update(reader.origins)
                unusable += reader.unusable
                conflicts += reader.conflicts
        return Pulled(
            counts["new"],
            counts["present"],
            counts["withdrawn"],
            counts["skipped"],
            dict(origins),
            tuple(unusable),
            tuple(conflicts),
        )


def _walk(study: Study, server: Any, reader: Reader, project: Project, reviewer: str, progress: bool) -> None:
    bar = Progress(f"pull {reviewer}", None, progress)
    try:
        fresh = (a for task in _stepped(server.answered(project.id), bar) for a in reader.task(task))
        while batch := list(islice(fresh, BATCH)):
            study.append("adjudications", batch)
        if missing := reader.missing():
            every = standing(study.read("adjudications", Adjudication))
            gone = [a for a in every if a.label_studio and identity(a.label_studio) in missing]
            tasks = {number for number, _ in server.tasks(project.id)}
            study.append("adjudications", reader.taken_back(gone, tasks, utc_now()))
    finally:
        bar.close()


def _stepped(tasks: Iterable[dict[str, Any]], bar: Progress) -> Iterator[dict[str, Any]]:
    for task in tasks:
        bar.step()
        yield task
