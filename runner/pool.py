"""Children that have imported the array library and a DSL wait here; each serves one submission and is ended."""

import select
import threading
import time
from collections import deque
from types import TracebackType
from typing import Self

from runner import session
from runner.jail import Child


class Pool:
    """Waiting children by DSL and device; `take` hands one out and starts its successor in the background.

    Children are started in the thread that made the pool's first call, since a child ends with the thread that
    started it; one pool therefore serves one thread.
    """

    def __init__(self, n_waiting: int = 1):
        self.n_waiting = n_waiting
        self._waiting: dict[tuple[str, str], deque[Child]] = {}
        self._owner = threading.get_ident()

    def prepare(self, dsl: str, device: str, n_wanted: int | None = None) -> None:
        """Start children for this DSL and device until as many wait as are wanted; returns at once."""
        queue = self._waiting.setdefault((dsl, device), deque())
        while len(queue) < (self.n_waiting if n_wanted is None else n_wanted):
            queue.append(session.start(dsl, device))

    def take(self, dsl: str, device: str, successor: bool = True) -> Child:
        """A waiting child, or a fresh one; with `successor` the next one begins its imports now."""
        if threading.get_ident() != self._owner:
            raise RuntimeError("a pool serves the thread that made it; make one in each thread")
        queue = self._waiting.setdefault((dsl, device), deque())
        while queue:
            child = queue.popleft()
            if child.process.poll() is None:
                break
            child.close()
        else:
            child = session.start(dsl, device)
        if successor:
            self.prepare(dsl, device)
        return child

    def wait_until_ready(self, limit_s: float = 60.0) -> None:
        """Wait until the imports of every waiting child are over (or it is dead, or the time is up)."""
        deadline = time.monotonic() + limit_s
        for child in (c for queue in self._waiting.values() for c in queue):
            select.select([child.lines.sock], [], [], max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """End every waiting child."""
        for queue in self._waiting.values():
            while queue:
                queue.popleft().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
