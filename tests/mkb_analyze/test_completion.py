"""The completion scripts, asked as a shell asks them: real bash, and zsh and fish where they are installed."""

import shlex
import shutil
import subprocess

import pytest

from mkb_analyze import completion
from mkb_analyze.cli import Commands
from mkb_analyze.console import run
from mkb_analyze.pictures import FIGURES
from mkb_analyze.tables import TABLES

WORDS = [v.words for v in completion.verbs(Commands)]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("completion")
    for shell in completion.SHELLS:
        (folder / shell).write_text(completion.script(Commands, shell))
    return folder


def bash(scripts, *words):
    """What bash offers for the last of the words: COMPREPLY, sorted."""
    asked = " ".join(shlex.quote(w) for w in ("mkb-analyze", *words))
    code = (
        f"source {scripts / 'bash'}; complete -p mkb-analyze >/dev/null || exit 3; "
        f"COMP_WORDS=({asked}); COMP_CWORD={len(words)}; _mkb_analyze; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    done = subprocess.run(["bash", "--norc", "-c", code], capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stderr) == (0, "")
    return sorted(done.stdout.split())


def test_bash_registers_with_complete(scripts):
    done = subprocess.run(
        ["bash", "--norc", "-c", f"source {scripts / 'bash'}; complete -p mkb-analyze"], capture_output=True, text=True
    )
    assert done.stdout.strip() == "complete -o bashdefault -o default -F _mkb_analyze mkb-analyze"


def test_bash_offers_every_verb(scripts):
    assert set(bash(scripts, "")) == {w.split()[0] for w in WORDS} | {"--help", "--version"}
    for word in WORDS:
        assert word.split()[-1] in bash(scripts, *word.split()[:-1], word.split()[-1][:2])


@pytest.mark.parametrize(
    "words, offered",
    [
        (("ta",), ["table"]),
        (("review", "pu"), ["pull", "push"]),
        (("table", ""), sorted(TABLES)),
        (("table", "--study", "S", "stand"), ["standing"]),
        (("table", "--json", "stand"), ["standing"]),
        (("table", "outcomes", "--form"), ["--format"]),
        (("table", "outcomes", "--format", ""), ["csv", "json", "latex", "md", "parquet"]),
        (("table", "outcomes", "--format", "=", "la"), ["latex"]),
        (("table", "outcomes", "--format", "="), ["csv", "json", "latex", "md", "parquet"]),
        (("figure", ""), sorted(FIGURES)),
        (("figure", "causes", "--style", "p"), ["paper"]),
        (("completion", ""), ["bash", "fish", "zsh"]),
        (("attribute", "--which", ""), ["all", "harmed"]),
        (("review", "push", "--task", ""), ["attribution", "content", "fate"]),
        (("report", "--study", ""), []),
        (("nonsense", "--x"), []),
    ],
)
def test_bash_offers_what_may_stand_there(scripts, words, offered):
    assert bash(scripts, *words) == offered


def test_bash_offers_every_option_of_every_verb(scripts):
    for verb in completion.verbs(Commands):
        assert {f"--{w.name}" for w in verb.options} | {"--json", "--log-file"} <= set(
            bash(scripts, *verb.words.split(), "--")
        )


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
@pytest.mark.parametrize(
    "line, offered",
    [
        ("mkb-analyze ta", {"table"}),
        ("mkb-analyze review pu", {"pull", "push"}),
        ("mkb-analyze table outcomes --format la", {"latex"}),
        ("mkb-analyze table stand", {"standing"}),
        ("mkb-analyze problems check --se", {"--seed"}),
    ],
)
def test_fish_offers_the_same(scripts, line, offered):
    code = f"source {scripts / 'fish'}; complete -C {shlex.quote(line)}"
    done = subprocess.run(["fish", "--no-config", "-c", code], capture_output=True, text=True, timeout=20)
    assert done.returncode == 0 and {x.split("\t")[0] for x in done.stdout.splitlines()} == offered, done.stderr


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
@pytest.mark.parametrize(
    "typed, completed",
    [
        ("mkb-analyze compl", "mkb-analyze completion "),
        ("mkb-analyze review pul", "mkb-analyze review pull "),
        ("mkb-analyze table standi", "mkb-analyze table standing "),
        ("mkb-analyze table standing --format late", "mkb-analyze table standing --format latex "),
        ("mkb-analyze problems check --see", "mkb-analyze problems check --seed"),
    ],
)
def test_zsh_completes_at_a_terminal(scripts, typed, completed):
    import os
    import pty
    import select
    import time

    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="dumb", PS1="> ", ZDOTDIR="/nonexistent")
        os.execvp("zsh", ["zsh", "-f", "-i"])
    try:
        setup = f"autoload -Uz compinit && compinit -u -D; source {scripts / 'zsh'}; print READY$((1))\n"
        os.write(terminal, setup.encode())
        seen, deadline, asked = b"", time.monotonic() + 20, False
        while time.monotonic() < deadline and completed.encode() not in seen.replace(b"\r", b""):
            if select.select([terminal], [], [], 0.1)[0]:
                seen += os.read(terminal, 4096)
            if not asked and b"READY1" in seen:
                seen, asked = b"", True
                os.write(terminal, typed.encode() + b"\t")
        assert completed.encode() in seen, seen[-400:]
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(terminal)


def test_an_unknown_shell_is_named_with_the_known_ones(capsys):
    assert run(["completion", "tcsh"]) == 2
    assert "one of bash, zsh, fish" in capsys.readouterr().err
