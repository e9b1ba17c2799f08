"""The figures of `problems/README.md`: cost, floor and GPU measurement of every problem, and the refusal table."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from runner import catalogue, plain_json
from runner.catalogue import Problem
from runner.errors import UserError
from runner.problem_check import H200, MUTANTS, Device, Quality, floor_ms, quality

BEGIN, END = "<!-- figures: begin (generated) -->", "<!-- figures: end -->"
_COLUMNS = (
    "NN",
    "problem",
    "formats",
    "small s",
    "small MB",
    "full MB",
    "full G op",
    "unit",
    "floor ms",
    "reference ms",
    "peak GB",
    "own",
    "CuPy",
)
_SHORT = {
    "zeros": "zeros",
    "constant": "constant",
    "identity_copy": "copy",
    "axis_shift": "shift",
    "half_accumulation": "half",
}


def measured(path: Path) -> dict[str, Any] | None:
    """The record that `benchmarks/problems_gpu.py` wrote, None where there is none."""
    if not path.exists():
        return None
    try:
        record = plain_json.loads(path.read_text("utf-8"))
        record["device"]["name"], record["problems"].items()
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"{path}: not a record of benchmarks/problems_gpu.py; write it anew on a GPU") from None
    return record


def table(
    root: Path | None = None, record: dict[str, Any] | None = None, found: Iterable[Quality] | None = None
) -> str:
    """Markdown of all figures: one row a problem, full-size columns from `record`, then the refusal table.

    Args:
        root: folder of the problem set; the one that ships with the project if None.
        record: what `measured` returned; its columns stay empty where it is None or a problem's text has changed since.
        found: results of `problem_check.quality`, by any order; computed here if None.
    """
    problems = catalogue.problems_in(root)
    found = {q.number: q for q in (found if found is not None else map(quality, problems))}
    device = device_of(record)
    lines = [
        f"Floors are for {device.name}: {device.bytes_per_s / 1e12:.2f} TB/s, "
        + ", ".join(f"{unit} {rate / 1e12:.0f} T/s" for unit, rate in device.operations_per_s.items())
        + ".",
        "`own` is the reference's error, `CuPy` that of CuPy against NumPy, each as a share of what is allowed.",
        "",
        "| " + " | ".join(_COLUMNS) + " |",
        "|---" * 3 + "|---:" * 4 + "|---" + "|---:" * 5 + "|",
    ]
    lines += [_row(problem, found[problem.number], _fresh(problem, record), device) for problem in problems]
    return "\n".join([*lines, "", *_refusal_lines(problems, found)]) + "\n"


def device_of(record: dict[str, Any] | None) -> Device:
    """The device that a record was measured on, the H200's rates where there is none."""
    if not record:
        return H200
    device = record["device"]
    return Device(device["name"], device["bytes_per_s"], device["operations_per_s"])


def _fresh(problem: Problem, record: dict[str, Any] | None) -> dict[str, Any]:
    row = (record or {"problems": {}})["problems"].get(f"{problem.number:02d}", {})
    return row if row.get("sha256") == problem.sha256 else {}


def _row(problem: Problem, found: Quality, row: dict[str, Any], device: Device) -> str:
    work = problem.module.work("full")
    ratio = _figure(row.get("agreement_ratio"), "{:.2f}")
    agrees = {True: ratio or "equal", False: "**no**"}.get(row.get("agrees"), "")
    cells = (
        f"{problem.number:02d}",
        f"{problem.family}/{problem.name}",
        " ".join(problem.module.OUTPUTS),
        f"{found.small_s:.2f}",
        f"{found.small_bytes / 1e6:.0f}",
        f"{work['n_bytes'] / 1e6:.0f}",
        f"{work['n_operations'] / 1e9:.3g}",
        work["unit"],
        f"{floor_ms(work, device):.3f}",
        _figure(row.get("reference_ms"), "{:.3f}"),
        _figure(row.get("peak_bytes"), "{:.1f}", 1e9),
        _figure(row.get("own_ratio"), "{:.2f}"),
        agrees,
    )
    return "| " + " | ".join(cells) + " |"


def _figure(value: float | None, form: str, unit: float = 1.0) -> str:
    return "" if value is None else form.format(value / unit)


def _refusal_lines(problems: list[Problem], found: dict[int, Quality]) -> list[str]:
    verdicts = [check for q in found.values() for check in q.refusals.values()]
    n_refused = sum(not check.ok for check in verdicts)
    lines = [
        f"Wrong answers refused by the accuracy rule: {n_refused} of {len(verdicts)} "
        f"({len(found)} problems x {len(MUTANTS)}). The figure is the error as a multiple of what is allowed; "
        "`differs` where equality is due, `far` where a code is over one step off or a number is missing.",
        "",
        "| NN | " + " | ".join(_SHORT[m] for m in MUTANTS) + " |",
        "|---" + "|---:" * len(MUTANTS) + "|",
    ]
    for problem in problems:
        cells = [_verdict(found[problem.number].refusals[mutant]) for mutant in MUTANTS]
        lines.append(f"| {problem.number:02d} | " + " | ".join(cells) + " |")
    return lines


def _verdict(check: Any) -> str:
    if check.ok:
        return "**passes**"
    if check.error_ratio is None:
        return "differs"
    return "far" if check.error_ratio == float("inf") else f"{check.error_ratio:.3g}"


def write_readme(root: Path | None = None) -> Path:
    """Put the figures between the two marks of the set's README.md, with `h200.json` beside it where it is there."""
    folder = root or catalogue.problem_root()
    path = folder / "README.md"
    text = path.read_text("utf-8") if path.exists() else ""
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise UserError(f"{path}: `{BEGIN}` and `{END}` must each stand in it once; put them where the figures belong")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    path.write_text(f"{before}{BEGIN}\n{table(root, measured(folder / 'h200.json'))}{END}{after}", "utf-8")
    return path
