"""Makes broken inputs out of whole ones: bytes flipped, lines doubled, values of JSON swapped for awkward ones."""

import json
import random
from typing import Any

TOKENS = (
    b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\r\n", b"\r", b"\x1b[2J", b"\xe2\x80\xae", b"\xed\xa0\x80",
    b"```", b"~~~", b"---\n", b"| a | b |\n|---|---|\n", b"<!--", b"-->", b"</script>", b"=cmd|' /C calc'!A0",
    b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-0", b"null", b"true", b"[]", b"{}", b"\"", b"\\u0000", b"\\ud800",
    b"!!python/object/apply:os.system ['true']\n", b"&a [*a, *a]\n", b"*a", b"? ", b"%YAML 9.9\n", b"<<: {}\n",
    "，。；".encode(), "🧪👩‍🔬".encode(), b"../../etc/passwd", b"0" * 400, b"9" * 400,
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 10**30, -(10**30), 1e308, float("nan"), float("inf"), "", " ", "\x00", "\ud800", "a" * 5000,
    "../x", "=1+1", "<b>", [], {}, [[]], [None], {"": None}, [0] * 2000, "done", "solo", 2**63, "2026-01-01T00:00:00Z",
)  # fmt: skip


def mutated(seed: bytes, rng: random.Random) -> bytes:
    """One to four changes of `seed`, structural where it is JSON and by bytes otherwise."""
    data = seed
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        data = rng.choice(_WAYS)(data, rng)
    return data[: 4 * len(seed) + 100_000]


def _flip(data: bytes, rng: random.Random) -> bytes:
    if not data:
        return b"\x00"
    at = rng.randrange(len(data))
    return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]


def _cut(data: bytes, rng: random.Random) -> bytes:
    a, b = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
    return rng.choice((data[:a], data[b:], data[:a] + data[b:], data[a:b]))


def _insert(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice(TOKENS) * rng.choice((1, 1, 2, 50)) + data[at:]


def _nest(data: bytes, rng: random.Random) -> bytes:
    opening, closing = rng.choice(
        ((b"[", b"]"), (b'{"a":', b"}"), (b"> ", b""), (b"- ", b""), (b"(", b")"), (b"#", b""))
    )
    depth = rng.choice((50, 2_000, 30_000))
    return opening * depth + data[:2000] + closing * rng.choice((0, depth))


def _lines(data: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    if not lines:
        return data
    at = rng.randrange(len(lines))
    what = rng.randrange(4)
    if what == 0:
        lines.insert(at, rng.choice(lines))
    elif what == 1:
        del lines[at]
    elif what == 2:
        lines[at] = lines[at].rstrip(b"\n")
    else:
        rng.shuffle(lines)
    return b"".join(lines)


def _value(data: bytes, rng: random.Random) -> bytes:
    """Swap one value of one JSON line (or of the whole, where it is one JSON text)."""
    lines = data.splitlines() or [data]
    at = rng.randrange(len(lines))
    whole = False
    try:
        value = json.loads(lines[at])
    except (ValueError, RecursionError):
        try:
            value, whole = json.loads(data), True
        except (ValueError, RecursionError):
            return _insert(data, rng)
    told = json.dumps(_swapped(value, rng)).encode("utf-8", "surrogatepass")
    if whole:
        return told
    lines[at] = told
    return b"\n".join(lines) + b"\n"


def _swapped(value: Any, rng: random.Random) -> Any:
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        what = rng.random()
        if what < 0.1:
            return {k: v for k, v in value.items() if k != key}
        if what < 0.15:
            return {**value, key + "_": value[key]}
        return {**value, key: _swapped(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        return [*value[:at], _swapped(value[at], rng), *value[at + rng.choice((1, 1, 0)) :]]
    return rng.choice(VALUES)


_WAYS = (_flip, _cut, _insert, _insert, _lines, _nest, _value, _value, _value)
