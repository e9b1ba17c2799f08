"""Ctrl-C for real: a process in mid-annotate and one in mid-report end with 130, nothing half-made, and go on."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mkb_analyze import ctrl_c
from mkb_analyze.check import check
from mkb_analyze.console import run
from tests.annotators.support import study_of_notes
from tests.servers.misbehaving import Server

ROOT = Path(__file__).resolve().parents[2]


def started(*words, how=("-m", "mkb_analyze")):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OPENAI_API_KEY": "none", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, *how, *words],
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def interrupted(process, when, within_s=60.0):
    """(status, stdout, stderr) of a process whose group gets SIGINT, as from a terminal, the moment `when()` is true."""
    deadline = time.monotonic() + within_s
    while not when() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    assert process.poll() is None, process.communicate()
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


# Kernels are coloured by other processes however few they are; soon done, those wait for more.
OTHER_PROCESSES = """
import sys
from mkb_analyze.report import colours
from mkb_analyze.console import run
colours._WORTH_A_PROCESS = 1
sys.exit(run(sys.argv[1:]))
"""


def building(folder):
    """Whether a report is half written in the folder."""
    return any(p.name.endswith(".building") and any(p.rglob("*.html")) for p in folder.iterdir())


def n_lines(file):
    return file.read_bytes().count(b"\n") if file.exists() else 0


def test_in_mid_annotate(tmp_path):
    study = study_of_notes(tmp_path / "study", 80, "- The kernel takes 2048 us. It reads 2048 rows.\n")
    file = study.path / "annotations.jsonl"
    with Server(latency_s=0.05) as server:
        words = ["annotate", "--study", str(study.path), "--rater", "openai:tiny", "--base-url", server.url]
        words += ["--concurrency", "4"]
        status, out, err = interrupted(started(*words), lambda: n_lines(file) >= 10)
        assert (status, out) == (130, "") and err.count("\n") == 1 and "Traceback" not in err
        assert check(study.path).whole and 10 <= n_lines(file) < 80
        kept = file.read_bytes()
        again = shlex.split(err.split("goes on: ")[1])
        assert again == ["mkb-analyze", *words]
        done = started(*again[1:])
        assert done.communicate(timeout=120)[0].startswith("content: 80 items, ")
        assert done.returncode == 0
    assert file.read_bytes().startswith(kept)
    notes = [json.loads(line)["note_sha256"] for line in file.read_text().splitlines()]
    assert len(notes) == len(set(notes)) == 80


def test_in_mid_report(tmp_path):
    study, out = tmp_path / "study", tmp_path / "site"
    assert run(["simulate", "--out", str(study), "--models", "1", "--problems", "6", "--quiet"]) == 0
    words = ("report", "--study", str(study), "--out", str(out), "--resamples", "200")

    # An older report stays as it is when the next one is stopped.
    out.mkdir()
    (out / ".mkb-analyze-report").write_text("x\n")
    (out / "index.html").write_text("old")
    status, _, err = interrupted(started(*words), lambda: building(tmp_path))
    assert status == 130 and err.count("\n") == 1 and "goes on: mkb-analyze report" in err
    assert check(study).whole and (out / "index.html").read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["site", "study"]


def test_in_mid_report_the_processes_that_colour_kernels_end_quietly(tmp_path):
    study, out = tmp_path / "study", tmp_path / "site"
    assert run(["simulate", "--out", str(study), "--models", "1", "--problems", "6", "--quiet"]) == 0
    process = started(
        "report", "--study", str(study), "--out", str(out), "--resamples", "200", how=("-c", OTHER_PROCESSES)
    )
    status, _, err = interrupted(process, lambda: building(tmp_path))
    assert status == 130 and "goes on: mkb-analyze report" in err
    assert err.count("\n") == 1, err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["study"]
    # The whole group is gone: nobody lexes on for a report that will not be.
    assert not any(_group(p) == process.pid for p in Path("/proc").iterdir() if p.name.isdigit())


def _group(process):
    try:
        return int((process / "stat").read_text().rsplit(")", 1)[1].split()[2])
    except OSError:
        return None


def test_put_off_the_interrupt_comes_after_the_block():
    done = []
    with pytest.raises(KeyboardInterrupt), ctrl_c.put_off():
        os.kill(os.getpid(), signal.SIGINT)
        done.append("whole")
    assert done == ["whole"] and signal.getsignal(signal.SIGINT) is signal.default_int_handler
