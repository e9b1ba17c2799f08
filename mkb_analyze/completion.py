"""The verbs as completion scripts for bash, zsh and fish, made from the command line's own signatures."""

import inspect
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mkb_analyze.console import GLOBAL
from runner.errors import UserError

SHELLS = ("bash", "zsh", "fish")


@dataclass(frozen=True)
class Word:
    """One thing that a verb takes: `values` are its choices, empty where any text or file will do."""

    name: str
    values: tuple[str, ...]
    switch: bool = False


@dataclass(frozen=True)
class Verb:
    """A verb's words (`problems check`), its summary, what stands after it in order, and its options."""

    words: str
    summary: str
    places: tuple[Word, ...]
    options: tuple[Word, ...]


def script(commands: type, shell: str) -> str:
    """The completion script for one shell; UserError for a shell that has none."""
    if shell not in SHELLS:
        raise UserError(f"{shell!r}: no completion for that shell; one of {', '.join(SHELLS)}")
    found = list(verbs(commands))
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](found).rstrip("\n")


def verbs(commands: type) -> Iterator[Verb]:
    """Every verb of the command line, groups opened, in the order of the overview."""
    for name, member in vars(commands).items():
        if name.startswith("_") or name == "overview":
            continue
        if inspect.isclass(member):
            for inner, method in vars(member).items():
                if not inner.startswith("_"):
                    yield _verb(f"{name} {inner}".replace("_", "-"), method)
        else:
            yield _verb(name.replace("_", "-"), member)


def _verb(words: str, method: Any) -> Verb:
    parameters = [p for p in inspect.signature(method).parameters.values() if p.name != "self"]
    made = [Word(p.name.replace("_", "-"), choices(words, p.name), "bool" in str(p.annotation)) for p in parameters]
    due = tuple(w for w, p in zip(made, parameters, strict=True) if p.default is p.empty and p.name != "study")
    summary = inspect.cleandoc(method.__doc__ or "").split("\n", 1)[0].rstrip(".")
    return Verb(words, summary, due, tuple(made))


def choices(words: str, name: str) -> tuple[str, ...]:
    """What may stand for one parameter of a verb, where that is a short list."""
    from mkb_analyze.pictures import FIGURES, STYLES
    from mkb_analyze.tables import TABLES
    from mkb_analyze.verbs.numbers import FORMATS
    from runner import dsls

    own = {
        ("table", "name"): TABLES,
        ("figure", "name"): FIGURES,
        ("attribute", "which"): ("harmed", "all"),
        ("completion", "shell"): SHELLS,
    }
    common = {
        "format": FORMATS,
        "style": STYLES,
        "dsl": dsls.names(),
        "task": ("content", "attribution", "fate"),
        "labels": ("panel", "gold"),
        "baseline": ("own", "pooled"),
        "rater": ("embedded",),
        "size": ("full", "small"),
        "device": ("cpu", "cuda"),
    }
    return tuple(own.get((words, name)) or common.get(name, ()))


def _tree(found: list[Verb]) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """First words with their summaries, and for each group its second words with theirs."""
    first: dict[str, str] = {}
    groups: dict[str, dict[str, str]] = {}
    for verb in found:
        head, _, inner = verb.words.partition(" ")
        if inner:
            groups.setdefault(head, {})[inner] = verb.summary
            first.setdefault(head, f"{head}: more words follow")
        else:
            first[head] = verb.summary
    return {h: (", ".join(groups[h]) if h in groups else s) for h, s in first.items()}, groups


def _bash(found: list[Verb]) -> str:
    first, groups = _tree(found)
    options = [f"        {shlex.quote(v.words)}) options={shlex.quote(_flags(v))} ;;" for v in found]
    values = [
        f"        {shlex.quote(f'{v.words} --{w.name}')}) values={shlex.quote(' '.join(w.values))} ;;"
        for v in found
        for w in v.options
        if w.values
    ]
    places = [
        f"        {shlex.quote(f'{v.words} {k}')}) values={shlex.quote(' '.join(w.values))} ;;"
        for v in found
        for k, w in enumerate(v.places)
        if w.values
    ]
    inner = [f"        {g}) values={shlex.quote(' '.join(w))} ;;" for g, w in groups.items()]
    switches = " ".join(sorted({f"--{w.name}" for v in found for w in v.options if w.switch} | _GLOBAL_SWITCHES))
    return _BASH.format(
        first=" ".join(first),
        groups=" ".join(groups),
        inner="\n".join(inner),
        options="\n".join(options),
        values="\n".join(values),
        places="\n".join(places),
        switches=switches,
        common=" ".join(GLOBAL),
    )


