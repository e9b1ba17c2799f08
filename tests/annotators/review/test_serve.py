"""`review serve` as a person runs it: loopback alone, calls nobody, its login works, and it stops at any instant."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from annotators.review import server as serving
from runner.errors import UserError
from tests.annotators.review.conftest import free_port
from tests.annotators.review.support import REAL, study

pytestmark = REAL


class Serve:
    """The verb in a process of its own, for one study."""

    def __init__(self, folder: Path, home: Path | None):
        self.study = study(folder)
        if home is not None:
            shutil.copytree(home, folder / "review" / "server")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.words = [sys.executable, "-m", "mkb_analyze", "review", "serve", "--study", str(folder)]
        self.words += ["--port", str(self.port)]
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("LABEL_STUDIO_")}
        self.process = subprocess.Popen(
            self.words, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def up(self) -> str:
        """What it prints until it is up."""
        said = ""
        while "Ctrl-C" not in said:
            line = self.process.stdout.readline()
            assert line, said + self.process.stderr.read()
            said += line
        return said

    def tree(self) -> list[int]:
        """The process numbers of everything that it started."""
        out, last = [], [self.process.pid]
        while last:
            found = [
                int(c) for p in last for t in Path(f"/proc/{p}/task").glob("*/children") for c in t.read_text().split()
            ]
            out, last = out + found, found
        return out

    def ends(self, status: int) -> str:
        out, err = self.process.communicate(timeout=40)
        assert self.process.returncode == status, err
        return out + err

    def closed(self) -> bool:
        """Nothing listens any more, within a few seconds."""
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)):
                    return True
            time.sleep(0.1)
        return False


@pytest.fixture
def serve(tmp_path, server_home):
    made: list[Serve] = []

    def start(name: str, home: Path | None = server_home) -> Serve:
        made.append(Serve(tmp_path / name, home))
        return made[-1]

    yield start
    for one in made:
        one.process.kill()
        one.process.wait()


def connections(pids: list[int]) -> set[tuple[str, str]]:
    """(local, remote) addresses of the sockets of some processes, in hexadecimal as the kernel writes them."""
    inodes = set()
    for pid in pids:
        for fd in Path(f"/proc/{pid}/fd").glob("*"):
            if (found := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(fd))) is not None:
                inodes.add(found[1])
    rows = [
        r.split() for name in ("tcp", "tcp6", "udp", "udp6") for r in Path(f"/proc/net/{name}").read_text().splitlines()
    ]
    return {(r[1].split(":")[0], r[2].split(":")[0]) for r in rows if len(r) > 9 and r[9] in inodes}


def test_it_listens_on_loopback_and_speaks_to_nobody_else(serve):
    one = serve("s")
    said = one.up()
    email, password = re.search(r"login (\S+)  password (\S+)", said).groups()
    with httpx.Client(base_url=one.url, follow_redirects=True, timeout=60) as client:
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', client.get("/user/login/").text)[1]
        form = {"csrfmiddlewaretoken": token, "email": email, "password": password}
        client.post("/user/login/", data=form, headers={"Referer": one.url})
        assert client.get("/api/current-user/whoami").json()["email"] == email
        met = connections(one.tree())
    assert met and all(local == "0100007F" for local, _ in met)
    assert {remote for _, remote in met} <= {"0100007F", "00000000"}
    pushed = subprocess.run(
        [sys.executable, "-m", "mkb_analyze", "review", "push", "--select", "all", "--study", str(one.study.path)],
        env=one.env,
        capture_output=True,
        text=True,
    )
    assert pushed.returncode == 0 and "1 tasks sent" in pushed.stdout, pushed.stderr
    assert (
        password not in pushed.stdout
        and oct((one.study.path / "review/server/login.json").stat().st_mode)[-3:] == "600"
    )
    again = subprocess.run(one.words, env=one.env, capture_output=True, text=True)
    assert again.returncode == 2 and "taken" in again.stderr and again.stderr.count("\n") == 1
    one.process.send_signal(signal.SIGTERM)
    assert "stopped; its data is under" in one.ends(0) and one.closed()


def test_control_c_while_it_starts_leaves_nothing_behind(serve):
    one = serve("s")
    while not one.tree():
        time.sleep(0.05)
    time.sleep(1.0)
    below = one.tree()
    one.process.send_signal(signal.SIGINT)
    assert "stopped" in one.ends(0)
    assert not any(Path(f"/proc/{pid}").exists() for pid in below) and one.closed()


def test_a_serve_that_is_killed_takes_its_server_along(serve):
    one = serve("s")
    one.up()
    one.process.kill()
    assert one.closed()


def test_an_installation_that_fails_or_was_cut_is_said_in_one_line_and_made_anew(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("MKB_LABEL_STUDIO_VENV", raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    half = tmp_path / "mkb-analyze" / f"label-studio-{serving.RELEASE}"
    (half / "bin").mkdir(parents=True)
    (half / "bin" / "label-studio").write_text("cut short")
    said = []
    for _ in range(2):
        with pytest.raises(UserError, match="could not be installed"):
            serving.environment(said.append)
        assert not (half / "bin" / "label-studio").exists()
    assert len(said) == 2
