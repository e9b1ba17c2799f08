"""Who may time on a device now: lock files that processes of one account share, dropped when their holder dies."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from runner.errors import UserError


@dataclass(frozen=True)
class DeviceLock:
    """One place on a device: by default all of it, else slot `slot` (from 0) of `n_slots`.

    Whoever wants the whole device waits until every slot is free, and the other way round. `name` is the device's own
    name on this machine (a GPU's UUID), whatever number this process knows it by.
    """

    name: str
    n_slots: int = 1
    slot: int = 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """Wait for the place and hold it; the kernel frees it when this process ends, however it ends.

        Raises:
            UserError: the lock's file cannot be opened (something else stands in its place).
        """
        handles: list[int] = []
        try:
            handles.append(_open(self.name))
            fcntl.flock(handles[0], fcntl.LOCK_EX if self.n_slots == 1 else fcntl.LOCK_SH)
            if self.n_slots > 1:
                handles.append(_open(f"{self.name}-{self.slot}"))
                fcntl.flock(handles[1], fcntl.LOCK_EX)
            yield
        finally:
            for handle in reversed(handles):
                os.close(handle)


def _open(name: str) -> int:
    """The lock's file; a link in its place is refused, since anybody may write there."""
    path = Path(tempfile.gettempdir()) / f"mkb-analyze-{os.getuid()}-{name}.lock"
    try:
        return os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as fault:
        raise UserError(f"{path}: the device's lock cannot be opened ({fault.strerror}); delete that file") from None
