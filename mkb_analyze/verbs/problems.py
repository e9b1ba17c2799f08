"""Verbs on the problem set: list, show, check."""

from typing import Any

from mkb_analyze.console import Answer
from mkb_analyze.table import show
from mkb_analyze.verbs.parse import number

_SHOWN = ("number", "family", "name", "formats", "n_bytes", "n_operations", "floor_ms")


class Problems:
    """The problem set: 74 computations in six families.

    Examples:
      mkb-analyze problems list
      mkb-analyze problems show 28
      mkb-analyze problems check 28
    """

    def list(self, which: str = "all") -> Answer:
        """List the problems: number, family, name, output formats, bytes, operations and the floor on an H200 in ms.

        Example:
          mkb-analyze problems list --which mlp_norm
        """
        from runner import catalogue, problem_check

        chosen = {p.number for p in catalogue.select(which)}
        rows = [r for r in problem_check.listing() if r["number"] in chosen]
        cells = [[show(r[k], "number") for k in _SHOWN] for r in rows]
        widths = [max(len(k), *(len(c[i]) for c in cells)) for i, k in enumerate(_SHOWN)]
        lines = ["  ".join(k.ljust(w) for k, w in zip(_SHOWN, widths, strict=False))]
        lines += ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=False)) for row in cells]
        return Answer(
            "\n".join([*lines, f"problem set {catalogue.set_digest()}"]),
            {"problems": rows, "sha256": catalogue.set_digest()},
        )

    def show(self, problem: str) -> Answer:
        """Print what an agent is told of one problem.

        Example:
          mkb-analyze problems show 28
        """
        from runner import catalogue

        chosen = catalogue.problem(problem)
        return Answer(
            chosen.statement(),
            {
                "problem": chosen.number,
                "name": chosen.name,
                "family": chosen.family,
                "sha256": chosen.sha256,
                "text": chosen.statement(),
            },
        )

    def check(self, which: str = "all", seed: str = "0") -> Answer:
        """Run the quality bar: speed, memory, determinism, and that the contract refuses wrong answers.

        Example:
          mkb-analyze problems check 28
        """
        from runner import catalogue, problem_check

        reports = [problem_check.quality(p, seed=number(seed, "seed", int, 0)) for p in catalogue.select(which)]
        lines = [
            f"{r.number:02d} {r.name}: {'ok' if r.ok else '; '.join(r.faults)} ({r.small_s:.2f} s)" for r in reports
        ]
        n_ok = sum(r.ok for r in reports)
        n_refused = sum(not c.ok for r in reports for c in r.refusals.values())
        lines.append(
            f"{n_ok} of {len(reports)} problems keep the quality bar; {n_refused} of "
            f"{sum(len(r.refusals) for r in reports)} wrong answers refused"
        )
        return Answer("\n".join(lines), [_plain(r) for r in reports], 0 if n_ok == len(reports) else 1)

    def table(self) -> Answer:
        """Write the figures of the problem set into its README: sizes, floors, refusals and what a GPU measured.

        Example:
          mkb-analyze problems table
        """
        from runner import catalogue, problem_table

        problem_table.write_readme(catalogue.problem_root())
        path = catalogue.problem_root() / "README.md"
        return Answer(str(path), {"path": str(path)})


def _plain(report: Any) -> dict[str, Any]:
    return {
        "number": report.number,
        "name": report.name,
        "ok": report.ok,
        "faults": list(report.faults),
        "small_s": report.small_s,
        "small_bytes": report.small_bytes,
        "floor_ms": report.floor_ms,
        "refusals": {k: {"refused": not c.ok, "reason": c.reason} for k, c in report.refusals.items()},
    }
