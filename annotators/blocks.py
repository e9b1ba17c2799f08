"""Finds the stretches of a Markdown note that carry prose: paragraphs, list items and table rows."""

import re
from dataclasses import dataclass, field

_EOL = re.compile(r"\r\n|\n|\r")
_BULLETS = "-*+•‣▪◦●○"
_ORDERED = re.compile(r"(\d{1,9})([.)、])")
_BOX = re.compile(r"\[[ xX✓✔✗~-]\][ \t]+")
_SPACE = " \t\x00\u3000\xa0\ufeff"
_BREAK = re.compile(r"[ \t]*([-*_])([ \t]*\1){2,}[ \t]*")
_LINK_DEFINITION = re.compile(r"\[[^\]\n]{1,200}\]:[ \t]")
_TAG_LINE = re.compile(r"</?[A-Za-z][A-Za-z0-9-]{0,20}(?:[ \t][^<>]{0,300})?/?>")


@dataclass
class Block:
    """One stretch of prose: `text[start:end]`, its kind, its nearest heading, all its headings and its item."""

    start: int
    end: int
    kind: str  # paragraph, item, row
    heading: str
    path: str
    indent: int = 0
    parent: "Block | None" = None
    children: bool = False
    brackets: int = field(default=0, repr=False)


@dataclass(frozen=True)
class _Line:
    start: int
    end: int
    body: str  # without the line end
    at: int  # offset of the first character that is neither blank nor a quote mark
    indent: int  # columns, a tab stops at multiples of four

    @property
    def text(self) -> str:
        return self.body[self.at - self.start :]


