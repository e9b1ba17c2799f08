"""Time, memory and page size of a large study's report: `python benchmarks/report.py` (6 models × 74 problems × 3)."""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

RESULTS = Path(__file__).parent / "results"
LIMIT_S, LIMIT_GB, LIMIT_PAGE_MB = 60, 1.5, 2.0


def tree(pid: int) -> list[int]:
    """A process and all that it started, by /proc."""
    out = [pid]
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                out += tree(int(child))
    except OSError:
        pass
    return out


def memory(pid: int) -> tuple[int, int]:
    """(sum of resident set sizes, sum of proportional ones) of a process tree, in bytes.

    The first counts a page that processes share once a process, the second once in all.
    """
    resident = shared = 0
    for one in tree(pid):
        try:
            for line in Path(f"/proc/{one}/smaps_rollup").read_text().splitlines():
                if line.startswith("Rss:"):
                    resident += 1024 * int(line.split()[1])
                elif line.startswith("Pss:"):
                    shared += 1024 * int(line.split()[1])
        except OSError:
            continue
    return resident, shared


def watched(command: list[str]) -> tuple[float, int, int]:
    """Wall seconds and the largest sums of memory while the command ran, sampled ten times a second."""
    start, most = time.perf_counter(), [0, 0]
    process = subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL
    )

    def look() -> None:
        while process.poll() is None:
            for i, value in enumerate(memory(process.pid)):
                most[i] = max(most[i], value)
            time.sleep(0.1)

    watcher = threading.Thread(target=look)
    watcher.start()
    status = process.wait()
    wall_s = time.perf_counter() - start
    watcher.join()
    if status:
        raise SystemExit(f"{' '.join(command)}: exit status {status}")
    return wall_s, *most


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("models", 6), ("problems", 74), ("replicates", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    size = [f"--{k}={v}" for k, v in vars(asked).items()]
    with tempfile.TemporaryDirectory() as folder:
        cli = [sys.executable, "-m", "mkb_analyze"]
        simulate_s, _, _ = watched([*cli, "simulate", f"--out={folder}/study", *size])
        wall_s, resident, shared = watched([*cli, "report", f"--study={folder}/study", f"--out={folder}/out"])
        pages = sorted(Path(folder, "out").rglob("*.html"), key=lambda p: p.stat().st_size)
        n_attempts = Path(folder, "study", "attempts.jsonl").read_bytes().count(b"\n")
        largest, everything = pages[-1], sum(p.stat().st_size for p in Path(folder, "out").rglob("*") if p.is_file())
        page_mb, resident_gb, shared_gb = largest.stat().st_size / 1e6, resident / 1e9, shared / 1e9
        rows = [
            ("attempts", f"{n_attempts}", ""),
            ("pages", f"{len(pages)}", ""),
            ("report, wall", f"{wall_s:.1f} s", f"< {LIMIT_S} s"),
            ("memory, resident sets added up", f"{resident_gb:.2f} GB", f"< {LIMIT_GB} GB"),
            ("memory, shared pages counted once", f"{shared_gb:.2f} GB", ""),
            (f"largest page ({largest.name.split('-')[0]})", f"{page_mb:.2f} MB", f"< {LIMIT_PAGE_MB} MB"),
            ("whole report", f"{everything / 1e6:.0f} MB", ""),
            ("simulating the study, wall", f"{simulate_s:.1f} s", ""),
        ]
    text = (
        f"# A large study's report\n\n`python benchmarks/report.py` on {os.cpu_count()} CPUs, "
        f"Python {sys.version.split()[0]}: {asked.models} models × 2 directions × {asked.problems} problems × "
        f"{asked.replicates} replicates, with notes, kernels, submissions and the labels of two raters, all simulated. "
        "Memory is the largest sum over the report's processes, ten looks a second.\n\n"
        "| what | measured | limit |\n| --- | --- | --- |\n" + "".join(f"| {' | '.join(r)} |\n" for r in rows)
    )
    print(text)
    if (asked.models, asked.problems, asked.replicates) == (6, 74, 3):
        (RESULTS / "report.md").write_text(text, "utf-8")
    return int(wall_s > LIMIT_S or resident_gb > LIMIT_GB or page_mb > LIMIT_PAGE_MB)


if __name__ == "__main__":
    raise SystemExit(main())
