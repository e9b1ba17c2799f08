"""Splits a skill note into claims: the smallest stretches that say one thing, each with its exact span."""

import re
from dataclasses import dataclass

from annotators.blocks import Block, scan

_TERMINATORS = ".!?…。！？"
_WIDE = "。！？"
_CLOSERS = "\"'*_)]}”’」』）】"
_PAIRS = {")": "(", "]": "[", "}": "{", "）": "（", "」": "「", "』": "『", "”": "“", "】": "【"}
_OPENERS = frozenset(_PAIRS.values())
_BLANK = " \t\r\n\x00\u3000\xa0\ufeff\u2028\u2029"
_ABBREVIATIONS = frozenset(
    (
        "e.g",
        "i.e",
        "eg",
        "ie",
        "vs",
        "etc",
        "cf",
        "approx",
        "fig",
        "figs",
        "sec",
        "resp",
        "al",
        "incl",
        "excl",
        "w.r.t",
        "wrt",
        "eq",
        "eqs",
        "ch",
        "vol",
        "pp",
        "ca",
        "max",
        "min",
        "avg",
        "est",
        "ref",
        "dr",
        "mr",
        "ms",
        "st",
    )
)
_NUMBERED = frozenset(("no", "nr", "p", "v", "fig", "sec", "eq"))
_WORD = re.compile(r"[A-Za-z]{2,}|[\u3400-\u9fff\u3040-\u30ff\uac00-\ud7af]")
_PROSE = re.compile(r"[A-Za-z]{3,}|[\u3400-\u9fff]{2}")
_TOKEN = re.compile(r"[^\W_]+(?:[.'’/-][^\W_]+)*")
_CODE = re.compile(r"`[^`\n]{0,400}`")
_ASIDE = re.compile(r"\([^()]{0,400}\)|（[^（）]{0,400}）|`[^`\n]{0,400}`")
_HAN = re.compile(r"[\u3400-\u9fff]")
_LINK = re.compile(r"!?\[[^\]\n]{0,300}\]\([^)\n]{0,500}\)|https?://\S+")
_LABEL_LINE = re.compile(r"\*\*[^*\n]{1,60}(?::\*\*|\*\*\s?[:：]|：\*\*)")
_CELL_NOISE = frozenset(
    (
        "tok",
        "mib",
        "gib",
        "kib",
        "flops",
        "tflops",
        "gflops",
        "pflop",
        "tflop",
        "none",
        "null",
        "yes",
        "not",
        "nan",
        "pass",
        "fail",
        "bytes",
    )
)


@dataclass(frozen=True, slots=True)
class Claim:
    """`text` is `note[start:end]` letter for letter; `parent` is the index of the claim that opens its item.

    `heading` is the text of the nearest heading above, `lead` the last line that only introduces
    ("What failed:", a bold item title), `item` the whole paragraph, list item or row that holds the claim,
    `path` all headings that it stands under, outermost first.
    """

    start: int
    end: int
    text: str
    kind: str  # sentence, item, row
    heading: str = ""
    parent: int | None = None
    parent_start: int | None = None
    parent_text: str = ""
    lead: str = ""
    item: str = ""
    path: str = ""


def _guards(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """The inner stretches in which no sentence ends: code spans, matched brackets and quotations."""
    runs, n = [], start
    while (n := text.find("`", n, end)) >= 0:
        stop = n
        while stop < end and text[stop] == "`":
            stop += 1
        runs.append((n, stop))
        n = stop
    following: dict[int, int] = {}
    closer: list[int | None] = [None] * len(runs)
    for k in range(len(runs) - 1, -1, -1):
        width = runs[k][1] - runs[k][0]
        closer[k] = following.get(width)
        following[width] = k
    spans, k = [], 0
    while k < len(runs):
        if closer[k] is None:
            k += 1
            continue
        spans.append((runs[k][0], runs[closer[k]][1]))
        k = closer[k] + 1
    codes = dict(spans)
    stack: list[tuple[str, int]] = []
    quotes: list[int] = []
    n = start
    while n < end:
        if n in codes:
            n = codes[n]
            continue
        c = text[n]
        if c in _OPENERS:
            stack.append((c, n))
        elif c in _PAIRS:
            if stack and stack[-1][0] == _PAIRS[c]:
                spans.append((stack.pop()[1], n + 1))
        elif c == '"' and not text[n - 1 : n].isdigit():
            quotes.append(n)
        n += 1
    if len(quotes) % 2 == 0:
        spans += [(a, b + 1) for a, b in zip(quotes[::2], quotes[1::2], strict=True) if b - a < 500]
    spans.sort()
    merged: list[tuple[int, int]] = []
    for a, b in spans:
        if merged and a < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(b, merged[-1][1]))
        else:
            merged.append((a, b))
    return merged


