"""Which walls a child can live behind on this machine: namespaces and an own account, tried before they are used."""

import os
import secrets
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

# The few variables that finding Python, CUDA and a compiler can need; everything else (keys, tokens) stays behind.
KEPT = (
    "PATH",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "NVIDIA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "SYSTEMROOT",
)


def project_root() -> Path:
    """The folder that holds the `runner` package."""
    return Path(__file__).resolve().parents[1]


@cache
def isolation(device: str = "cpu") -> tuple[str, ...]:
    """Which walls a child can live behind here: `net` and `pid` namespaces, `uid` (an account of its own).

    `MKB_ISOLATION` (a comma list, possibly empty) says which to use without trying. On a GPU each set of walls is tried
    from the highest down, until the driver starts behind it and a child can open memory that its parent shares.
    """
    if "MKB_ISOLATION" in os.environ:
        wanted = [wall for wall in os.environ["MKB_ISOLATION"].split(",") if wall]
    else:
        wanted = ["net", "pid", "uid"]
    built = _standing(wanted)
    if device != "cuda" or "MKB_ISOLATION" in os.environ:
        return built
    ladder = [
        built,
        *(tuple(w for w in built if w not in without) for without in (("pid",), ("uid",), ("pid", "uid"), built)),
    ]
    usable = {walls: _driver_lives(walls) for walls in dict.fromkeys(ladder)}
    return max(dict.fromkeys(ladder), key=lambda walls: (usable[walls], len(walls)))


def _standing(wanted: list[str]) -> tuple[str, ...]:
    built = []
    if shutil.which("unshare"):
        built = [wall for wall in ("net", "pid") if wall in wanted and _works(launcher((wall,)))]
        if not built and os.geteuid():
            built = [wall for wall in ("net", "pid") if wall in wanted and _works(launcher((wall, "user")))]
            built += ["user"] if built else []
    if "uid" in wanted and os.geteuid() == 0:
        built.append("uid")
    return tuple(built)


def _driver_lives(walls: tuple[str, ...]) -> int:
    """2 if a process behind these walls can use the GPU and open shared device memory, 1 if only the former, else 0."""
    import cupy

    runtime = cupy.cuda.runtime
    at = runtime.malloc(4096)
    try:
        try:
            handle = runtime.ipcGetMemHandle(at).hex()
        except Exception:  # no IPC on this machine at all: its answer is then 1 behind any walls
            handle = ""
        uid = str(own_account() if "uid" in walls else 0)
        tried = subprocess.run(
            [*launcher(walls), sys.executable, "-s", "-P", "-m", "runner.confine", "cuda", uid, handle],
            capture_output=True,
            timeout=60,
            cwd="/",
            start_new_session=True,
            env={
                **{name: os.environ[name] for name in KEPT if name in os.environ},
                "PYTHONPATH": python_path(),
                "PYTHONDONTWRITEBYTECODE": "1",
            },
        )
        return {0: 2, 3: 1}.get(tried.returncode, 0)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    finally:
        runtime.free(at)


def own_account() -> int:
    """A number that is nobody's account."""
    return 100_000 + secrets.randbelow(900_000)


def python_path(extra: str = "") -> str:
    """`PYTHONPATH` of a child: this project, what this process has, and what its DSL needs."""
    paths = [str(project_root()), *os.environ.get("PYTHONPATH", "").split(os.pathsep), *extra.split(os.pathsep)]
    return os.pathsep.join(dict.fromkeys(os.path.abspath(p) for p in paths if p))


def launcher(walls: tuple[str, ...]) -> list[str]:
    """The command in front of the child's that builds its namespaces; empty where there are none."""
    flags = [flag for wall, flag in (("user", "--map-root-user"), ("net", "--net")) if wall in walls for flag in [flag]]
    if "pid" in walls:
        flags += ["--pid", "--fork", "--kill-child"]
    return ["unshare", *flags] if flags else []


def _works(command: list[str]) -> bool:
    try:
        return subprocess.run([*command, "true"], capture_output=True, timeout=10).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
