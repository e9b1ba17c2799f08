"""Does a DSL compile and run here? A tiny kernel in a process of its own, so that a broken one breaks alone."""

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from runner import dsls

TIMEOUT_S = 120.0
_ROOT = Path(__file__).resolve().parents[2]
# Nothing of the environment reaches a compiler but what a compiler needs; no key is among it.
_PASSED = ("PATH", "HOME", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "TMPDIR", "VIRTUAL_ENV", "CUDA_VISIBLE_DEVICES")


@dataclass(frozen=True)
class Probed:
    """`device` is where it was tried; `ran` is None where no device of that kind is here; `fault` is one line."""

    device: str
    compiled: bool
    ran: bool | None
    took_s: float
    fault: str | None = None


def has_probe(name: str) -> bool:
    return (Path(__file__).parent / "_probes" / f"{name}.py").is_file()


def probe(name: str, device: str, run: bool, timeout_s: float = TIMEOUT_S) -> Probed:
    """Compile y = 2x + 1 with one DSL and, where `run`, compare what it writes; never raises for a DSL's fault."""
    plugin = dsls.plugin(name)
    own = plugin.environment(device if run else "cpu")
    path = os.pathsep.join(p for p in (str(_ROOT), os.environ.get("PYTHONPATH"), own.get("PYTHONPATH")) if p)
    env = {k: os.environ[k] for k in _PASSED if k in os.environ} | own | {"PYTHONPATH": path}
    words = [sys.executable, "-m", "runner.dsls._probe", name, device, "run" if run else "compile"]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mkb-probe-") as folder:
        try:
            done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return Probed(device, False, None, timeout_s, f"no answer within {timeout_s:g} s")
    took = time.monotonic() - began
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("{"):
            told = json.loads(line)
            return Probed(device, told["compiled"], told["ran"], took, told["fault"])
    last = (done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"])[-1]
    return Probed(device, False, None, took, last[:200])


def _child(name: str, device: str, run: bool) -> dict[str, object]:
    told: dict[str, object] = {"compiled": False, "ran": None, "fault": None}
    try:
        rooms = importlib.import_module(f"runner.dsls._probes.{name}")
        kernel = rooms.build(device)
        told["compiled"] = True
        if run:
            told["ran"] = False
            from runner.arrays import open_arrays

            xp = open_arrays(device).xp
            x, y = xp.arange(256, dtype=xp.float32), xp.zeros(256, dtype=xp.float32)
            rooms.call(kernel, x, y)
            told["ran"] = bool((y == 2 * x + 1).all())
            told["fault"] = None if told["ran"] else "it ran and wrote wrong values"
    except Exception as fault:
        told["fault"] = f"{type(fault).__name__}: {' '.join(str(fault).split())}"[:200]
    return told


if __name__ == "__main__":
    print(json.dumps(_child(sys.argv[1], sys.argv[2], sys.argv[3] == "run")))
