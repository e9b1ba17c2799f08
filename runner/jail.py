"""Start, watch and end one hostile child: its own session and namespaces, a bare environment, limits, no keys."""

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from runner.channel import Lines
from runner.walls import KEPT, isolation, launcher, own_account, python_path

RESIDENT_SHARE = 0.5
MOST_PROCESSES = 100  # a compiler starts a dozen
TAIL_BYTES = 4000
_LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG = 1


class Child:
    """One child process that serves one submission; `close()` ends it and everything it started."""

    def __init__(self, dsl: str, device: str, environment: dict[str, str], module: str = "runner.child"):
        self.dsl, self.device = dsl, device
        self.walls = isolation(device)
        self.folder = Path(tempfile.mkdtemp(prefix="mkb-child-"))
        self.scratch = self.folder / "scratch"
        self.scratch.mkdir()
        self.uid = own_account() if "uid" in self.walls else None
        if self.uid:
            self.folder.chmod(0o711)
            os.chown(self.scratch, self.uid, self.uid)
        ours, theirs = socket.socketpair()
        self.lines = Lines(ours)
        command = [
            *launcher(self.walls),
            sys.executable,
            "-s",
            "-P",
            "-m",
            module,
            str(theirs.fileno()),
            dsl,
            device,
            str(self.uid or 0),
        ]
        self.output = open(self.folder / "output", "w+b")  # noqa: SIM115  (closed with the child)
        self.process = subprocess.Popen(
            command,
            cwd=self.scratch,
            env=self._environment(environment),
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        theirs.close()
        self.pid = self.process.pid
        self._namespace: str | None = None  # known to be its own only once the child has answered
        self._memory_limit = RESIDENT_SHARE * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self.ended_for: str | None = None
        self._looked_at = 0.0

    def _environment(self, extra: dict[str, str]) -> dict[str, str]:
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        extra = dict(extra)
        modules = python_path(extra.pop("PYTHONPATH", ""))
        scratch = str(self.scratch)
        return {
            **kept,
            "HOME": scratch,
            "TMPDIR": scratch,
            "XDG_CACHE_HOME": scratch,
            "CUPY_CACHE_DIR": scratch + "/cupy",
            "NUMBA_CACHE_DIR": scratch + "/numba",
            "TRITON_CACHE_DIR": scratch + "/triton",
            "LANG": "C.UTF-8",
            "PYTHONPATH": modules,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "PYTHONFAULTHANDLER": "1",
            **extra,
        }

    def settle(self) -> None:
        """Learn the child's own process id, which differs from the launcher's inside a pid namespace."""
        if "pid" in self.walls:
            children = _children_of(self.process.pid)
            self.pid = children[0] if children else self.process.pid
            namespace = _namespace(self.pid)
            self._namespace = namespace if namespace != _namespace(os.getpid()) else None

    def look(self) -> None:
        """Kill the child if it holds more than its share of the memory; cheap enough to call often."""
        now = time.monotonic()
        if now - self._looked_at < 0.2:
            return
        self._looked_at = now
        members = self.members()
        if len(members) > MOST_PROCESSES:
            self.ended_for = f"{len(members)} processes at once, {MOST_PROCESSES} are the limit"
            self.kill()
        resident = sum(_resident_bytes(pid) for pid in members)
        if resident > self._memory_limit:
            self.ended_for = "out of memory: it held more than half of the machine's"
            self.kill()

    def members(self) -> list[int]:
        """All processes of this child: those of its own pid namespace if it has one, else those of its session."""
        if self._namespace is not None:
            return [pid for pid in _every_pid() if _namespace(pid) == self._namespace]
        return [pid for pid in _every_pid() if _session(pid) == self.process.pid and _command(pid) != "unshare"]

    def cpu_ns(self) -> int | None:
        """Processor time that all threads of the child have used so far, None where the kernel does not tell.

        It is read from the child's own processor-time clock, which the kernel brings up to date at every reading.
        """
        try:
            return time.clock_gettime_ns((~self.pid << 3) | 2)  # linux: CPUCLOCK_SCHED of another process
        except (OSError, OverflowError):
            return None

    def asleep_ns(self) -> int | None:
        """`cpu_ns` once it stands still (or after a few milliseconds anyway): the child waits for its next call."""
        before = self.cpu_ns()
        for _ in range(10):
            time.sleep(0.0003)
            now = self.cpu_ns()
            if now == before:
                break
            before = now
        return before

    def n_running(self) -> int:
        """Threads of the child that run at this moment (a spinning one's processor time is told only tick by tick)."""
        n_running = 0
        try:
            for task in os.listdir(f"/proc/{self.pid}/task"):
                with open(f"/proc/{self.pid}/task/{task}/stat", encoding="utf-8", errors="replace") as stream:
                    n_running += stream.read().rsplit(")", 1)[1].split()[0] == "R"
        except (OSError, IndexError):
            pass  # a thread ended meanwhile
        return n_running

    def n_threads(self) -> int | None:
        try:
            return len(os.listdir(f"/proc/{self.pid}/task"))
        except OSError:
            return None

    def mapped(self) -> set[str]:
        """Files that the child has mapped as code."""
        try:
            with open(f"/proc/{self.pid}/maps", encoding="utf-8", errors="replace") as stream:
                rows = (line.split(None, 5) for line in stream)
                return {row[5].strip() for row in rows if len(row) == 6 and "x" in row[1] and row[5].startswith("/")}
        except OSError:
            return set()

    def tail(self) -> str:
        """The last few thousand characters that the child printed, control characters made visible."""
        self.output.flush()
        size = os.fstat(self.output.fileno()).st_size
        text = os.pread(self.output.fileno(), TAIL_BYTES, max(0, size - TAIL_BYTES)).decode("utf-8", "replace")
        return "".join(c if c.isprintable() or c in "\n\t" else "�" for c in text).strip()

    def exit_words(self) -> str:
        """How the child ended, in words."""
        try:
            code = self.process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            return "closed the channel but lives on"
        code = 128 - code if code < 0 else code
        if self.ended_for:
            return f"was ended: {self.ended_for}"
        if code > 128:
            try:
                return f"was ended by {signal.Signals(code - 128).name}"
            except ValueError:
                pass
        return f"left with exit status {code}"

    def kill(self) -> None:
        """End every process of the child, at once: its group, and with the first process of its namespace all the rest.

        Only ids that belong to this child are ever signalled: the group it leads, its session, its namespace.
        """
        if self.process.poll() is not None and "pid" in self.walls:
            return  # the namespace ended with its first process, and the numbers may be somebody else's by now
        for pid in self.members():
            if pid not in (os.getpid(), os.getppid()):
                _signal(pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> None:
        self.kill()
        self.process.wait()
        self.lines.close()
        self.output.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def die_with_parent() -> None:
    """Run in a fresh child: have the kernel end it when the thread that started it is gone."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _every_pid() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat(pid: int) -> list[str]:
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
        return stream.read().rsplit(")", 1)[1].split()


def _session(pid: int) -> int | None:
    try:
        return int(_stat(pid)[3])
    except (OSError, IndexError, ValueError):
        return None


def _command(pid: int) -> str | None:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as stream:
            return stream.read().strip()
    except OSError:
        return None


def _children_of(pid: int) -> list[int]:
    found = []
    for other in _every_pid():
        try:
            if int(_stat(other)[1]) == pid:
                found.append(other)
        except (OSError, IndexError, ValueError):
            continue
    return found


def _namespace(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return None


def _resident_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as stream:
            fields = stream.read().split()
            return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def _signal(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
