"""Reads one project's answers: each becomes a record, is known already, or is listed with its task's address."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from annotators.label_studio import Project
from annotators.records import Adjudication
from annotators.review import book, check
from annotators.review.answers import identity
from annotators.review.plan import KEY, text_digest
from annotators.rubric import Rubric
from runner import digests


class Reader:
    """Turns the tasks of one project into adjudications; speaks to no server.

    Args:
        ledger: what was sent, by external id.
        known: the last digest of every recorded answer by identity; None where it was taken back.
        people: account number -> name, asked at most once.
        address: task number -> the page of that task.

    `counts`, `origins`, `unusable` and `conflicts` grow with every task.
    """

    def __init__(
        self,
        rubric: Rubric,
        ledger: dict[str, book.Sent],
        known: dict[tuple, str | None],
        people: Callable[[], dict[int, str]],
        project: Project,
        reviewer: str,
        url: str,
        address: Callable[[int], str],
    ):
        self._rubric, self._ledger, self._known, self._people = rubric, ledger, known, people
        self._project, self._reviewer, self._url, self._address = project, reviewer, url, address
        self._named: dict[int, str] | None = None
        self._task_of: dict[str, int] = {}
        self._met: set[tuple] = set()
        self.counts: Counter = Counter()
        self.origins: Counter = Counter()
        self.unusable: list[str] = []
        self.conflicts: list[str] = []

    def task(self, task: dict[str, Any]) -> Iterator[Adjudication]:
        """What is new in one exported task. An answer that its person changed since is new again."""
        given = task.get("annotations") or []
        answers = [a for a in given if not a.get("was_cancelled")]
        self.counts["skipped"] += len(given) > len(answers)
        if not answers:
            return
        # What is met is not taken back, whether it can be used or not.
        self._met.update(identity(self._stamp(task, a)) for a in answers)
        data = task.get("data") or {}
        told = self._ledger.get(str(data.get(KEY)))
        if told is None:
            fault = "not a task of this study (its id was removed or changed)"
        elif told.data_sha256 != text_digest(data, self._rubric.task):
            fault = "its text was edited on the server; restore it or delete the task"
        elif told.external_id in self._task_of:
            fault = f"a copy of task {self._task_of[told.external_id]}; delete one"
        else:
            self._task_of[told.external_id] = task["id"]
            for answer in answers:
                yield from self._answer(task, answer, told, data)
            return
        self.conflicts.append(f"{self._address(task['id'])}: {fault}")

    def _answer(
        self, task: dict[str, Any], answer: dict[str, Any], told: book.Sent, data: dict[str, Any]
    ) -> Iterator[Adjudication]:
        stamp = self._stamp(task, answer)
        if self._known.get(identity(stamp)) == stamp["sha256"]:
            self.counts["present"] += 1
            return
        where = self._address(task["id"])
        by, changed_by = _id(answer.get("completed_by")), _id(answer.get("updated_by"))
        if by is not None and changed_by is not None and changed_by != by:
            self.conflicts.append(
                f"{where}: the answer of {self._name(by)} was changed by {self._name(changed_by)}; it is not taken, "
                f"{self._name(by)} must submit it again"
            )
            return
        try:
            decided, comment = check.decision(answer.get("result"), self._rubric, data.get("text", ""), told.cause_due)
        except check.Unusable as bad:
            self.unusable.append(f"{where}: {bad}")
            return
        origin = check.origin(decided, {} if told.blind else told.said)
        self.origins.update(origin)
        self._known[identity(stamp)] = stamp["sha256"]
        self.counts["new"] += 1
        yield Adjudication(
            task=self._rubric.task,
            item=told.item,
            person=self._name(by),
            rubric_id=self._rubric.id,
            rubric_sha256=self._rubric.sha256,
            decision=decided,
            origin=origin,
            blind=told.blind,
            trap=told.trap,
            reviewer=self._reviewer,
            lead_time_s=_seconds(answer.get("lead_time")),
            comment=comment,
            label_studio=stamp,
            at=_utc(answer.get("updated_at")),
        )

    def missing(self) -> set[tuple]:
        """Identities of recorded answers of this project that the server no longer has. Call after the last task."""
        here = (self._project.id, self._project.made_at)
        return {k for k, sha in self._known.items() if sha is not None and k[:2] == here and k not in self._met}

    def taken_back(self, gone: Iterable[Adjudication], tasks: set[int], at: str) -> Iterator[Adjudication]:
        """Records for answers that their people deleted or skipped afterwards; one whose whole task is gone stands."""
        n_lost = 0
        for a in gone:
            if a.label_studio["task"] not in tasks:
                n_lost += 1
                continue
            self.counts["withdrawn"] += 1
            self._known[identity(a.label_studio)] = None
            yield a.model_copy(update={"withdrawn": True, "decision": {}, "origin": {}, "at": at})
        if n_lost:
            self.conflicts.append(
                f"{self._url}/projects/{self._project.id}: {n_lost} answered tasks were deleted; their answers stand"
            )

    def _stamp(self, task: dict[str, Any], answer: dict[str, Any]) -> dict[str, int | str]:
        return {
            "url": self._url,
            "project": self._project.id,
            "made_at": self._project.made_at,
            "task": task["id"],
            "annotation": answer["id"],
            "sha256": digests.of_value(answer.get("result")),
        }

    def _name(self, number: int | None) -> str:
        if self._named is None:
            self._named = self._people()
        return self._named.get(number) or f"user {number}"


def _id(person: Any) -> int | None:
    return person.get("id") if isinstance(person, dict) else person


def _seconds(value: Any) -> float | None:
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if plain and math.isfinite(value) and value >= 0 else None


def _utc(at: Any) -> str | None:
    return str(at).replace("+00:00", "Z") if at else None
