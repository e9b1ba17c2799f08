"""A progress line on a terminal; silent where there is none, or where MKB_ANALYZE_QUIET is set."""

import os
import sys
from typing import Any


class Progress:
    """Counts steps; `total` may be unknown (None)."""

    def __init__(self, what: str, total: int | None, show: bool = True):
        self._bar: Any = None
        if show and sys.stderr.isatty() and not os.environ.get("MKB_ANALYZE_QUIET"):
            from rich import progress
            from rich.console import Console

            columns = (progress.TextColumn("{task.description}"), progress.BarColumn(), progress.MofNCompleteColumn())
            columns += (progress.TimeRemainingColumn(),)
            self._bar = progress.Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=4)
            self._task = self._bar.add_task(what, total=total)
            self._bar.start()

    def step(self, n: int = 1) -> None:
        if self._bar is not None:
            self._bar.advance(self._task, n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
