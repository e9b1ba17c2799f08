"""Kernels in colour, made ahead by other processes while the numbers are computed: lexing is most of a large report."""

import multiprocessing
import os
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from mkb_analyze import ctrl_c
from mkb_analyze.report import texts
from mkb_analyze.transfers import Transfer
from runner.errors import UserError
from runner.study import Study

# Fewer kernels than this are coloured sooner than a process starts.
_WORTH_A_PROCESS = 200
_MAX_PROCESSES = 8


class Colours:
    """The coloured lines of each kernel by its digest; a kernel that nobody made ahead is made when it is asked for."""

    def __init__(self, study: Study, ahead: Iterator[tuple[str, list[str] | None]] | None = None):
        self.study, self._ahead = study, ahead
        self._ready: dict[str, list[str] | None] = {}
        self._given: set[str] = set()

    def lines(self, sha: str | None) -> list[str] | None:
        """The lines as HTML; None where there is no kernel, or its file is missing or changed.

        Kernels come in the order that they were announced in; one is given up once it was asked for.
        """
        if sha is None:
            return None
        if self._ahead is not None and sha not in self._ready and sha not in self._given:
            for name, made in self._ahead:
                self._ready[name] = made
                if name == sha:
                    break
        if sha in self._ready:
            self._given.add(sha)
            return self._ready.pop(sha)
        return _coloured(self.study, sha)


def kernels(transfers: Iterable[Transfer]) -> list[str]:
    """The kernels that pages of these transfers show, in their order, each once."""
    shas = {a.kernel_sha256: None for t in transfers for a in (t.target_solo, t.conditioned) if a and a.kernel_sha256}
    return list(shas)


@contextmanager
def made_ahead(study: Study, shas: list[str]) -> Iterator[Colours]:
    """Colour the kernels in other processes where there are enough of them to be worth it."""
    n = min(_MAX_PROCESSES, (os.cpu_count() or 1) - 1)
    if len(shas) < _WORTH_A_PROCESS or n < 1 or "fork" not in multiprocessing.get_all_start_methods():
        yield Colours(study)
        return
    # A fork of this process needs no importable __main__ (a notebook, a script without a guard); the children read
    # kernels, lex and answer, and take none of the locks that a thread of this process could hold.
    with warnings.catch_warnings(), ctrl_c.put_off():
        warnings.simplefilter("ignore", DeprecationWarning)
        pool = ProcessPoolExecutor(n, multiprocessing.get_context("fork"))
        ahead = pool.map(_work, ((study.path, sha) for sha in shas), chunksize=16)
    try:
        yield Colours(study, iter(zip(shas, ahead, strict=True)))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _work(item: tuple[Path, str]) -> list[str] | None:
    path, sha = item
    return _coloured(Study(path), sha)


def _coloured(study: Study, sha: str) -> list[str] | None:
    try:
        return texts.kernel_lines(study.kernel(sha))
    except UserError:
        return None
