"""Verbs on this machine: what works here, and the shell's completion."""

from pathlib import Path
from typing import Any

from mkb_analyze.console import NEGATIVE, OK, Answer
from mkb_analyze.verbs.parse import switch


def examined(endpoint: Any, study: Any, quick: Any) -> Answer:
    """What is installed and works; status 1 when something needed does not."""
    from mkb_analyze.doctor import examine
    from runner.study import Study

    rows = examine(
        str(endpoint) if endpoint else None,
        Study(Path(str(study))).path if study else None,
        compile=not switch(quick, "quick"),
    )
    lines = [
        f"{'ok ' if r['ok'] else '-- '} {r['what']}: {r['found']}" + (f" ({r['cure']})" if r["cure"] else "")
        for r in rows
    ]
    lacking = [r["what"] for r in rows if r["needed"] and not r["ok"]]
    if lacking:
        lines.append(f"does not work: {', '.join(lacking)}")
    return Answer("\n".join(lines), rows, NEGATIVE if lacking else OK)


def completed(commands: type, shell: Any) -> Answer:
    """One shell's completion script."""
    from mkb_analyze.completion import script

    text = script(commands, str(shell))
    return Answer(text, {"shell": str(shell), "script": text})
