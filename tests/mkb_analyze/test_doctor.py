"""The doctor tries what it says, gives each cure, and no key of the environment leaves it."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from mkb_analyze import doctor
from mkb_analyze.console import run
from runner import dsls
from runner.dsls import _probe

KEY = "sk-a-long-secret-0123456789"


class Handler(BaseHTTPRequestHandler):
    """Refuses who has no key; `/health` is open, as Label Studio's."""

    seen: list[str | None] = []

    def do_GET(self):
        self.seen.append(self.headers.get("Authorization"))
        ok = self.path == "/health" or self.headers.get("Authorization") == f"Bearer {KEY}"
        self.send_response(200 if ok else 401)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    served = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=served.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{served.server_port}"
    served.shutdown()
    thread.join()
    served.server_close()


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "LABEL_STUDIO_URL", "LABEL_STUDIO_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def row(rows, what):
    return next(r for r in rows if r["what"].startswith(what))


def test_every_lack_has_its_cure():
    rows = doctor.examine(compile=False)
    assert all(r["cure"] for r in rows if not r["ok"]) and not any(r["cure"] for r in rows if r["ok"])


def test_an_endpoint_is_asked_with_the_key_and_the_key_is_not_shown(server, monkeypatch, capsys):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    address = server.replace("http://", f"http://user:{KEY}@")
    for url in (f"{server}/v1", f"{address}/v1?key={KEY}"):
        run(["doctor", "--endpoint", url, "--quick"])
        run(["doctor", "--endpoint", url, "--quick", "--json"])
    said = capsys.readouterr()
    assert KEY not in said.out + said.err and "endpoint http://127.0.0.1" in said.out
    assert run(["doctor", "--endpoint", f"{server}/v1", "--quick"]) == 0


def test_a_refused_key_and_a_silent_server_are_told_apart(server):
    assert "OPENAI_API_KEY" in row(doctor.examine(f"{server}/v1", compile=False), "endpoint")["cure"]
    silent = row(doctor.examine("http://127.0.0.1:9/v1", compile=False), "endpoint")
    assert "start the server" in silent["cure"] and "no answer" in silent["found"]
    assert "no http or https address" in row(doctor.examine("file:///etc", compile=False), "endpoint")["found"]


def test_an_endpoint_that_was_named_must_answer(capsys):
    assert run(["doctor", "--endpoint", "http://127.0.0.1:9/v1", "--quick"]) == 1
    assert "does not work: endpoint" in capsys.readouterr().out


def test_an_endpoint_of_the_environment_may_be_silent(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert run(["doctor", "--quick"]) == 0


def test_label_studio_is_reached_where_it_is_named(server, monkeypatch, tmp_path):
    assert "review serve" in row(doctor.examine(compile=False), "Label Studio")["cure"]
    home = tmp_path / "review" / "server"
    home.mkdir(parents=True)
    (home / "url").write_text(server)
    assert row(doctor.examine(study=tmp_path, compile=False), "Label Studio")["ok"]
    monkeypatch.setenv("LABEL_STUDIO_URL", server)
    assert row(doctor.examine(compile=False), "Label Studio")["ok"]


@pytest.mark.skipif(dsls.plugin("numba").missing() is not None, reason="numba is not installed")
def test_a_dsl_that_is_here_compiles_and_runs():
    # The others are tried by the page that says `mkb-analyze doctor`.
    seen = _probe.probe("numba", "cpu", True)
    assert seen.compiled and seen.ran is True, seen.fault


def test_a_broken_dsl_is_a_row_with_its_fault(monkeypatch, tmp_path):
    package = tmp_path / "numba"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('libllvm is not there')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    # The repository stands first on the child's path, the broken package before the installed one.
    made = doctor._tried("numba", "cpu", True)
    assert not made["ok"] and "libllvm is not there" in made["cure"] and "does not compile" in made["found"]


def test_every_dsl_has_its_probe():
    assert [n for n in dsls.names() if not _probe.has_probe(n)] == []


def test_rows_as_json(capsys):
    assert run(["doctor", "--quick", "--json"]) == 0
    assert {"what", "ok", "needed", "found", "cure"} == set(json.loads(capsys.readouterr().out)[0])
