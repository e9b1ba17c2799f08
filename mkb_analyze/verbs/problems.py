"""Verbs on the problem set: list, show, check."""

from typing import Any

from annotators.progress import tracked
from mkb_analyze.console import Answer, printable
from mkb_analyze.verbs.parse import folder, number

_SHOWN = ("number", "family", "name", "formats", "n_bytes", "n_operations", "floor_ms")


class Problems:
    """The problem set: 74 computations in six families.

    Examples:
      mkb-analyze problems list
      mkb-analyze problems show 28
      mkb-analyze problems check 28
    """

    def list(self, which: str = "all", problem_set: str | None = None) -> Answer:
        """List the problems: number, family, name, output formats, bytes, operations and the floor on an H200 in ms.

        --problem-set takes a checkout of the published set or of KernelBench; of these, number, family, name, title.

        Example:
          mkb-analyze problems list --which mlp_norm
        """
        from mkb_analyze.table import show
        from runner import catalogue, problem_check

        if problem_set is not None:
            return _foreign_list(
                catalogue.select(which, folder(problem_set)), catalogue.set_digest(folder(problem_set))
            )
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

    def show(self, problem: str, problem_set: str | None = None) -> Answer:
        """Print what an agent is told of one problem.

        Example:
          mkb-analyze problems show 28
        """
        from runner import catalogue

        chosen = catalogue.problem(problem, folder(problem_set))
        return Answer(
            chosen.statement() if problem_set is None else "\n".join(map(printable, chosen.statement().splitlines())),
            {
                "problem": chosen.number,
                "name": chosen.name,
                "family": chosen.family,
                "sha256": chosen.sha256,
                "text": chosen.statement(),
            },
        )

    def check(self, which: str = "all", seed: str = "0", problem_set: str | None = None) -> Answer:
        """Run the quality bar: speed, memory, determinism, and that the contract refuses wrong answers.

        With --problem-set, whether each problem of that set can be graded on here (this runs its code, in a child).

        Example:
          mkb-analyze problems check 28
        """
        from runner import catalogue, problem_check
        from runner.foreign import ForeignProblem

        start = number(seed, "seed", int, 0)
        chosen = catalogue.select(which, folder(problem_set))
        if any(isinstance(p, ForeignProblem) for p in chosen):
            return _foreign_check(chosen, start)
        reports = [problem_check.quality(p, seed=start) for p in tracked(chosen, "problems check")]
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


def _foreign_list(chosen: Any, digest: str) -> Answer:
    rows = [{"number": p.number, "family": p.family, "name": p.name, "title": p.title} for p in chosen]
    width = max(len(f"{r['family']}/{r['name']}") for r in rows)
    lines = [f"{r['number']:>5}  {(r['family'] + '/' + r['name']).ljust(width)}  {printable(r['title'])}" for r in rows]
    return Answer("\n".join([*lines, f"problem set {digest}"]), {"problems": rows, "sha256": digest})


def _foreign_check(chosen: Any, seed: int) -> Answer:
    from runner import foreign_check
    from runner.arrays import n_gpus

    reports = [foreign_check.quality(p, "cuda" if n_gpus() else "cpu", seed) for p in chosen]
    lines = [f"{r.number:>5} {r.name}: {'ok' if r.ok else printable('; '.join(r.faults))}" for r in reports]
    n_ok = sum(r.ok for r in reports)
    lines.append(f"{n_ok} of {len(reports)} problems can be graded on")
    data = [{"number": r.number, "name": r.name, "ok": r.ok, "faults": [*r.faults]} for r in reports]
    return Answer("\n".join(lines), data, 0 if n_ok == len(reports) else 1)


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
