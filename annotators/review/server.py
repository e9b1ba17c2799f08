"""Starts a local Label Studio in an environment of its own, under the study's folder, and stops it cleanly."""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from runner.errors import UserError

RELEASE = "1.23.2"  # its own pins (openai<2) keep it out of every other environment
START_S = 300.0
EMAIL = "admin@localhost.test"


def environment(home: Path, say: Callable[[str], None]) -> Path:
    """The folder of an environment that holds the server: MKB_LABEL_STUDIO_VENV, or made under `home` on first use."""
    venv = Path(os.environ.get("MKB_LABEL_STUDIO_VENV") or home / "venv")
    if not (venv / "bin" / "label-studio").exists():
        say(f"installing label-studio {RELEASE} into {venv} (about 1 GB, a few minutes, once)")
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
    return venv


def login(home: Path) -> dict[str, str]:
    """Address, e-mail, password and token of a study's own server; made once, readable by its owner alone."""
    file = home / "login.json"
    if not file.exists():
        home.mkdir(parents=True, exist_ok=True)
        made = {"email": EMAIL, "password": secrets.token_urlsafe(12), "token": secrets.token_hex(20)}
        with os.fdopen(os.open(file, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "w") as stream:
            json.dump(made, stream)
    return json.loads(file.read_text("utf-8"))


@contextmanager
def running(home: Path, port: int, say: Callable[[str], None] = print) -> Iterator[dict[str, str]]:
    """A server on the loopback address for as long as the block lasts; yields `login` with its `url`.

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
    venv, known, data = environment(home, say), login(home), home / "data"
    data.mkdir(parents=True, exist_ok=True)
    with open(home / "server.log", "ab") as log:
        process = subprocess.Popen(
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
        )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(process, url, home / "server.log")
        file = home / "url"
        file.write_text(url, "utf-8")
        yield {**known, "url": url}
    finally:
        _stop(process)


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
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        if process.poll() is not None:
            raise UserError(f"label-studio: ended with status {process.returncode} while starting; see {log}")
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
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
