"""Every command that stands in a page works: the lines of each page's `sh` blocks are run in order, in a place of their own."""

import contextlib
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from mkb_analyze.console import run
from tests.mkb_analyze import upstream_store

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    p
    for p in (
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "problems" / "README.md",
        ROOT / "examples" / "README.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    )
    if p.exists()
]
_BLOCK = re.compile(r"^```(?:sh|bash)?\n(.*?)^```", re.M | re.S)


def commands(page: Path) -> list[str]:
    """The lines of a page that call the project's command line, comments and continuations taken off."""
    blocks = _BLOCK.findall(page.read_text("utf-8"))
    return [line for block in blocks for line in commands_of(block.replace("\\\n", " ").splitlines())]


def commands_of(lines: list[str]) -> list[str]:
    """Those lines that call the command line."""
    found = []
    for line in lines:
        line = line.split(" # ")[0].split("   #")[0].strip().removeprefix("$ ")
        line = re.sub(r"^(?:\.venv/bin/)?python3? -m mkb_analyze\b", "mkb-analyze", line)
        if line.startswith("mkb-analyze "):
            found.append(line)
    return found


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    """A folder with what the pages speak of: a store, a skill library, kernels, the examples and the tests' data."""
    upstream_store.write(tmp_path / "results" / "my-model", 1, n_replicates=1)
    for folder in ("examples", "tests/data"):
        (tmp_path / folder).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / folder).symlink_to(ROOT / folder)
    (tmp_path / "outputs").mkdir()
    if (ROOT / "examples" / "study").exists():
        shutil.copytree(ROOT / "examples" / "study", tmp_path / "outputs" / "demo" / "study")
    shutil.copytree(ROOT / "tests" / "data" / "notes" / "notes", tmp_path / "my_skills")
    attempt = tmp_path / "my_kernels" / "hand" / "p28_r1_solo_tirx"
    attempt.mkdir(parents=True)
    kernel = (ROOT / "examples" / "kernels" / "28_tirx_cpu.py").read_text("utf-8")
    (attempt / "s1.py").write_text(kernel)
    (attempt / "final.py").write_text(kernel)
    (attempt / "SKILL.md").write_text("# Row norm\n\n- One pass, float32 sums: 2.1 ms measured.\n")
    (tmp_path / "kernel.py").write_text(kernel)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-key")
    return tmp_path


@contextlib.contextmanager
def model_server():
    """A well-behaved OpenAI-compatible server on loopback; yields its base URL."""
    from tests.servers.misbehaving import Server

    with Server() as server:
        yield server.url


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_command_of_a_page_works(page, workspace, capsys):
    with model_server() as url:
        for line in commands(page):
            words = shlex.split(line.replace("http://127.0.0.1:8080/v1", url))[1:]
            status = run(words)
            said = capsys.readouterr()
            assert status == 0, f"{line}\n{said.out[-800:]}\n{said.err[-800:]}"


def test_readme_has_its_commands():
    assert len(commands(ROOT / "README.md")) > 12


def test_json_is_json_on_verbs_of_the_readme(workspace, capsys):
    for line in (
        "mkb-analyze problems list --json",
        "mkb-analyze import notes my_skills --study s --json",
        "mkb-analyze doctor --json",
    ):
        assert run(shlex.split(line)[1:]) == 0
        json.loads(capsys.readouterr().out)
