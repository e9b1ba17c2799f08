"""Runs many broken inputs through every reader: `python -m tests.fuzz 200000 --seed 1`; prints counts, keeps failures."""

import argparse
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import tracemalloc
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.mutate import mutated
from tests.fuzz.targets import Target, targets

HANG_S = 10
BASE_BYTES = 16 << 20  # what a reader may hold whatever the size of its input: compiled patterns, caches
FACTOR = 10


class Hang(Exception):
    """A reader took longer than `HANG_S`."""


@dataclass
class Result:
    """What became of the cases of one target."""

    n: int = 0
    n_refused: int = 0
    slowest_s: float = 0.0
    faults: list[tuple[bytes, str]] = field(default_factory=list)


def fuzz(target: Target, n_cases: int, seed: int, memory: bool = False) -> Result:
    """Run `n_cases` mutations of the target's seeds; the same seed gives the same cases."""
    rng = random.Random(f"{target.name}:{seed}")
    seeds = target.seeds()
    if not seeds:
        raise ValueError(f"{target.name} has no input to start from")
    result = Result()
    place = Path(tempfile.mkdtemp(prefix="fuzz"))
    try:
        for number in range(n_cases):
            data = seeds[number] if number < len(seeds) else mutated(rng.choice(seeds), rng)
            folder = place / str(number)
            folder.mkdir()
            _one(target, data, folder, result, memory)
            shutil.rmtree(folder)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return result


def _one(target: Target, data: bytes, folder: Path, result: Result, memory: bool) -> None:
    result.n += 1
    begun = time.perf_counter()
    signal.setitimer(signal.ITIMER_REAL, HANG_S)
    if memory:
        tracemalloc.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            target.read(data, folder)
    except target.allowed as told:
        result.n_refused += 1
        if "\n" in str(told):
            result.faults.append((data, f"more than one line: {told!r}"))
    except BaseException as fault:  # a hang, a traceback, an assertion: each is a fault of the reader
        if isinstance(fault, KeyboardInterrupt):
            raise
        result.faults.append((data, "".join(traceback.format_exception(fault)[-6:])))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if memory:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            if peak > BASE_BYTES + FACTOR * len(data):
                result.faults.append((data, f"{peak} bytes held for an input of {len(data)}"))
    result.slowest_s = max(result.slowest_s, time.perf_counter() - begun)


def _hung(*_: object) -> None:
    raise Hang(f"no end within {HANG_S} s")


def main() -> int:
    """Fuzz all targets, or those whose name holds --only; exit status 1 when a reader failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("n_cases", type=int, nargs="?", default=22_000, help="cases in all, spread over the readers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--memory", action="store_true", help="hold each case's memory against its input (slow)")
    parser.add_argument("--keep", type=Path, default=Path("outputs/fuzz"), help="where failing inputs are kept")
    given = parser.parse_args()
    signal.signal(signal.SIGALRM, _hung)
    chosen = [t for t in targets() if given.only in t.name]
    faults, counts = 0, Counter()
    for target in chosen:
        result = fuzz(target, max(1, given.n_cases // len(chosen)), given.seed, given.memory)
        counts.update(n=result.n, refused=result.n_refused)
        print(f"{target.name:22s} {result.n:8,} cases {result.n_refused:8,} refused {len(result.faults):4} faults "
              f"{result.slowest_s:7.2f} s slowest", flush=True)  # fmt: skip
        for number, (data, told) in enumerate(result.faults[:5]):
            given.keep.mkdir(parents=True, exist_ok=True)
            (given.keep / f"{target.name.replace(' ', '_')}_{given.seed}_{number}.bin").write_bytes(data)
            print(told, file=sys.stderr)
        faults += len(result.faults)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{counts['n']:,} cases, {counts['refused']:,} refused in one line, {faults} faults, peak {peak:.0f} MB")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
