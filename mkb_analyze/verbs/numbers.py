"""Verbs on numbers: one table alone, power of a design, a simulated study, a rater's calibration."""

import json
from pathlib import Path
from typing import Any

from annotators.progress import Progress
from mkb_analyze.console import Answer
from mkb_analyze.verbs.parse import number
from runner.errors import UserError

FORMATS = ("csv", "md", "latex", "json", "parquet")


def settings_of(
    study: Any, floor: Any = None, cap: Any = None, band: Any = None, tier_edge: Any = None, baseline: Any = None
) -> Any:
    """The settings of outcomes: flags first, then what the study's manifest names, then the defaults."""
    from mkb_analyze.transfers import Settings
    from runner.study import Study

    given = {
        "floor": number(floor, "floor"),
        "cap": number(cap, "cap"),
        "band": number(band, "band"),
        "tier_edge": number(tier_edge, "tier-edge"),
        "baseline": str(baseline) if baseline is not None else None,
    }
    return Settings.of(Study(Path(str(study))).manifest, **given)


def calibration_of(path: Any) -> Any:
    """A calibration file, or None where none is named."""
    if path is None:
        return None
    from annotators.calibrate import Calibration

    try:
        return Calibration.model_validate_json(Path(str(path)).read_text("utf-8"))
    except FileNotFoundError:
        raise UserError(f"--calibration {path}: no such file; `mkb-analyze calibrate` writes one") from None
    except ValueError as fault:
        raise UserError(
            f"--calibration {path}: no calibration ({str(fault).splitlines()[0]}); `mkb-analyze calibrate` writes one"
        ) from None


def table(
    study: Any, name: Any, form: Any, out: Any, settings: Any, which: Any, seed: Any, resamples: Any, calibration: Any
) -> Answer:
    """One table of a study in one format, to a file or to the terminal."""
    from mkb_analyze.analysis import analyse
    from runner.study import Study

    if form not in FORMATS:
        raise UserError(f"--format {form}: one of {', '.join(FORMATS)} is due")
    if form == "parquet" and out is None:
        raise UserError("--format parquet: a file is due; give --out FILE")
    start, drawn = number(seed, "seed", int, 0), number(resamples, "resamples", int, 100)
    data = analyse(
        Study(Path(str(study))),
        settings=settings,
        which=str(which),
        seed=start,
        n_resamples=drawn,
        calibration=calibration_of(calibration),
    )
    with Progress(f"table {name}", None):
        chosen = data.table(str(name))
    target = None if out is None else Path(str(out))
    if target is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
    if form == "parquet":
        chosen.parquet(target)
        return Answer(str(out), chosen.to_dict())
    text = {
        "csv": chosen.csv,
        "md": chosen.markdown,
        "latex": chosen.latex,
        "json": lambda: json.dumps(chosen.to_dict(), indent=1, sort_keys=True) + "\n",
    }[str(form)]()
    if target is not None:
        target.write_text(text, "utf-8", "surrogatepass")
        return Answer(str(out), chosen.to_dict())
    return Answer(text.rstrip("\n"), chosen.to_dict())


def figure(study: Any, name: Any, style: Any, out: Any, settings: Any, which: Any, seed: Any, resamples: Any) -> Answer:
    """One figure of a study in one style, to a file named by --out (else NAME.svg here)."""
    from mkb_analyze.analysis import analyse
    from mkb_analyze.pictures import FIGURES, FORMATS, STYLES, draw
    from runner.study import Study

    target = Path(str(out)) if out is not None else Path(f"{name}.svg")
    # What can be refused at once is refused before the numbers are made.
    for given, known, what in (
        (str(name), FIGURES, "no such figure"),
        (str(style), STYLES, "no such style"),
        (target.suffix.lower(), FORMATS, "no such format of a figure (--out)"),
    ):
        if given not in known:
            raise UserError(f"{given!r}: {what}; one of {', '.join(known)}")
    start, drawn = number(seed, "seed", int, 0), number(resamples, "resamples", int, 100)
    data = analyse(Study(Path(str(study))), settings=settings, which=str(which), seed=start, n_resamples=drawn)
    with Progress(f"figure {name}", None):
        made = draw(data, str(name), str(style))
        made.save(target)
    told = {"path": str(target), "name": made.name, "reading": made.reading, "alt": made.alt, "table": made.table}
    return Answer(f"{target}\n{made.reading}", told)