def _lines(text: str) -> list[_Line]:
    out, pos = [], 0
    edges = [(m.start(), m.end()) for m in _EOL.finditer(text)] + [(len(text), len(text))]
    for stop, following in edges:
        body, at, column = text[pos:stop], pos, 0
        while at < stop and (text[at] in _SPACE or (text[at] == ">" and at - pos < 40)):
            column = (column // 4 + 1) * 4 if text[at] == "\t" else column + (text[at] != ">")
            at += 1
        out.append(_Line(pos, stop, body, at, column))
        pos = following
    return out


def _fence(line: _Line) -> tuple[str, int] | None:
    body = line.text
    mark = body[:1]
    if mark not in ("`", "~") or not body.startswith(mark * 3):
        return None
    rest = body.lstrip(mark)
    if mark == "`" and "`" in rest:  # ```code``` inside a sentence opens nothing
        return None
    return mark, len(body) - len(rest)


def _is_separator(line: _Line) -> bool:
    body = line.text.strip(_SPACE)
    return "|" in body and "-" in body and not set(body) - set("|-: \t")


def _marker(line: _Line) -> tuple[str, int] | None:
    """The list marker of a line and how many characters it takes, blanks and check box included."""
    body = line.text
    if body[:1] in _BULLETS and body[:1] and (body[1:2] in (" ", "\t") or body[:1] in "•‣▪◦●○"):
        mark, width = body[0], 1
    elif found := _ORDERED.match(body):
        if found[2] != "、" and body[found.end() : found.end() + 1] not in (" ", "\t"):
            return None
        mark, width = found[0], found.end()
    else:
        return None
    while body[width : width + 1] in (" ", "\t") and body[width : width + 1]:
        width += 1
    if box := _BOX.match(body, width):
        width = box.end()
    return mark, width


def _front_matter(lines: list[_Line]) -> int:
    """How many lines the YAML or TOML head of the note takes; 0 when it has none."""
    first = lines[0].body.lstrip("\ufeff").rstrip() if lines else ""
    if first not in ("---", "+++"):
        return 0
    for n, line in enumerate(lines[1:], 1):
        if line.body.rstrip() == first or (first == "---" and line.body.rstrip() == "..."):
            return n + 1
    return 0


def _is_template(body: str) -> bool:
    body = body.strip(_SPACE)
    return (
        body.startswith(("{{", "{%", "{#", "<%", "${"))
        and body.endswith(("}}", "%}", "#}", "%>", "}"))
        or bool(_TAG_LINE.fullmatch(body))
        or bool(_LINK_DEFINITION.match(body))
        or (body.startswith("![") and body.endswith(")"))
        or body.startswith(("<!DOCTYPE", "<?xml"))
    )


def _opens(body: str) -> int:
    return sum(body.count(c) for c in "([{（") - sum(body.count(c) for c in ")]}）")


class _Scanner:
    def __init__(self, text: str):
        self.text, self.lines, self.blocks = text, _lines(text), []
        self.heading = self.path = ""
        self.levels: list[tuple[int, str]] = []
        self.open: Block | None = None
        self.stack: list[Block] = []  # enclosing list items, outermost first

    def close(self) -> None:
        self.open = None

    def blank(self) -> None:
        self.close()

    def begin(self, line: _Line, start: int, kind: str, indent: int) -> Block:
        parent = self.stack[-1] if self.stack else None
        block = Block(start, line.end, kind, self.heading, self.path, indent, parent)
        block.brackets = _opens(self.text[start : line.end])
        if parent is not None and kind == "item":
            parent.children = True
        self.blocks.append(block)
        self.open = block
        return block

    def extend(self, line: _Line) -> None:
        self.open.end = line.end
        self.open.brackets += _opens(line.text)

    def starts_item(self, line: _Line, mark: str) -> bool:
        """Whether a line that looks like a list item is one, and no soft-wrapped piece of a sentence."""
        block = self.open
        if block is None:
            return True
        so_far = self.text[max(block.start, block.end - 200) : block.end].rstrip(_SPACE)
        if 0 < block.brackets < 4 and not so_far.endswith((":", "：")):
            return False
        siblings = [b for b in self.stack if b.kind == "item" and b.indent == line.indent]
        if mark[0].isdigit():
            if siblings:
                return True
            return int(mark[:-1]) == 1
        if mark == "+":
            same = siblings and self.text[siblings[-1].start - 2 : siblings[-1].start].startswith("+")
            return bool(same) or so_far.endswith((":", "："))
        return True

    def item(self, line: _Line, width: int) -> None:
        while self.stack and self.stack[-1].indent >= line.indent:
            self.stack.pop()
        block = self.begin(line, min(line.at + width, line.end), "item", line.indent)
        self.stack.append(block)

    def paragraph(self, line: _Line) -> None:
        while self.stack and line.indent <= self.stack[-1].indent:
            self.stack.pop()
        self.begin(line, line.at, "paragraph", line.indent)

    def title(self, body: str, level: int) -> None:
        self.heading = body.strip(_SPACE).strip("#").strip(_SPACE)
        while self.levels and self.levels[-1][0] >= level:
            self.levels.pop()
        self.levels.append((level, self.heading[:200]))
        self.path = " / ".join(h for _, h in self.levels[-6:])
        self.stack.clear()
        self.close()

    def table(self, n: int) -> int:
        """Reads the rows under the separator at line n + 1 and returns the first line after the table."""
        self.close()
        if self.lines[n].indent == 0:
            self.stack.clear()
        n += 2
        while n < len(self.lines) and "|" in self.lines[n].body:
            line = self.lines[n]
            if not _is_separator(line) and not _fence(line):
                self.row(line)
            n += 1
        self.close()
        return n

    def row(self, line: _Line) -> None:
        start, end, blanks = line.at, line.end, _SPACE + "|"
        while start < end and self.text[start] in blanks:
            start += 1
        while end > start and self.text[end - 1] in blanks:
            end -= 1
        if start < end:
            self.begin(line, start, "row", line.indent).end = end

    def run(self) -> list[Block]:
        n, comments = _front_matter(self.lines), True
        while n < len(self.lines):
            line = self.lines[n]
            body = line.text.strip(_SPACE)
            following = self.lines[n + 1] if n + 1 < len(self.lines) else None
            if not body:
                self.blank()
            elif mark := _fence(line):
                self.close()
                n += 1
                while n < len(self.lines):
                    closing = _fence(self.lines[n])
                    if (
                        closing
                        and closing[0] == mark[0]
                        and closing[1] >= mark[1]
                        and not self.lines[n].text.strip(_SPACE).strip(mark[0])
                    ):
                        break
                    n += 1
            elif comments and body.startswith("<!--"):
                self.close()
                stop = self.text.find("-->", line.at)
                comments = stop >= 0
                while stop >= 0 and n + 1 < len(self.lines) and self.lines[n].end < stop:
                    n += 1
            elif body.startswith("#") and body.lstrip("#")[:1] in (" ", "\t", "") and line.indent < 4:
                self.title(body, len(body) - len(body.lstrip("#")))
            elif (
                following
                and self.open
                and self.open.kind == "paragraph"
                and not self.stack
                and len(body) >= 3
                and not set(body) - {"="}
            ):
                self.title(self.text[self.blocks.pop().start : self.lines[n - 1].end], 1)
            elif _BREAK.fullmatch(body):
                if (
                    self.open
                    and self.open.kind == "paragraph"
                    and not self.stack
                    and body.startswith("---")
                    and "\n" not in (above := self.text[self.open.start : self.open.end])
                ):
                    self.blocks.pop()
                    self.title(above, 2)
                else:
                    self.stack.clear()
                    self.close()
            elif following and "|" in body and _is_separator(following):
                n = self.table(n)
                continue
            elif body.startswith("|") and body.count("|") >= 2:
                if not _is_separator(line):
                    self.row(line)
                self.close()
            elif _is_template(body):
                self.close()
            elif (
                self.open is None
                and line.indent >= 4 + (self.stack[-1].indent + 2 if self.stack else 0)
                and not _marker(line)
            ):
                pass  # indented code
            elif (found := _marker(line)) and self.starts_item(line, found[0]):
                self.item(line, found[1])
            elif self.open is not None and self.open.kind != "row":
                self.extend(line)
            else:
                self.paragraph(line)
            n += 1
        return self.blocks


def scan(text: str) -> list[Block]:
    """Every prose block of a note in order, in time linear in its length; spans are code-point offsets."""
    return _Scanner(text).run()
