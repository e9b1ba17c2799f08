"""Starts a local Label Studio in an environment of its own, under the study's folder, and stops it cleanly."""

import ctypes
import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from runner.errors import UserError

RELEASE = "1.23.2"  # its own pins (openai<2) keep it out of every other environment
START_S = 300.0
EMAIL = "admin@localhost.test"
_READY = "mkb-ready"
_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


def cache() -> Path:
    """Where environments are kept between runs and studies: XDG_CACHE_HOME, `~/.cache` where it is not set."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mkb-analyze"


def environment(say: Callable[[str], None]) -> Path:
    """The folder of an environment that holds the server: MKB_LABEL_STUDIO_VENV, or one of our own, made on first use.

    An installation that was stopped half-way is made anew; two at once wait for each other.
    """
    if own := os.environ.get("MKB_LABEL_STUDIO_VENV"):
        if not (Path(own) / "bin" / "label-studio").exists():
            raise UserError(f"MKB_LABEL_STUDIO_VENV {own}: no bin/label-studio there; install it or unset the variable")
        return Path(own)
    venv = cache() / f"label-studio-{RELEASE}"
    venv.parent.mkdir(parents=True, exist_ok=True)
    with open(venv.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (venv / _READY).exists():
            _install(venv, say)
            (venv / _READY).touch()
    return venv


def _install(venv: Path, say: Callable[[str], None]) -> None:
    say(f"installing label-studio {RELEASE} into {venv} (about 1 GB, a few minutes, once)")
    shutil.rmtree(venv, ignore_errors=True)
    steps = (
        [sys.executable, "-m", "venv", str(venv)],
        [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", f"label-studio=={RELEASE}"],
    )
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True)
        if done.returncode:
            tail = (done.stderr or done.stdout).strip().splitlines()[-1:]
            raise UserError(
                f"label-studio {RELEASE}: could not be installed ({' '.join(tail)[:300]}); install it by hand and "
                "name its environment in MKB_LABEL_STUDIO_VENV"
            )


def login(home: Path) -> dict[str, str]:
    """E-mail, password and token of a study's own server; made once, readable by its owner alone."""
    file = home / "login.json"
    if not file.exists():
        home.mkdir(parents=True, exist_ok=True)
        made = {"email": EMAIL, "password": secrets.token_urlsafe(12), "token": secrets.token_hex(20)}
        neighbour = file.with_suffix(f".{os.getpid()}.tmp")
        with os.fdopen(os.open(neighbour, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "w") as stream:
            json.dump(made, stream)
        os.replace(neighbour, file)
    return json.loads(file.read_text("utf-8"))


@dataclass(frozen=True)
class Local:
    """A server that runs on this machine for one study: where it is and who may log in."""

    url: str
    email: str
    password: str = field(repr=False)
    token: str = field(repr=False)
    process: subprocess.Popen = field(repr=False)

    def wait(self) -> None:
        """Return when the server ends by itself, which it does not do when all is well."""
        self.process.wait()


@contextmanager
def running(home: Path, port: int, say: Callable[[str], None] = print) -> Iterator[Local]:
    """A server on the loopback address for as long as the block lasts.

    Raises:
        UserError: the port is taken, the server cannot be installed, or does not come up.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            # Label Studio itself would move to the next port without a word.
            raise UserError(f"--port {port}: taken; stop what listens there or give another port") from None
    venv, known, data = environment(say), login(home), home / "data"
    if not data.exists():
        say("making a new database: the first start takes about a minute and a half")
    data.mkdir(parents=True, exist_ok=True)
    url, process = f"http://127.0.0.1:{port}", None
    try:
        process = _started(venv, data, known, port, home / "server.log")
        _wait(process, url, home / "server.log")
        (home / "url").write_text(url, "utf-8")
        yield Local(url, **known, process=process)
    finally:
        if process is not None:
            _stop(process)


def _started(venv: Path, data: Path, known: dict[str, str], port: int, log_file: Path) -> subprocess.Popen:
    with open(log_file, "ab") as log:
        return subprocess.Popen(
            [
                str(venv / "bin" / "label-studio"),
                "start",
                "--no-browser",
                "--internal-host",
                "127.0.0.1",
                "--port",
                str(port),
            ],
            env=_quiet(venv, data, known),
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_stop_with_parent,
        )


def _stop_with_parent() -> None:
    # Where we are killed outright nobody else would stop the server, and the next one would find its port taken.
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _quiet(venv: Path, data: Path, known: dict[str, str]) -> dict[str, str]:
    return {
        "PATH": f"{venv / 'bin'}:/usr/bin:/bin",
        "HOME": str(data),
        "LANG": "C.UTF-8",
        "LABEL_STUDIO_BASE_DATA_DIR": str(data),
        "LABEL_STUDIO_USERNAME": known["email"],
        "LABEL_STUDIO_PASSWORD": known["password"],
        "LABEL_STUDIO_USER_TOKEN": known["token"],
        "LABEL_STUDIO_ENABLE_LEGACY_API_TOKEN": "true",
        "LABEL_STUDIO_DISABLE_SIGNUP_WITHOUT_LINK": "true",
        "LABEL_STUDIO_COLLECT_ANALYTICS": "false",
        "LABEL_STUDIO_LATEST_VERSION_CHECK": "false",
        "LABEL_STUDIO_SENTRY_DSN": "",
        "LABEL_STUDIO_FRONTEND_SENTRY_DSN": "",
    }


def _wait(process: subprocess.Popen, url: str, log: Path) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy stands before the loopback address
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        if process.poll() is not None:
            raise UserError(f"label-studio: ended with status {process.returncode} while starting; see {log}")
        try:
            with opener.open(f"{url}/health", timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.5)
    raise UserError(f"label-studio: no answer after {START_S:.0f} s; see {log}")


def _stop(process: subprocess.Popen) -> None:
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            return
        try:
            process.wait(15)
            return
        except subprocess.TimeoutExpired:
            continue
