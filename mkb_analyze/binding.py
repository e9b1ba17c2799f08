"""Words to the one call that they ask for: the verb found, its options checked, nothing run yet."""

import contextlib
import difflib
import functools
import inspect
import io
import json
import re
from collections.abc import Callable
from typing import Any

import fire
from fire.core import FireExit

from runner.errors import UserError


def bind(commands: type, argv: list[str]) -> Callable[[], Any]:
    """The call that the words ask for, bound by Fire but not yet made: every word finds its place before one runs."""
    calls: list[Callable[[], Any]] = []

    def recording(verb: Callable[..., Any]) -> Callable[..., None]:
        @functools.wraps(verb)
        def record(self: Any, *args: Any, **kwargs: Any) -> None:
            calls.append(functools.partial(verb, self, *args, **kwargs))

        return record

    def mirror(group: type) -> type:
        members = {
            n: mirror(v) if inspect.isclass(v) else recording(v)
            for n, v in vars(group).items()
            if not n.startswith("_") and n != "overview"
        }
        return type(group.__name__, (), members)

    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            fire.Fire(mirror(commands), command=_quoted(argv), name="mkb-analyze")
    except FireExit:
        calls.clear()
    if len(calls) != 1:
        why = re.sub(r"\x1b\[[0-9;]*m", "", said.getvalue()).strip().split("\n", 1)[0].removeprefix("ERROR: ")
        raise UserError(
            f"{' '.join(argv)}: {why or 'arguments are left over or missing'} (`mkb-analyze {argv[0]} --help`)"
        )
    return calls[0]


def find(commands: type, argv: list[str]) -> tuple[Any, int]:
    """The verb's function and how many words name it; one UserError for a word that names nothing."""
    node: Any = commands
    for depth, word in enumerate(argv):
        names = [
            n for n in vars(node if inspect.isclass(node) else type(node)) if not n.startswith("_") and n != "overview"
        ]
        name = word.replace("-", "_")
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            hint = f"did you mean {near[0].replace('_', '-')}?" if near else "`mkb-analyze --help` lists the verbs"
            raise UserError(f"{word!r}: no such verb here; {hint}")
        node = getattr(node, name)
        if not inspect.isclass(node):
            return node, depth + 1
        if argv[depth + 1 : depth + 2] in (["-h"], ["--help"]):
            return node, depth + 1
        if depth + 1 == len(argv):
            inner = ", ".join(n for n in vars(node) if not n.startswith("_"))
            raise UserError(f"{word}: one of {inner} is due after it; `mkb-analyze {word} --help` shows examples")
    raise UserError("no verb given; `mkb-analyze --help` lists them")


def check_flags(verb: Any, words: list[str]) -> None:
    """Fire runs a verb before it complains about a flag that it does not know; this complains first."""
    signature = inspect.signature(verb).parameters
    parameters = [n for n in signature if n != "self"]
    seen: set[str] = set()
    for word, following in zip(words, [*words[1:], "--"], strict=False):
        if not word.startswith("--") or word == "--":
            continue
        name = word[2:].split("=", 1)[0].replace("-", "_")
        bare = name.removeprefix("no") if name.startswith("no") and name not in parameters else name
        if bare not in parameters:
            near = difflib.get_close_matches(name, parameters, 1)
            known = ", ".join("--" + p.replace("_", "-") for p in parameters)
            hint = f"did you mean --{near[0].replace('_', '-')}?" if near else f"it takes {known}"
            raise UserError(f"{word.split('=')[0]}: no such option; {hint}")
        if name in seen:
            raise UserError(f"--{name}: given twice; give it once (several values go in one list, a,b)")
        seen.add(name)
        is_switch = "bool" in str(signature[bare].annotation)
        if "=" not in word and following.startswith("--") and not is_switch:
            raise UserError(f"{word}: a value is due after it")


def _quoted(argv: list[str]) -> list[str]:
    """The same words with every value written as a string literal, so that Fire cannot evaluate `1e5` or `a,b`."""
    out: list[str] = []
    for word in argv:
        if word.startswith("--") and "=" in word:
            name, value = word.split("=", 1)
            out.append(f"{name}={_literal(value)}")
        elif not out or re.fullmatch(r"[a-z][a-z-]*", word) or (word.startswith("-") and not re.match(r"-?\d", word)):
            out.append(word)
        else:
            out.append(_literal(word))
    return out


def _literal(value: str) -> str:
    return (
        value
        if re.fullmatch(r"[A-Za-z_][\w-]*", value) and value not in ("None", "True", "False")
        else json.dumps(value)
    )
