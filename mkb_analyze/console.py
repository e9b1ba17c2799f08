"""Arguments in, one answer out: flags checked before anything runs, one line per mistake, exit statuses."""

import contextlib
import inspect
import json
import logging
import math
import os
import re
import shlex
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mkb_analyze import binding
from runner.errors import UserError

OK, NEGATIVE, USAGE, FAULT, INTERRUPTED = 0, 1, 2, 3, 130
GLOBAL = ("--json", "--quiet", "--log-file", "--help")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
log = logging.getLogger("mkb_analyze")


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
    """Run one command line and return its exit status.

    0 done, 1 a negative verdict, 2 the user's mistake, 3 a fault of this program, 130 stopped by Ctrl-C.
    """
    typed = argv
    as_json = "--json" in argv
    quiet = "--quiet" in argv
    argv = [a for a in argv if a not in ("--json", "--quiet")]
    try:
        argv, path = _log_file(argv)
        with _quietly(quiet), _logging(path), warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.showwarning = _one_line_warning
            began = time.monotonic()
            log.info("begin: mkb-analyze %s", printable(shlex.join(typed)))
            status = _guarded(argv, typed, as_json)
            log.info("end: status %d after %.1f s", status, time.monotonic() - began)
            return status
    except UserError as mistake:
        return _fail(str(mistake), as_json)
    except OSError as fault:
        return _fail(f"--log-file {fault.filename}: {fault.strerror}; give a file that you may write", as_json)


def _guarded(argv: list[str], typed: list[str], as_json: bool) -> int:
    """The command line's own exit status, every fault in words."""
    try:
        return _dispatch(argv, as_json)
    except UserError as mistake:
        return _fail(str(mistake), as_json)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except KeyboardInterrupt:
        again = f"mkb-analyze {shlex.join(typed)}"
        return _fail(f"stopped; what was finished is kept, and this goes on: {again}", as_json, INTERRUPTED)
    except PermissionError as fault:
        return _fail(f"{fault.filename}: {fault.strerror}; give a place that you may read and write", as_json)
    except OSError as fault:
        if fault.filename is None and fault.errno is None:
            return _fault(fault, as_json)
        return _fail(f"{fault.filename or 'disk'}: {fault.strerror}; nothing recorded before this was lost", as_json)
    except Exception as fault:
        return _fault(fault, as_json)


@contextlib.contextmanager
def _quietly(quiet: bool) -> Iterator[None]:
    before = os.environ.get("MKB_ANALYZE_QUIET")
    if quiet:
        os.environ["MKB_ANALYZE_QUIET"] = "1"
    try:
        yield
    finally:
        if quiet and before is None:
            os.environ.pop("MKB_ANALYZE_QUIET", None)


@contextlib.contextmanager
def _logging(path: str | None) -> Iterator[None]:
    """Everything that is logged goes to the file, one line each."""
    root, level = logging.getLogger(), logging.getLogger().level
    # Without any handler Python would print warnings and errors a second time.
    handler: logging.Handler = logging.NullHandler()
    if path is not None:
        handler = logging.FileHandler(path, encoding="utf-8", errors="backslashreplace")
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
        root.setLevel(logging.INFO)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.setLevel(level)
        root.removeHandler(handler)
        handler.close()


def _dispatch(argv: list[str], as_json: bool) -> int:
    from mkb_analyze.cli import Commands

    if not argv or argv[0] in ("-h", "--help", "help"):
        return _say(Answer(Commands.overview(), {"help": Commands.overview()}), as_json)
    if argv[0] == "--version":
        from importlib.metadata import version

        return _say(Answer(version("mkb-analyze"), {"version": version("mkb-analyze")}), as_json)
    if argv == ["problems"]:
        argv = ["problems", "list"]
    verb, depth = binding.find(Commands, argv)
    if "--help" in argv or "-h" in argv:
        text = inspect.cleandoc(verb.__doc__ or "")
        return _say(Answer(text, {"help": text}), as_json)
    binding.check_flags(verb, argv[depth:])
    call = binding.bind(Commands, argv)
    # What a verb prints on its way is for people: under --json the standard output holds the one answer.
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        result = call()
    return _say(result, as_json)


def _say(answer: Answer, as_json: bool) -> int:
    if as_json:
        print(json.dumps(plain_json(answer.data), indent=1, sort_keys=True, ensure_ascii=True, allow_nan=False))
    elif answer.text:
        print(printable(answer.text))
    return answer.status


def plain_json(value: Any) -> Any:
    """Plain JSON values: what is not a number is null, an array a list, and all else its text."""
    if isinstance(value, dict):
        return {str(k): plain_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain_json(v) for v in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "tolist"):
        return plain_json(value.tolist())
    return str(value)


def _log_file(argv: list[str]) -> tuple[list[str], str | None]:
    """The words without --log-file, and the path that it names."""
    for index, word in enumerate(argv):
        if word == "--log-file" or word.startswith("--log-file="):
            joined = "=" in word
            if not joined and (index + 1 >= len(argv) or argv[index + 1].startswith("--")):
                raise UserError("--log-file: a path is due after it")
            path = word.split("=", 1)[1] if joined else argv[index + 1]
            return argv[:index] + argv[index + (1 if joined else 2) :], path
    return argv, None


def _one_line_warning(
    message: Any, category: type, filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    if issubclass(category, (DeprecationWarning, PendingDeprecationWarning, FutureWarning)):
        return
    line = printable(" ".join(str(message).split()))
    log.warning("%s", line)
    print(f"warning: {line}", file=sys.stderr)


def _fail(line: str, as_json: bool, status: int = USAGE) -> int:
    log.error("%s", printable(line))
    print(
        json.dumps({"error": line, "status": status}) if as_json else f"mkb-analyze: {printable(line)}",
        file=sys.stdout if as_json else sys.stderr,
    )
    return status


def _fault(fault: BaseException, as_json: bool) -> int:
    """A fault of this program: the whole trace for who mends it, and a status that no verdict has."""
    log.exception("fault of the program")
    traceback.print_exception(fault, file=sys.stderr)
    line = f"{type(fault).__name__}: {fault}; this is a fault of mkb-analyze: please report it with the lines above"
    return _fail(line, as_json, FAULT)
