"""A progress line with rate and estimate on a terminal; silent elsewhere, and where MKB_ANALYZE_QUIET is set."""

import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Self, TypeVar

T = TypeVar("T")


class Progress:
    """Counts steps; `total` may be unknown (None). Also a context manager."""

    def __init__(self, what: str, total: int | None, show: bool = True):
        self._bar: Any = None
        if show and sys.stderr.isatty() and not os.environ.get("MKB_ANALYZE_QUIET"):
            from rich import progress
            from rich.console import Console

            columns = [progress.TextColumn("{task.description}", markup=False), progress.BarColumn()]
            columns += [progress.MofNCompleteColumn(), _rate_column(), progress.TimeElapsedColumn()]
            if total is not None:
                columns.append(progress.TimeRemainingColumn())
            self._bar = progress.Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=4)
            self._task = self._bar.add_task(what, total=total)
            self._bar.start()

    def step(self, n: int = 1) -> None:
        if self._bar is not None:
            self._bar.advance(self._task, n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def tracked(items: Iterable[T], what: str, total: int | None = None, show: bool = True) -> Iterator[T]:
    """The items, one step each; the line goes when they end or the loop is left."""
    if total is None and hasattr(items, "__len__"):
        total = len(items)
    with Progress(what, total, show) as bar:
        for item in items:
            yield item
            bar.step()


def rate(per_second: float | None) -> str:
    """A speed in words: `12.5/s`, or `4.0 s each` below one a second; empty while unknown."""
    if not per_second:
        return ""
    return f"{per_second:.1f}/s" if per_second >= 1 else f"{1 / per_second:.1f} s each"


def _rate_column() -> Any:
    from rich.progress import ProgressColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Any) -> Text:
            return Text(rate(task.finished_speed or task.speed))

    return Rate()
