"""Turns the claims of one note into the rater's numbers: hashed words and characters, context and cues."""

import re
from collections.abc import Sequence
from itertools import chain
from zlib import crc32

import numpy as np
from scipy import sparse

from annotators.claims import Claim
from annotators.embedded import cues

_TOKEN = re.compile(r"[a-z_][a-z0-9_'’+-]*|[\u3400-\u9fff]|[→↑↓✓✗≥≤±≈]|->|[0-9]+")

# name -> (hashed width, weight of the block after each row is scaled to length 1)
BLOCKS = {
    "word": (1 << 14, 1.0),
    "char": (1 << 14, 0.8),
    "item": (1 << 12, 0.35),
    "parent": (1 << 12, 0.5),
    "lead": (1 << 12, 0.6),
    "heading": (1 << 12, 0.5),
    "before": (1 << 12, 0.3),
    "after": (1 << 12, 0.3),
}
N_CUES = len(cues.NAMES)
N_PLACE = 10
# how much the cues of each view of a claim weigh: own, item, neighbours, lead and headings, section, note
VIEWS = (0.18, 0.09, 0.09, 0.09, 0.09, 0.04)
N_VIEWS = len(VIEWS)
N_DENSE = N_VIEWS * N_CUES + N_PLACE
N_FEATURES = sum(w for w, _ in BLOCKS.values()) + N_DENSE
_STARTS = dict(zip(BLOCKS, np.cumsum([0] + [w for w, _ in BLOCKS.values()])[:-1].tolist(), strict=True))
_CLIP = 700  # characters of a claim that are read; the rest of a longer one adds no wording
_MEMO_MAX = 100_000
_memo: dict[str, tuple[int, tuple[int, ...], list[int]]] = {}


def _of_token(token: str) -> tuple[int, tuple[int, ...], list[int]]:
    """A token's hash, its cues and the columns of its character groups; remembered, since words repeat."""
    known = _memo.get(token)
    if known is None:
        if len(_memo) >= _MEMO_MAX:
            _memo.clear()
        body = f" {token[:40]} "
        grams = [body[n : n + size] for size in (3, 4, 5) for n in range(len(body) - size + 1)] or [body]
        start, mask = _STARTS["char"], BLOCKS["char"][0] - 1
        known = (crc32(token.encode()), cues.of_word(token), [start + (crc32(g.encode()) & mask) for g in grams])
        _memo[token] = known
    return known


class _Text:
    """One stretch of text read once: hashed words, pairs of words, character groups and cues."""

    __slots__ = ("chars", "cues", "first", "pairs", "words")

    def __init__(self, text: str):
        text = text[:_CLIP]
        lower = text.lower()
        named, counts = cues.numbers_named(lower)
        words = _TOKEN.findall(named)
        known = [_of_token(w) for w in words]
        self.words = [k[0] for k in known]
        self.pairs = [(a * 31 + b * 17 + 7) & 0xFFFFFFFF for a, b in zip(self.words, self.words[1:], strict=False)]
        self.chars = [g for k in known for g in k[2]]
        self.first = self.words[0] * 13 + 5 if words else 0
        self.cues = cues.cues(text, lower, words, [k[1] for k in known], counts)


_NOTHING = np.zeros(N_CUES, dtype=np.float32)


