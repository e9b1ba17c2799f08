"""Brings answers back: each checked, recorded once with who, when and how long, and what cannot be used is listed."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from annotators.progress import Progress
from annotators.records import Adjudication
from annotators.review import book, check
from annotators.review.push import KEY, marker, text_digest
from annotators.rubric import Rubric
from runner import digests
from runner.study import Study

BATCH = 200


@dataclass(frozen=True)
class Pulled:
    """What a pull did: new and known answers, skipped tasks, and (address and reason) what could not be used."""

    n_new: int
    n_present: int
    n_skipped: int
    origins: dict[str, int]
    unusable: tuple[str, ...]
    conflicts: tuple[str, ...]


def pull(study: Study, server: Any, rubric: Rubric, *, progress: bool = True) -> Pulled:
    """Record every answer of the study's projects of one task that is not recorded yet; an answer that was changed on
    the server since is recorded again, and the later line counts.

    A bad answer never stops the rest.
    """
    with study.writing():
        name = book.study_id(study)
        ledger = book.sent(study)
        known = {_identity(a.label_studio) for a in study.read("adjudications", Adjudication) if a.label_studio}
        people: dict[int, str] | None = None
        totals: Counter = Counter()
        origins: Counter = Counter()
        unusable: list[str] = []
        conflicts: list[str] = []
        for line, project in sorted(server.projects(marker(name, rubric.task)).items()):
            reviewer, tag = (line.split()[3:5] + ["", ""])[:2]
            current = tag == rubric.sha256[:16]
            fresh: list[Adjudication] = []
            seen: dict[str, int] = {}
            bar = Progress(f"pull {reviewer}", None, progress)
            try:
                for task in server.answered(project):
                    bar.step()
                    where = server.task_url(project, task["id"])
                    data = task.get("data") or {}
                    told = ledger.get(str(data.get(KEY)))
                    done = [a for a in task.get("annotations") or [] if not a.get("was_cancelled")]
                    totals["skipped"] += len(task.get("annotations") or []) > len(done)
                    if not done:
                        continue
                    fault = None
                    if not current:
                        fault = "answered under another version of the rubric; push again and answer anew"
                    elif told is None:
                        fault = "not a task of this study (its id was removed or changed)"
                    elif told.data_sha256 != text_digest(data, rubric.task):
                        fault = "its text was edited on the server; restore it or delete the task"
                    elif told.external_id in seen:
                        fault = f"a copy of task {seen[told.external_id]}; delete one"
                    if fault:
                        conflicts.append(f"{where}: {fault}")
                        continue
                    seen[told.external_id] = task["id"]
                    for answer in done:
                        stamp = {
                            "url": server.url,
                            "project": project,
                            "task": task["id"],
                            "annotation": answer["id"],
                            "sha256": digests.of_value(answer.get("result")),
                        }
                        if _identity(stamp) in known:
                            totals["present"] += 1
                            continue
                        try:
                            decided, comment = check.decision(
                                answer.get("result"), rubric, data.get("text", ""), told.cause_due
                            )
                        except check.Unusable as bad:
                            unusable.append(f"{where}: {bad}")
                            continue
                        if people is None:
                            people = server.people()
                        by, changed_by = _id(answer.get("completed_by")), _id(answer.get("updated_by"))
                        person = people.get(by, f"user {by}")
                        if changed_by is not None and changed_by != by:
                            conflicts.append(
                                f"{where}: answered by {person}, changed by {people.get(changed_by, changed_by)}"
                            )
                        where_from = check.origin(decided, {} if told.blind else told.said)
                        origins.update(where_from)
                        fresh.append(
                            Adjudication(
                                task=rubric.task,
                                item=told.item,
                                person=person,
                                rubric_id=rubric.id,
                                rubric_sha256=rubric.sha256,
                                decision=decided,
                                origin=where_from,
                                blind=told.blind,
                                trap=told.trap,
                                reviewer=reviewer,
                                lead_time_s=answer.get("lead_time"),
                                comment=comment,
                                label_studio=stamp,
                                at=_utc(answer.get("updated_at")),
                            )
                        )
                        known.add(_identity(stamp))
                        totals["new"] += 1
                        if len(fresh) >= BATCH:
                            study.append("adjudications", fresh)
                            fresh = []
            finally:
                bar.close()
                if fresh:
                    study.append("adjudications", fresh)
        return Pulled(
            totals["new"], totals["present"], totals["skipped"], dict(origins), tuple(unusable), tuple(conflicts)
        )


def _identity(stamp: dict[str, Any]) -> tuple:
    return tuple(stamp.get(k) for k in ("url", "project", "annotation", "sha256"))


def _id(person: Any) -> int | None:
    return person.get("id") if isinstance(person, dict) else person


def _utc(at: Any) -> str | None:
    return str(at).replace("+00:00", "Z") if at else None