def _is_abbreviation(text: str, start: int, dot: int, after: str) -> bool:
    n = dot
    while n > start and (text[n - 1].isalpha() or text[n - 1] == ".") and dot - n < 12:
        n -= 1
    word = text[n:dot].lower()
    if word in _NUMBERED and after.isdigit():
        return True
    return word in _ABBREVIATIONS and (after.islower() or after.isdigit() or word in ("e.g", "i.e", "vs", "cf"))


def _cuts(text: str, start: int, end: int) -> list[int]:
    """The offsets inside [start, end) at which a new sentence begins."""
    guards, g, out, n, since = _guards(text, start, end), 0, [], start, start
    while n < end:
        while g < len(guards) and guards[g][1] <= n:
            g += 1
        if g < len(guards) and guards[g][0] <= n:
            n = guards[g][1]
            # a quotation or bracket that ends its own sentence may end the outer one too
            if not (n < end and text[n - 1] in '"”」』' and text[n - 2] in _TERMINATORS):
                continue
            n -= 1
        c = text[n]
        if c == "\n" and _LABEL_LINE.match(text, n + 1 + _indent(text, n + 1, end), end):
            out.append(n + 1)
            since = n + 1
        if c not in _TERMINATORS and not (c in '"”」』' and text[n - 1] in _TERMINATORS):
            n += 1
            continue
        mark = n
        while n < end and text[n] in _TERMINATORS:
            n += 1
        wide = any(t in _WIDE for t in text[mark:n])
        dots = text[mark:n]
        while n < end and (text[n] in _CLOSERS or text[n] in _TERMINATORS):
            n += 1
        stop = n
        while n < end and (text[n] in _BLANK or (text[n] == ">" and "\n" in text[stop:n][-4:])):
            n += 1
        if n >= end or (n == stop and not wide):
            continue
        after = text[n]
        if not wide:
            if dots == "." and _is_abbreviation(text, since, mark, after):
                continue
            if dots in ("...", "…") and after.islower():
                continue
            if after in ",;:)]}%=<>|" or (after in "-—–→" and not after.isalnum()):
                continue
            if text[since:mark].strip(_BLANK + "*_").isdigit():
                continue
        out.append(n)
        since = n
    return out


def _indent(text: str, n: int, end: int) -> int:
    first = n
    while n < end and text[n] in " \t" and n - first < 40:
        n += 1
    return n - first


def _n_words(text: str) -> float:
    """How many words a stretch has; two Han characters count as one."""
    n_han = len(_HAN.findall(text))
    return len(_TOKEN.findall(_HAN.sub(" ", text))) + n_han / 2


def _trim(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start] in _BLANK:
        start += 1
    while end > start and text[end - 1] in _BLANK:
        end -= 1
    return start, end


def _introduces(text: str) -> bool:
    """Whether a stretch only leads into what follows: a short line that ends in a colon."""
    bare = text.rstrip("*_ \t\r\n")
    return bare.endswith((":", "：")) and _n_words(_ASIDE.sub(" ", bare)) <= 6


