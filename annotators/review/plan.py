"""Decides what a push sends to one reviewer: what is missing on the server, and what a person must look at."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from annotators.label_studio import Project
from annotators.review import book, check, page
from annotators.review.items import Item, share
from annotators.review.select import Shown, mixed
from annotators.rubric import Rubric
from runner import digests
from runner.clock import utc_now

VERSION = "panel"
KEY = "mkb_id"


@dataclass
class Plan:
    """`due` is what is to be sent with its external id; `arrived` what a stopped push had sent without knowing it;
    `lost` the items whose tasks people deleted."""

    due: list[tuple[Shown, str]] = field(default_factory=list)
    arrived: list[book.Sent] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    n_present: int = 0


def queue(
    fresh: Sequence[Item], settled: Sequence[Item], traps: float, blind: float, had: Iterable[book.Sent], seed: str
) -> list[Shown]:
    """What one reviewer gets, in order: fresh items, a share of them blind, with settled ones mixed in as traps.

    Blind is drawn by item, so that all reviewers see the same ones blind. Of the settled items those come first that
    are traps of this reviewer already (a second push adds none), then those that the reviewer never had.

    Args:
        traps: traps for each fresh item.
        had: what this reviewer was sent before.
    """
    before = {s.item: s.trap for s in sorted(had, key=lambda s: s.trap)}
    pool = sorted(settled, key=lambda i: (not before.get(i.item, False), i.item in before, share(seed, "trap", i.item)))
    told = [Shown(i, share(seed, "blind", i.item) < blind, False) for i in fresh]
    return mixed(told, [Shown(i, True, True) for i in pool[: round(traps * len(fresh))]])


def plan(
    shown: Sequence[Shown],
    key_of: Callable[[Shown], str],
    ledger: dict[str, book.Sent],
    present: dict[str, int],
    project: Project,
) -> Plan:
    """Compares what is wanted with what the ledger says was sent and what stands on the server.

    Args:
        key_of: `Shown` -> external id.
        present: external id -> task, of the project as it is now.
    """
    out = Plan()
    for s in shown:
        key = key_of(s)
        old = ledger.get(key)
        if key in present:
            out.n_present += 1
            if old is not None and not old.landed:
                out.arrived.append(old.model_copy(update={"landed": True, "at": utc_now()}))
        elif old is not None and old.landed and old.project == project.name:
            out.lost.append(s.item.item)
        else:
            # What a stopped push decided stays decided: its task may have been seen meanwhile.
            out.due.append((replace(s, blind=old.blind, trap=old.trap) if old is not None else s, key))
    return out


def task(shown: Shown, key: str, rubric: Rubric) -> dict[str, Any]:
    """The task as it is sent: its texts, and the panel's labels with their doubt unless they are withheld."""
    item = shown.item
    data = {KEY: key, **item.load(), "item": item.item}
    result = check.predicted(item.said, rubric.task, page.TEXTS[rubric.task][0][0])
    if shown.blind or not result:
        return {"data": data, "predictions": []}
    data["doubt"] = round(item.doubt, 4)
    return {"data": data, "predictions": [{"model_version": VERSION, "score": 1.0 - item.doubt, "result": result}]}


def text_digest(data: dict[str, Any], task: str) -> str:
    """Digest of the texts that a task shows: a person can edit them on the server."""
    return digests.of_value({name: data.get(name) for name, _ in page.TEXTS[task]})


def line(
    shown: Shown, key: str, url: str, project: Project, reviewer: str, rubric: Rubric, data: dict[str, Any]
) -> book.Sent:
    """What the study's ledger keeps of a task, before the server has it."""
    return book.Sent(
        external_id=key,
        url=url,
        project=project.name,
        task=rubric.task,
        item=shown.item.item,
        reviewer=reviewer,
        blind=shown.blind,
        trap=shown.trap,
        rubric_sha256=rubric.sha256,
        data_sha256=text_digest(data, rubric.task),
        said=shown.item.said,
        cause_due=shown.item.harmed or "cause" in shown.item.said,
        at=utc_now(),
    )
