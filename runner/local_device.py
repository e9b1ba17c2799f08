"""One device of this machine: kernels are graded on it one at a time, whoever asks, and nobody is charged the wait."""

import asyncio
import fcntl
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from runner import contract
from runner.catalogue import Problem
from runner.errors import UserError
from runner.evaluate import evaluate
from runner.execute import Graded
from runner.pool import Pool
from runner.records import Stage, Verdict


class LocalDevice:
    """An `Evaluate` on one device. Other runs on this machine wait for the same device, by a lock the dead do not hold.

    Args:
        device: `cuda` or `cpu`.
        timeout_s: the longest that one evaluation may take.
    """

    def __init__(self, device: str, timeout_s: float = contract.MAX_EVAL_S):
        self.device, self.timeout_s = device, timeout_s
        # A child ends with the thread that started it, so one thread starts them all; its queue is the device's queue.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"evaluate-{device}")
        self._pool: Pool | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="mkb-kernels-", ignore_cleanup_errors=True)

    async def __call__(self, problem: Problem, dsl: str, kernel: str) -> Graded:
        asked = time.monotonic()
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._grade, problem, dsl, kernel, asked)

    def _grade(self, problem: Problem, dsl: str, kernel: str, asked: float) -> Graded:
        lock = _lock(self.device)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            waited_s = time.monotonic() - asked
            self._pool = self._pool or Pool(n_waiting=1)
            path = Path(self._folder.name) / "kernel.py"
            path.write_text(kernel, "utf-8")
            verdict = evaluate(
                problem,
                dsl,
                path,
                device=self.device,
                timeout_s=self.timeout_s,
                child=self._pool.take(dsl, self.device, successor=False),
                before_timing=self._pool.wait_until_ready,
            )
            return Graded(verdict, waited_s)
        except UserError:
            raise
        except Exception as fault:  # a full disk, no memory, a reference that broke: no kernel is to blame
            reason = f"infrastructure fault: {type(fault).__name__}: {str(fault)[:300]}"
            verdict = Verdict(passed=False, stage=Stage.LOAD, reason=reason, infrastructure=True)
            return Graded(verdict, time.monotonic() - asked)
        finally:
            os.close(lock)
            if self._pool is not None:
                self._pool.prepare(dsl, self.device)  # the next kernel's child imports while its author thinks

    def close(self) -> None:
        """End the waiting children."""
        if self._pool is not None:
            self._thread.submit(self._pool.close).result()
        self._thread.shutdown()
        self._folder.cleanup()


def _lock(device: str) -> int:
    """The machine's lock file for a device; a link in its place is refused, since anybody may write there."""
    path = Path(tempfile.gettempdir()) / f"mkb-analyze-{os.getuid()}-{device}.lock"
    try:
        return os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as fault:
        raise UserError(f"{path}: the device's lock cannot be opened ({fault.strerror}); delete that file") from None