def _note(claims: Sequence[Claim]) -> tuple[list[list[int]], np.ndarray]:
    """The hashed columns of each claim (repeats count) and the dense cues [n_claims, N_DENSE]."""
    columns: list[list[int]] = []
    dense = np.zeros((len(claims), N_DENSE), dtype=np.float32)
    read: dict[str, _Text] = {}

    def text_of(text: str) -> _Text | None:
        if not text:
            return None
        if text not in read:
            read[text] = _Text(text)
        return read[text]

    def put(name: str, hashes: list[int]) -> list[int]:
        start, mask = _STARTS[name], BLOCKS[name][0] - 1
        return [start + (h & mask) for h in hashes]

    own = [text_of(c.text) for c in claims]
    own_cues = np.stack([t.cues for t in own]) if own else np.zeros((0, N_CUES), dtype=np.float32)
    whole = own_cues.mean(axis=0) if own else _NOTHING
    sections: dict[tuple[str, str], list[int]] = {}
    for n, claim in enumerate(claims):
        sections.setdefault((claim.path, claim.lead), []).append(n)
    section_of = {n: own_cues[some].mean(axis=0) for some in sections.values() for n in some[:1]}
    for some in sections.values():
        for n in some[1:]:
            section_of[n] = section_of[some[0]]
    for n, claim in enumerate(claims):
        item = text_of(claim.item) if claim.item != claim.text else None
        parent, lead = text_of(claim.parent_text), text_of(claim.lead)
        path = text_of(claim.path or claim.heading)
        before = own[n - 1] if n and claims[n - 1].heading == claim.heading else None
        after = own[n + 1] if n + 1 < len(claims) and claims[n + 1].heading == claim.heading else None
        row = put("word", own[n].words + own[n].pairs + [own[n].first, crc32(claim.kind.encode())])
        row += own[n].chars
        for name, text in (("item", item), ("parent", parent), ("before", before), ("after", after)):
            if text is not None:
                row += put(name, text.words)
        for name, text in (("lead", lead), ("heading", path)):
            if text is not None:
                row += put(name, text.words + text.pairs)
        columns.append(row)
        first_of_item = not claim.item or claim.item.startswith(claim.text[:40])
        place = (
            n / max(len(claims) - 1, 1),
            claim.kind == "row",
            claim.kind == "item",
            claim.kind == "sentence",
            parent is not None,
            lead is not None,
            first_of_item,
            item is None,
            before is None,
            after is None,
        )
        near = (before.cues if before else _NOTHING) + (after.cues if after else _NOTHING)
        dense[n, :N_CUES] = own[n].cues
        dense[n, N_CUES : 2 * N_CUES] = np.maximum(
            item.cues if item is not None else _NOTHING, parent.cues if parent is not None else _NOTHING
        )
        dense[n, 2 * N_CUES : 3 * N_CUES] = near * 0.5
        dense[n, 3 * N_CUES : 4 * N_CUES] = np.maximum(
            lead.cues if lead is not None else _NOTHING, path.cues if path is not None else _NOTHING
        )
        dense[n, 4 * N_CUES : 5 * N_CUES] = section_of[n]
        dense[n, 5 * N_CUES : 6 * N_CUES] = whole
        dense[n, 6 * N_CUES :] = place
    return columns, dense


def counts(notes: Sequence[Sequence[Claim]]) -> sparse.csr_matrix:
    """Hashed counts and dense cues of all claims of several notes, [n_claims, N_FEATURES]."""
    columns: list[list[int]] = []
    dense = [np.zeros((0, N_DENSE), dtype=np.float32)]
    for claims in notes:
        some, cue = _note(claims)
        columns += some
        dense.append(cue)
    ends = np.cumsum([0] + [len(c) for c in columns])
    flat = np.fromiter(chain.from_iterable(columns), dtype=np.int32, count=int(ends[-1]))
    shape = (len(columns), N_FEATURES - N_DENSE)
    hashed = sparse.csr_matrix((np.ones(len(flat), dtype=np.float32), flat, ends), shape=shape)
    hashed.sum_duplicates()
    return sparse.hstack([hashed, sparse.csr_matrix(np.concatenate(dense))], format="csr", dtype=np.float32)


def inverse_frequency(hashed: sparse.csr_matrix) -> np.ndarray:
    """Smoothed inverse document frequency of each hashed column, 1 for the dense ones; float32 [N_FEATURES]."""
    n_rows = hashed.shape[0]
    seen = np.bincount(hashed.indices, minlength=hashed.shape[1]).astype(np.float64)
    out = np.log((1 + n_rows) / (1 + seen)) + 1
    out[-N_DENSE:] = 1
    return out.astype(np.float32)


_BLOCK_OF = np.repeat(np.arange(len(BLOCKS) + 1), [*(w for w, _ in BLOCKS.values()), N_DENSE])
_DENSE_WEIGHT = np.concatenate([np.repeat(VIEWS, N_CUES), np.full(N_PLACE, 0.35)]).astype(np.float32)
_WEIGHTS = np.array([w for _, w in BLOCKS.values()], dtype=np.float32)


def weigh(hashed: sparse.csr_matrix, idf: np.ndarray) -> sparse.csr_matrix:
    """Sublinear counts times idf, each block of a row scaled to length 1 and to its weight."""
    out = hashed.copy()
    block = _BLOCK_OF[out.indices]
    text = block < len(BLOCKS)
    hits = (1 + np.log(np.where(text, out.data, 1))) * idf[out.indices]
    data = np.where(text, hits, out.data * _DENSE_WEIGHT[np.maximum(out.indices - (N_FEATURES - N_DENSE), 0)])
    row = np.repeat(np.arange(out.shape[0]), np.diff(out.indptr))
    cell = row * (len(BLOCKS) + 1) + block
    norm = np.sqrt(np.bincount(cell, weights=data * data, minlength=out.shape[0] * (len(BLOCKS) + 1)))
    scale = _WEIGHTS[np.minimum(block, len(BLOCKS) - 1)] / np.maximum(norm[cell], 1e-9)
    out.data = np.where(text, data * scale, data).astype(np.float32)
    return out