def _is_title(block: Block, text: str) -> bool:
    """Whether a block names its children or its section and says nothing itself."""
    body = text.strip(_BLANK)
    bare = _ASIDE.sub("", body).strip(_BLANK)
    bold = (
        len(bare) > 4
        and bare.startswith(("**", "__"))
        and bare.rstrip(":：").endswith(("**", "__"))
        and bare.count("**") + bare.count("__") == 2
    )
    if bold and block.children and not bare.rstrip("*_").endswith(tuple(_TERMINATORS)):
        return True
    if bold and bare.rstrip("*_").endswith((":", "：")) | bare.endswith((":", "：")):
        return True
    if _introduces(body):
        return True
    return (
        block.kind == "paragraph"
        and block.parent is None
        and _n_words(bare) <= 2
        and not bare.endswith(tuple(_TERMINATORS))
    )


def _row_says_something(text: str) -> bool:
    """Rows of bare figures and ticks are data; a row is a claim when a third of its cells hold words."""
    cells = [c.strip(_BLANK) for c in _CODE.sub(" 0 ", text).split("|")][1:]
    full = [c for c in cells if c.strip("—–-?/ ") not in ("", "na", "n/a", "N/A")]
    if _n_words(_LINK.sub(" ", text.split("|", 1)[0])) >= 6:
        return True
    spoken = [c for c in full if any(w.lower() not in _CELL_NOISE for w in _PROSE.findall(_LINK.sub(" 0 ", c)))]
    return bool(spoken) and 3 * len(spoken) >= len(full)


def _says_something(text: str) -> bool:
    bare = _LINK.sub(" ", text)
    return _n_words(bare) >= 2 and _WORD.search(bare) is not None


def _sentences(text: str, block: Block) -> list[tuple[int, int]]:
    """The spans of a block's sentences; a one-word label ("So.", "Note:") belongs to what follows it."""
    edges = [block.start, *_cuts(text, block.start, block.end), block.end]
    out: list[tuple[int, int]] = []
    held: int | None = None
    for a, b in zip(edges, edges[1:], strict=False):
        start, end = _trim(text, a, b)
        if start == end:
            continue
        if held is not None:
            start, held = held, None
        if _n_words(text[start:end]) < 1.5 and b != block.end and text[start : start + 1] in "*_" and end - start < 40:
            held = start
            continue
        out.append((start, end))
    if held is not None:
        out.append(_trim(text, held, block.end))
    return out


def split(text: str) -> list[Claim]:
    """The claims of a note in order of place; never overlapping, found in time linear in the note's length.

    Headings, code, comments, front matter, table heads, rows of bare figures and lines that only
    introduce are no claims.
    """
    claims: list[Claim] = []
    opener: dict[int, int | None] = {}  # block -> index of the claim that opens it
    titles: dict[int, str] = {}
    heading = lead = ""
    for block in scan(text):
        if block.heading != heading:
            heading, lead = block.heading, ""
        whole = text[block.start : block.end]
        above, parent_text = block.parent, ""
        parent = opener.get(id(above)) if above is not None else None
        if above is not None:
            parent_text = titles.get(id(above)) or text[above.start : above.end][:600]
        if block.kind == "row":
            spans = [_trim(text, block.start, block.end)] if _row_says_something(whole) else []
        elif _is_title(block, whole):
            spans, titles[id(block)] = [], whole.strip(_BLANK)
            lead = whole.strip(_BLANK)
        else:
            spans = _sentences(text, block)
            tail = text[slice(*spans[-1])] if spans else ""
            if len(spans) > 1 and _introduces(tail):
                lead = tail
                spans.pop()
        kind = {"paragraph": "sentence"}.get(block.kind, block.kind)
        first: int | None = None
        for start, end in spans:
            body = text[start:end]
            if not _says_something(body):
                continue
            inner = first if first is not None and block.kind == "item" else parent
            claims.append(
                Claim(
                    start,
                    end,
                    body,
                    kind,
                    heading,
                    inner,
                    claims[inner].start if inner is not None else None,
                    parent_text,
                    lead,
                    whole[:1200],
                    block.path,
                )
            )
            if first is None:
                first = len(claims) - 1
        opener[id(block)] = first if first is not None else parent
    return claims
