"""The child's walls: what is ended with it, and what never is."""

import os
import subprocess
import sys
import time

import pytest

from runner import session, walls


@pytest.fixture
def bystander():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("wait", [False, True], ids=["before it answered", "after it answered"])
def test_closing_a_child_ends_it_and_nobody_else(bystander, wait):
    child = session.start("numba", "cpu")
    if wait:
        child.lines.receive(time.monotonic() + 60)
        child.settle()
    members = child.members()
    assert os.getpid() not in members and bystander.pid not in members
    child.close()
    assert bystander.poll() is None
    assert child.process.returncode is not None
    until = time.monotonic() + 5
    while time.monotonic() < until and any(os.path.exists(f"/proc/{pid}") for pid in members):
        time.sleep(0.01)  # the kernel buries them in its own time
    assert not any(os.path.exists(f"/proc/{pid}") for pid in members)


def test_members_are_only_the_child_itself():
    child = session.start("numba", "cpu")
    try:
        child.lines.receive(time.monotonic() + 60)
        child.settle()
        assert child.members() == [child.pid]
    finally:
        child.close()


def test_no_keys_reach_the_child(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    child = session.start("numba", "cpu")
    try:
        assert "OPENAI_API_KEY" not in child._environment({})
        with open(f"/proc/{child.process.pid}/environ", "rb") as stream:
            assert b"sk-secret" not in stream.read()
    finally:
        child.close()


def test_the_tail_shows_no_control_characters(tmp_path):
    child = session.start("numba", "cpu")
    try:
        child.output.write(b"\x1b[2Jdone\n")
        assert "\x1b" not in child.tail() and "done" in child.tail()
    finally:
        child.close()


def test_the_folder_is_gone_after_closing():
    child = session.start("numba", "cpu")
    folder = child.folder
    child.close()
    assert not folder.exists()
    assert walls.isolation() == child.walls