def power(
    points: Any, base: Any, per_problem: Any, icc: Any, target: Any, sensitivity: Any, specificity: Any, seed: Any
) -> Answer:
    """Problems and transfers needed to see a difference of some points, and gold labels for a rater that errs."""
    from mkb_analyze.stats import misclassification
    from mkb_analyze.stats.power import Design, problems_needed

    gap, p2 = number(points, "points", float, 0.1) / 100, number(base, "base", float, 0)
    if not 0 < p2 < 1 or not 0 < p2 + gap < 1:
        raise UserError(
            f"--base {base}, --points {points}: both shares must lie between 0 and 1; give a base rate such as 0.3"
        )
    se, sp = number(sensitivity, "sensitivity", float, 0), number(specificity, "specificity", float, 0)
    try:
        design = Design(
            2, number(per_problem, "per-problem", int, 1), p2 + gap, p2, number(icc, "icc", float, 0), 0.5, se, sp
        )
    except ValueError as fault:
        raise UserError(str(fault)) from None
    goal, start = number(target, "target", float, 0), number(seed, "seed", int, 0)
    with Progress("power: simulating studies", None):
        found = problems_needed(design, goal, rng=start)
    gold = (
        misclassification.gold_labels_needed(gap / 2, p2, se, sp, max(found.n_transfers or 1, 1))
        if se + sp - 1 > 0.05 and (se < 1 or sp < 1)
        else None
    )
    data = {
        "n_problems": found.n_problems,
        "n_transfers": found.n_transfers,
        "power": found.power.to_dict(),
        "n_gold_labels": gold,
        "tried": [e.to_dict() for e in found.tried],
    }
    if found.n_problems is None:
        return Answer(f"not reached: power {found.power.estimate:.2f} at the largest design tried", data, 1)
    line = (
        f"{found.n_problems} problems ({found.n_transfers} transfers) show a difference of {100 * gap:g} points "
        f"from {p2:g} with power {found.power.estimate:.2f} [{found.power.low:.2f}, {found.power.high:.2f}]"
    )
    if gold is not None:
        line += f"; {gold} gold labels bound the corrected share to half of that"
    return Answer(line, data)


def simulated(out: Any, models: Any, problems: Any, replicates: Any, raters: Any, seed: Any) -> Answer:
    """A synthetic study with known truth."""
    from annotators import rubric
    from mkb_analyze.simulate import simulate, truth_of

    study = simulate(
        Path(str(out)),
        rubric.shipped("content"),
        n_models=number(models, "models", int, 1),
        n_problems=number(problems, "problems", int, 1),
        n_replicates=number(replicates, "replicates", int, 1),
        n_raters=number(raters, "raters", int, 0),
        seed=number(seed, "seed", int, 0),
    )
    return Answer(
        f"{study.path}: synthetic study", {"study": str(study.path), "synthetic": True, "truth": truth_of(study)}
    )


def calibrated(gold: Any, rater: Any, out: Any, rubric: Any, base_url: Any) -> Answer:
    """A rater scored against gold; the calibration goes to a file where one is named."""
    from annotators.calibrate import calibrate

    how = {"base_url": str(base_url)} if base_url is not None else {}
    found = calibrate(Path(str(gold)), str(rater), rubric=str(rubric) if rubric is not None else None, **how)
    if out is not None:
        Path(str(out)).write_text(json.dumps(found.line(), indent=1, sort_keys=True) + "\n", "utf-8")
    return Answer(found.table() + (f"\n{out}" if out is not None else ""), found.line())
