"""Simulated coverage of every interval, type I error and FDR: `python benchmarks/coverage.py [--repeats N]`."""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import coverage_models  # noqa: E402
import coverage_rates  # noqa: E402
from tally import Tally  # noqa: E402

RESULTS = Path(__file__).parent / "results"
SEED = 20240612


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=4000, help="simulated studies a scenario (some take a share)")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--only", default="", help="scenarios whose name holds this text")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    tally, seconds = Tally(), {}
    for exact in coverage_rates.exact():
        exact(tally)
    for index, (name, scenario, share) in enumerate(coverage_rates.SCENARIOS + coverage_models.SCENARIOS):
        if arguments.only not in name:
            continue
        start = time.perf_counter()
        scenario(tally, np.random.default_rng([arguments.seed, index]), max(2, int(arguments.repeats * share)))
        seconds[name] = round(time.perf_counter() - start, 1)
    rows = tally.table()
    used = [r for r in rows if r["used"]]
    missed = [r for r in used if not r["within_error"]]
    lines = [
        f"# Coverage, type I error and FDR (seed {arguments.seed}, {arguments.repeats} studies a scenario)",
        "",
        "Wanted: coverage 93-97% at nominal 95%, type I error 4-6% at 5%, FDR at most 5%. `used` marks the method that",
        "the report's statistics take; the others stand beside it to show why. Exact values are enumerated. `error` is",
        "one Monte Carlo standard error; `near` is within the wanted range but for two of them.",
        "",
        "| kind | number | method | where | used | value | error | within |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in sorted(rows, key=lambda r: (r["kind"], r["what"], r["where"], not r["used"])):
        within = "yes" if r["within"] else "near" if r["within_error"] else "NO"
        size = "exact" if r["n_simulated"] == 0 else f"{100 * r['monte_carlo_error']:.1f}"
        lines.append(
            f"| {r['kind']} | {r['what']} | {r['method']} | {r['where']} | {'yes' if r['used'] else 'no'} | "
            f"{100 * r['value']:.1f}% | {size} | {within} |"
        )
    lines += ["", f"{len(used)} used rows, {len(missed)} outside the wanted range by more than two errors."]
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "coverage.md").write_text("\n".join(lines) + "\n")
    record = {"seed": arguments.seed, "repeats": arguments.repeats, "seconds": seconds, "rows": rows}
    (arguments.out / "coverage.json").write_text(json.dumps(record, indent=1) + "\n")
    print("\n".join(lines))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
