"""Which recorded answers stand: the last line of each, without those that were taken back."""

from collections.abc import Iterable

from annotators.records import Adjudication


def identity(stamp: dict[str, int | str]) -> tuple:
    """Names one answer on one server: its project (by number and birth) and its own number."""
    return tuple(stamp.get(k) for k in ("project", "made_at", "annotation"))


def standing(records: Iterable[Adjudication]) -> list[Adjudication]:
    """People's answers that stand, in the order in which they were last said; settled lines are left out."""
    found: dict[tuple, Adjudication] = {}
    for a in records:
        if a.gold:
            continue
        # An answer that did not come from a server is its person's one answer on the item.
        key = identity(a.label_studio) if a.label_studio else (a.task, a.item, a.person, a.trap, a.rubric_sha256)
        found.pop(key, None)
        if not a.withdrawn:
            found[key] = a
    return list(found.values())


def by_item(records: Iterable[Adjudication], task: str, rubric_sha256: str) -> dict[str, dict[str, Adjudication]]:
    """The last standing answer of each person on each item, under one rubric; traps are left out."""
    found: dict[str, dict[str, Adjudication]] = {}
    for a in standing(records):
        if not a.trap and a.task == task and a.rubric_sha256 == rubric_sha256:
            found.setdefault(a.item, {})[a.person] = a
    return found
