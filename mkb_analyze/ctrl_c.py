"""Ctrl-C put off: a step that must be whole is, and the interrupt comes after it."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def put_off() -> Iterator[None]:
    """SIGINT waits until the block is over; a process forked within the block never hears it.

    A terminal sends SIGINT to children too; they are their parent's to end.

    Raises:
        KeyboardInterrupt: after the block, where one came during it.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is None:
        # Handlers belong to the main thread; elsewhere the mask alone is ours, and a fork inherits that.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return
    heard: list[int] = []

    def hear(number: int, frame: Any) -> None:
        heard.append(number)

    signal.signal(signal.SIGINT, hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if heard:
            raise KeyboardInterrupt
