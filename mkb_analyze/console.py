"""Arguments in, one answer out: flags checked before anything runs, one line per mistake, exit statuses."""

import contextlib
import difflib
import functools
import inspect
import io
import json
import logging
import os
import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import fire
from fire.core import FireExit

from runner.errors import UserError

OK, NEGATIVE, USAGE, INTERRUPTED = 0, 1, 2, 130
_GLOBAL = ("--json", "--quiet", "--help", "-h", "--log-file")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class Answer:
    """What a verb says: text for a person, data for `--json`, and the exit status (1 for a negative verdict)."""

    text: str
    data: Any = None
    status: int = OK


def printable(text: str) -> str:
    """Text that cannot drive a terminal: control and direction characters become visible escapes."""
    return _CONTROL.sub(lambda m: f"\\x{ord(m[0]):02x}", text)


def run(argv: list[str]) -> int:
    """Run one command line and return its exit status: 0 done, 1 negative verdict, 2 the user's mistake, 130 stopped."""
    as_json = "--json" in argv
    quiet = "--quiet" in argv
    argv = [a for a in argv if a not in ("--json", "--quiet")]
    try:
        argv = _log_file(argv)
        if quiet:
            os.environ["MKB_ANALYZE_QUIET"] = "1"
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.showwarning = _one_line_warning
            return _dispatch(argv, as_json)
    except UserError as mistake:
        return _fail(str(mistake), as_json)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except KeyboardInterrupt:
        print("stopped; what was finished is kept: run the same command again to go on", file=sys.stderr)
        return INTERRUPTED
    except PermissionError as fault:
        return _fail(f"{fault.filename}: {fault.strerror}; give a place that you may read and write", as_json)
    except OSError as fault:
        if fault.filename is None and fault.errno is None:
            raise
        return _fail(f"{fault.filename or 'disk'}: {fault.strerror}; nothing recorded before this was lost", as_json)


def _dispatch(argv: list[str], as_json: bool) -> int:
    from mkb_analyze.cli import Commands

    if not argv or argv[0] in ("-h", "--help", "help"):
        print(Commands.overview())
        return OK
    if argv[0] == "--version":
        from importlib.metadata import version

        print(version("mkb-analyze"))
        return OK
    if argv == ["problems"]:
        argv = ["problems", "list"]
    verb, depth = _find(Commands, argv)
    if "--help" in argv or "-h" in argv:
        print(inspect.cleandoc(verb.__doc__ or ""))
        return OK
    _check_flags(verb, argv[depth:])
    result = _bind(Commands, argv)()
    if as_json:
        print(json.dumps(result.data, indent=1, sort_keys=True, ensure_ascii=True, default=str))
    elif result.text:
        print(printable(result.text))
    return result.status


def _bind(commands: type, argv: list[str]) -> Callable[[], Answer]:
    """The call that the words ask for, bound by Fire but not yet made: nothing runs before every word found its place."""
    calls: list[Callable[[], Answer]] = []

    def recording(verb: Callable[..., Answer]) -> Callable[..., None]:
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


def _find(commands: type, argv: list[str]) -> tuple[Any, int]:
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
        default = vars(node).get("__doc__")
        if depth + 1 == len(argv) or argv[depth + 1] in ("-h", "--help"):
            inner = ", ".join(n for n in vars(node) if not n.startswith("_"))
            if depth + 1 < len(argv):
                print(inspect.cleandoc(default or ""))
                raise SystemExit(OK)
            raise UserError(f"{word}: one of {inner} is due after it; `mkb-analyze {word} --help` shows examples")
    raise UserError("no verb given; `mkb-analyze --help` lists them")


def _check_flags(verb: Any, words: list[str]) -> None:
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
        elif (
            word.startswith("-")
            and not re.fullmatch(r"-?\d.*", word)
            or len(out) == 0
            or re.fullmatch(r"[a-z][a-z-]*", word)
        ):
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


def _log_file(argv: list[str]) -> list[str]:
    for index, word in enumerate(argv):
        if word == "--log-file" or word.startswith("--log-file="):
            joined = "=" in word
            if not joined and index + 1 >= len(argv):
                raise UserError("--log-file: a path is due after it")
            path = word.split("=", 1)[1] if joined else argv[index + 1]
            logging.basicConfig(
                filename=path, level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s"
            )
            return argv[:index] + argv[index + (1 if joined else 2) :]
    return argv


def _one_line_warning(
    message: Any, category: type, filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    if issubclass(category, (DeprecationWarning, PendingDeprecationWarning, FutureWarning)):
        return
    print(f"warning: {printable(' '.join(str(message).split()))}", file=sys.stderr)


def _fail(line: str, as_json: bool) -> int:
    print(
        json.dumps({"error": line}) if as_json else f"mkb-analyze: {printable(line)}",
        file=sys.stdout if as_json else sys.stderr,
    )
    return USAGE
