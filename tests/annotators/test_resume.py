"""Killed at random instants and started again: every item once, nothing that was recorded is asked again.

`MKB_SOAK=1` runs the long form: 2,000 items, 100 kills.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from annotators.rubric import shipped
from annotators.tasks.content import Content, Note
from tests.annotators.support import lines, study_of_notes
from tests.servers import scripted

ROOT = Path(__file__).resolve().parents[2]
LONG = bool(os.environ.get("MKB_SOAK"))
N_ITEMS, N_KILLS = (2000, 100) if LONG else (200, 8)
CONCURRENCY = 8


def child(*arguments: str) -> subprocess.Popen:
    env = {**os.environ, "OPENAI_API_KEY": "none", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def logged(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def settled(file: Path) -> list[dict]:
    """The log once the server has finished with what a killed run had sent: it answers those into the void, later."""
    entries, quiet_since = logged(file), time.monotonic()
    while time.monotonic() - quiet_since < 0.3:
        time.sleep(0.02)
        now = logged(file)
        if len(now) != len(entries):
            entries, quiet_since = now, time.monotonic()
    return entries


@pytest.mark.timeout(7200 if LONG else 200)
def test_killed_at_random_instants_every_item_is_recorded_once(tmp_path):
    rng = random.Random(2026)
    study = study_of_notes(tmp_path / "study", N_ITEMS, "- The kernel takes 2048 us. It reads 2048 rows.\n")
    task, keys = Content(shipped("content")), {}
    for sha in study.manifest["notes"].values():
        (question,) = task.questions(Note.of(study.note(sha), sha))
        keys[scripted.key_of({"messages": [{"content": question.user}]})] = sha
    log = tmp_path / "answered.jsonl"
    server = child(
        "tests.servers.misbehaving", "--latency-ms", "15", "--trouble", "0.2", "--seed", "3", "--log", str(log)
    )
    try:
        url = server.stdout.readline().strip()
        n_killed, n_again, n_twice, recorded = 0, 0, 0, set()
        deadline = time.monotonic() + (7000 if LONG else 180)
        while time.monotonic() < deadline:
            n_answered = len(logged(log))
            run = child("tests.annotators.killable", str(study.path), url, str(CONCURRENCY))
            if n_killed < N_KILLS:
                # Kill when a random number of further answers came, a share of the rest, or before the first.
                more = rng.randint(0, max(1, 2 * (N_ITEMS - len(recorded)) // (N_KILLS - n_killed + 1)))
                while run.poll() is None and len(logged(log)) < n_answered + more:
                    time.sleep(0.01)
                time.sleep(rng.random() * 0.05)
                run.send_signal(signal.SIGKILL)
                n_killed += 1
            run.communicate()
            asked = Counter(keys[x["key"]] for x in settled(log)[n_answered:])
            # What stood in the study before this start was not asked again; the answers that were lost were in flight.
            assert not set(asked) & recorded
            recorded = {line["note_sha256"] for line in whole_lines(study)}
            lost = set(asked) - recorded
            assert len(lost) <= CONCURRENCY or run.returncode == 0
            n_again += len(lost)
            n_twice += asked.total() - len(asked)
            if run.returncode == 0 and n_killed >= N_KILLS:
                break
        counts = Counter(line["note_sha256"] for line in lines(study, "annotations"))
        n_answers = len(logged(log))
        print(
            f"kill test: {N_ITEMS} items, {n_killed} kills, {len(counts)} recorded once, "
            f"{n_answers} answered requests, "
            f"{n_again} of them in flight at a kill, {n_twice} answered twice within one run"
        )
        assert set(counts) == set(keys.values()) and set(counts.values()) == {1}
        assert n_twice == 0 and n_answers == N_ITEMS + n_again and n_again <= n_killed * CONCURRENCY
    finally:
        server.kill()
        server.communicate()


def whole_lines(study) -> list[dict]:
    """The lines of the table that are whole: what a run that starts now counts as there."""
    file = study.path / "annotations.jsonl"
    raw = file.read_bytes() if file.exists() else b""
    return [json.loads(line) for line in raw[: raw.rfind(b"\n") + 1].splitlines()]


def test_a_torn_last_line_is_asked_again(tmp_path):
    from annotators import panel
    from tests.annotators.support import FAST
    from tests.servers.misbehaving import Server

    study = study_of_notes(tmp_path, 5)
    with Server() as server:
        how = {"base_url": server.url, "limits": FAST, "progress": False}
        panel.annotate(study, "openai:tiny", **how)
        file = study.path / "annotations.jsonl"
        file.write_bytes(file.read_bytes()[:-40])
        with pytest.warns(UserWarning, match="torn"):
            assert panel.annotate(study, "openai:tiny", **how).n_asked == 1
    assert len({line["note_sha256"] for line in lines(study, "annotations")}) == 5 == len(lines(study, "annotations"))