_GLOBAL_SWITCHES = {"--json", "--quiet", "--help"}
_BASH = """\
_mkb_analyze() {{
    local cur="${{COMP_WORDS[COMP_CWORD]}}" last="${{COMP_WORDS[COMP_CWORD-1]}}" verb="" options="{common}" values=""
    local i word place=0 taking=""
    COMPREPLY=()
    # readline splits at `=`: --format=md comes as three words.
    if [[ $cur == "=" ]]; then cur=""; elif [[ $last == "=" ]]; then last="${{COMP_WORDS[COMP_CWORD-2]}}"; fi
    if (( COMP_CWORD == 1 )); then
        COMPREPLY=( $(compgen -W "{first} --help --version" -- "$cur") )
        return
    fi
    verb="${{COMP_WORDS[1]}}"
    i=2
    if [[ " {groups} " == *" $verb "* ]]; then
        if (( COMP_CWORD == 2 )); then
            case "$verb" in
{inner}
            esac
            COMPREPLY=( $(compgen -W "$values --help" -- "$cur") )
            return
        fi
        verb="$verb ${{COMP_WORDS[2]}}"
        i=3
    fi
    for (( ; i < COMP_CWORD; i++ )); do
        word="${{COMP_WORDS[i]}}"
        if [[ $word == "=" ]]; then taking="yes"
        elif [[ $word == --* ]]; then
            taking="yes"
            [[ " {switches} " == *" $word "* ]] && taking=""
        elif [[ -n $taking ]]; then taking=""
        else place=$(( place + 1 ))
        fi
    done
    if [[ $last == --* && " {switches} " != *" $last "* ]]; then
        case "$verb $last" in
{values}
        esac
        [[ -n $values ]] && COMPREPLY=( $(compgen -W "$values" -- "$cur") )
        return
    fi
    case "$verb" in
{options}
    esac
    if [[ $cur == -* ]]; then
        COMPREPLY=( $(compgen -W "$options" -- "$cur") )
        return
    fi
    case "$verb $place" in
{places}
    esac
    [[ -n $values ]] && COMPREPLY=( $(compgen -W "$values" -- "$cur") )
}}
complete -o bashdefault -o default -F _mkb_analyze mkb-analyze
"""


def _flags(verb: Verb) -> str:
    return " ".join([*(f"--{w.name}" for w in verb.options), *GLOBAL])


def _zsh(found: list[Verb]) -> str:
    first, groups = _tree(found)
    cases = []
    for verb in found:
        specs = [f"--{w.name}" + ("" if w.switch else f"=:{w.name}:{_zsh_values(w)}") for w in verb.options]
        specs += [f"{k + 1}:{w.name}:{_zsh_values(w)}" for k, w in enumerate(verb.places)]
        specs += ["--json", "--quiet", "--help", "--log-file=:file:_files", "*:file:_files"]
        cases.append(f"        {shlex.quote(verb.words)}) _arguments {' '.join(map(shlex.quote, specs))} ;;")
    inner = [f"            {g}) names=({_zsh_described(w)}) ;;" for g, w in groups.items()]
    return _ZSH.format(
        first=_zsh_described(first), groups=" ".join(groups), inner="\n".join(inner), cases="\n".join(cases)
    )


_ZSH = """\
#compdef mkb-analyze
_mkb_analyze() {{
    local -a names
    local verb=$words[2] n=2
    if (( CURRENT == 2 )); then
        names=({first})
        _describe 'verb' names
        return
    fi
    if [[ " {groups} " == *" $verb "* ]]; then
        if (( CURRENT == 3 )); then
            case $verb in
{inner}
            esac
            _describe 'verb' names
            return
        fi
        verb="$verb $words[3]"
        n=3
    fi
    # _arguments counts places from the command: the verb's words are taken off.
    shift $(( n - 1 )) words
    (( CURRENT -= n - 1 ))
    case $verb in
{cases}
    esac
}}
compdef _mkb_analyze mkb-analyze
"""


def _zsh_values(word: Word) -> str:
    return f"({' '.join(word.values)})" if word.values else "_files"


def _zsh_described(words: dict[str, str]) -> str:
    return " ".join(shlex.quote(f"{name}:{summary.replace(':', ' ')}") for name, summary in words.items())


def _fish(found: list[Verb]) -> str:
    first, groups = _tree(found)
    lines = [_FISH]
    line = "complete -c mkb-analyze -n {} -a {} -d {} -f".format
    lines += [line("'__mkb_analyze_is'", name, shlex.quote(summary)) for name, summary in first.items()]
    for group, inner in groups.items():
        lines += [line(f"'__mkb_analyze_is {group}'", name, shlex.quote(text)) for name, text in inner.items()]
    for verb in found:
        when = f"-n '__mkb_analyze_after {verb.words}'"
        for word in verb.options:
            takes = "" if word.switch else " -x" if word.values else " -r"
            values = f" -a '{' '.join(word.values)}'" if word.values else ""
            lines.append(f"complete -c mkb-analyze {when} -l {word.name}{takes}{values}")
        for place in verb.places[:1]:
            if place.values:
                lines.append(
                    f"complete -c mkb-analyze -n '__mkb_analyze_is {verb.words}' -f -a '{' '.join(place.values)}'"
                )
    lines += [f"complete -c mkb-analyze -l {name}" for name in ("json", "quiet", "help")]
    lines.append("complete -c mkb-analyze -l log-file -r")
    return "\n".join(lines)


_FISH = """\
function __mkb_analyze_is
    set -l words (commandline -opc)
    test "$words[2..-1]" = "$argv"
end
function __mkb_analyze_after
    set -l words (commandline -opc)
    set -l last (math (count $argv) + 1)
    test (count $words) -ge $last; and test "$words[2..$last]" = "$argv"
end"""
