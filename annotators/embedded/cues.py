"""Turns a text into cues: numbers with units, hedges, failures, orders, negation and the like."""

import re
from functools import cache

import numpy as np

from annotators.embedded.wording import HAN, PAIRS, WORDS

_N = r"\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?"

# What a number measures; the first pattern that fits names it, and the name replaces it in the word features.
_NUMBERS = re.compile(
    rf"(?=[~≈+\-\d\[(])(?:(?P<ratio>~?[+-]?{_N}\s?(?:[x×](?![\w\d])|倍))"
    rf"|(?P<percent>[~≈+-]?{_N}\s?(?:%|percent|pp\b|成(?=[，。、；\s]|$)))"
    rf"|(?P<rate>{_N}\s?(?:[tgm]i?b/s|[tgpm]?flops?(?:/s)?\b|[tgpm]flop/s|tok(?:ens)?/s|gb/sec|[tg]ops\b|req/s|it/s))"
    rf"|(?P<time>{_N}\s?(?:ns|us|µs|μs|ms|msec|sec|seconds?|s|min|minutes?|cycles?|毫秒|微秒|秒|分钟|周期)(?![\w\d]))"
    rf"|(?P<bytes>{_N}\s?(?:[kmgt]i?b|bytes?|字节)(?![\w\d/]))"
    rf"|(?P<error>\d(?:\.\d+)?e-\d+)"
    rf"|(?P<arrow>{_N}\s?(?:->|→|=>|到|⇒)\s?{_N})"
    rf"|(?P<shape>\d+\s?[x×*]\s?\d+(?:\s?[x×*]\s?\d+)*"
    rf"|[\[(]\s?[a-z\d]{{1,8}}(?:=\d+)?(?:,\s?[a-z\d]{{1,8}}(?:=\d+)?){{1,6}}\s?[\])])"
    rf"|(?P<count>\d+\s?(?:/|of|out of)\s?\d+)"
    rf"|(?P<plain>{_N}))"
)
_KINDS = ("ratio", "percent", "rate", "time", "bytes", "error", "arrow", "shape", "count", "plain")

_CODE = re.compile(r"`[^`\n]*`")
_HAN = re.compile(r"[\u3400-\u9fff]")
_EQUATION = re.compile(r"[a-z0-9_)\]] = [a-z_(\[]|[@·∑Σ^]|\b(?:sum|exp|max|log|rowsum)\(")
_API = re.compile(
    r"\w\.\w+\(|\w_\w+\(|@[a-z]\w+|\w=[\w\"'\[(]|::"
    r"|\b(?:t|tl|cute|cutlass)\.\w|\w\.(?:py|cu|cpp|cuh|h)\b|<\w+[,>]"
)
_WORDS = tuple((name, re.compile(f"(?:{p})")) for name, p in WORDS.items())
_HANS = tuple((name, re.compile(p)) for name, p in HAN.items())
_IMPERATIVES = frozenset(
    (
        "use",
        "keep",
        "put",
        "pass",
        "set",
        "check",
        "run",
        "make",
        "avoid",
        "prefer",
        "try",
        "read",
        "start",
        "stop",
        "pad",
        "split",
        "fuse",
        "hoist",
        "move",
        "compute",
        "load",
        "store",
        "write",
        "add",
        "look",
        "measure",
        "time",
        "compare",
        "verify",
        "confirm",
        "profile",
        "test",
        "sweep",
        "dump",
        "take",
        "drop",
        "cut",
        "skip",
        "swap",
        "pin",
        "warm",
        "compile",
        "treat",
        "assign",
        "give",
        "let",
        "leave",
        "build",
        "plug",
        "redo",
        "do",
        "launch",
        "map",
        "stage",
        "cache",
        "issue",
        "unroll",
        "vectorize",
        "replace",
        "reduce",
        "switch",
        "call",
        "validate",
        "grep",
        "bisect",
        "disable",
        "enable",
        "force",
        "isolate",
        "ask",
        "log",
        "fix",
        "feed",
        "print",
        "shrink",
        "repeat",
        "rerun",
        "flush",
        "lock",
        "turn",
        "search",
        "don't",
    )
)
_SIGNS = (
    "imperative",
    "gerund",
    "article",
    "code_share",
    "length",
    "short",
    "long",
    "han_share",
    "bold_start",
    "bold_all",
    "colon",
    "arrow_sign",
    "pipe",
    "caps",
    "question_end",
    "n_numbers",
)
NAMES = (*(f"has_{k}" for k in _KINDS), *WORDS, *(n for n in PAIRS if n not in WORDS), "equation", "api", *_SIGNS)
_AT = {name: n for n, name in enumerate(NAMES)}
_PAIR_AT = {pair: _AT[name] for name, pairs in PAIRS.items() for pair in pairs.split("|")}
_LEADS = frozenset(("always", "never", "first", "then", "please", "instead", "just", "do", "fix", "rule", "to"))


@cache
def _no_cues() -> np.ndarray:
    return np.zeros(len(NAMES), dtype=np.float32)


def numbers_named(text: str) -> tuple[str, dict[str, int]]:
    """The lower-case text with each number replaced by what it measures, and how many of each kind there were."""
    counts: dict[str, int] = {}

    def name(found: re.Match) -> str:
        kind = found.lastgroup or "plain"
        counts[kind] = counts.get(kind, 0) + 1
        return f" zz{kind} "

    return _NUMBERS.sub(name, text), counts


def of_word(word: str) -> tuple[int, ...]:
    """Which cues a single word gives."""
    return tuple(_AT[name] for name, pattern in _WORDS if pattern.fullmatch(word))


def cues(
    text: str,
    lower: str,
    words: list[str],
    of_words: list[tuple[int, ...]],
    counts: dict[str, int],
) -> np.ndarray:
    """The cue vector of a text, length len(NAMES), each entry about 0 to 1.

    `lower` is the lower-case text, `words` its words in order, `of_words` the cues of each of them.
    """
    out = np.zeros(len(NAMES), dtype=np.float32)
    for kind, n in counts.items():
        out[_AT["has_" + kind]] = min(n, 3) / 2
    hits = [at for some in of_words for at in some]
    hits += [_PAIR_AT[p] for p in map(" ".join, zip(words, words[1:], strict=False)) if p in _PAIR_AT]
    n_chars = max(len(text), 1)
    n_han = len(_HAN.findall(text))
    if n_han:
        hits += [_AT[name] for name, pattern in _HANS if pattern.search(lower)]
    out[hits] = 1.0
    out[_AT["equation"]] = _EQUATION.search(lower) is not None
    out[_AT["api"]] = _API.search(lower) is not None
    if "?" in text or "？" in text:
        out[_AT["question"]] = 1.0
    bold = text.startswith("**")
    first = words[0] if words else ""
    order = first in _IMPERATIVES or (len(words) > 1 and first in _LEADS and words[1] in _IMPERATIVES)
    caps = sum(1 for w in text.split() if len(w) > 2 and w.isupper() and w.isalpha())
    out[-len(_SIGNS) :] = (
        order,
        first.endswith("ing"),
        first in ("the", "a", "an", "each", "all", "both", "this"),
        sum(map(len, _CODE.findall(text))) / n_chars,
        min(n_chars, 400) / 200,
        n_chars < 45,
        n_chars > 180,
        n_han / n_chars,
        bold,
        bold and text.rstrip(" .。:").endswith("**"),
        ":" in text or "：" in text,
        "→" in text or "->" in text,
        "|" in text,
        min(caps, 3) / 2,
        text.rstrip(" *\"'").endswith(("?", "？")),
        min(sum(counts.values()), 6) / 4,
    )
    return out
