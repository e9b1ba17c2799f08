"""Reads YAML as plain data: no objects, no aliases, no double keys, and bounded in size and depth."""

from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from runner.errors import UserError

MAX_BYTES = 500_000
MAX_DEPTH = 12


class _Plain(yaml.SafeLoader):
    """The safe loader without anchors (a few bytes of nested aliases expand to gigabytes) and without double keys."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not read")
        self._depth = getattr(self, "_depth", 0) + 1
        if self._depth > MAX_DEPTH:
            raise yaml.YAMLError(f"nested deeper than {MAX_DEPTH}")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict:
        keys = [k.value for k, _ in getattr(node, "value", ()) if isinstance(k, yaml.ScalarNode)]
        if twice := [k for k, n in Counter(keys).items() if n > 1]:
            raise yaml.YAMLError(f"key {min(twice)} stands twice")
        return super().construct_mapping(node, deep=deep)


def parse(raw: bytes | str, name: str) -> Any:
    """The plain value of a YAML text; UserError, one line, when it is none or too large."""
    if len(raw) > MAX_BYTES:
        raise UserError(f"{name}: {len(raw)} bytes, at most {MAX_BYTES} are read; shorten it")
    try:
        text = raw.decode("utf-8-sig") if isinstance(raw, bytes) else raw
        return yaml.load(text, Loader=_Plain)  # noqa: S506 (a SafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError, TypeError, OverflowError) as fault:
        told = " ".join(str(fault).split())[:300]
        raise UserError(f"{name}: no YAML that can be read ({told}); mend the file") from None


def load(path: str | Path, what: str) -> Any:
    """The plain value of a YAML file; `what` names in an error which file is due (`a price file`)."""
    path = Path(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UserError(f"{path}: over {MAX_BYTES} bytes; shorten it")
        raw = path.read_bytes()
    except OSError as fault:
        raise UserError(f"{path}: cannot be read ({fault.strerror}); name {what}") from None
    return parse(raw, str(path))
