"""From a study to a folder of pages: tables and figures made once, pages rendered, then the whole put in place."""

import os
import shutil
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import jinja2

from annotators.calibrate import Calibration
from annotators.progress import Progress
from mkb_analyze import analysis, ctrl_c, table
from mkb_analyze.pair_label import outside_pair
from mkb_analyze.report import colours, pages, texts
from mkb_analyze.report.site import Site
from mkb_analyze.simulate import is_synthetic
from mkb_analyze.transfers import Settings
from runner.errors import UserError
from runner.study import Study

_HERE = Path(__file__).parent
_MARK = ".mkb-analyze-report"


@dataclass(frozen=True)
class Made:
    """Where the report stands and how much is in it."""

    index: Path
    n_pages: int
    n_transfers: int


def report(
    study_path: Path,
    out: Path,
    *,
    settings: Settings = Settings(),
    labels: str = "panel",
    seed: int = 0,
    n_resamples: int = 2000,
    calibration: Calibration | None = None,
) -> Made:
    """Write the report of a study to `out`, whole or not at all; an older report there is replaced.

    Raises:
        UserError: no study there, or `out` holds something that is no report.
    """
    study = Study(study_path)
    if out.exists() and any(out.iterdir()) and not (out / _MARK).is_file():
        raise UserError(f"{out}: holds files that are no report; give an empty or a new folder")
    data = analysis.analyse(
        study, settings=settings, which=labels, seed=seed, n_resamples=n_resamples, calibration=calibration
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    building = out.with_name(f".{out.name}.{os.getpid()}.building")
    shutil.rmtree(building, ignore_errors=True)
    try:
        n_pages = _write(study, data, building)
        (building / _MARK).write_text(data.study_digest + "\n")
        # The old report goes only when the new one is whole; a crash between leaves the old one beside it.
        old = out.with_name(f".{out.name}.{os.getpid()}.old")
        with ctrl_c.put_off():
            if out.exists():
                os.replace(out, old)
            os.replace(building, out)
            shutil.rmtree(old, ignore_errors=True)
    finally:
        with ctrl_c.put_off():
            shutil.rmtree(building, ignore_errors=True)
    return Made(out / "index.html", n_pages, len(data.transfers))


def _write(study: Study, data: "analysis.Analysis", out: Path) -> int:
    (out / "static").mkdir(parents=True)
    for name in ("report.css", "report.js"):
        shutil.copyfile(_HERE / "static" / name, out / "static" / name)
    (out / "static" / "code.css").write_text(texts.code_css())
    n_written, bar = 0, Progress("pages", None)
    with colours.made_ahead(study, colours.kernels(data.transfers)) as coloured:
        for item in pages.Pages(Site(study, data, coloured), _environment(study, data), out).all():
            target = out / item.path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(item.html, "utf-8", "surrogatepass")
            n_written += 1
            bar.step()
    bar.close()
    for one in data.tables():
        (out / "tables").mkdir(exist_ok=True)
        (out / "tables" / f"{one.name}.csv").write_text(one.csv(), "utf-8", "surrogatepass")
    return n_written


def _environment(study: Study, data: "analysis.Analysis") -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = table.one
    environment.filters["show"] = table.show
    environment.filters["hostile"] = lambda value: texts.safe(str(value))
    environment.globals |= {
        "settings": data.settings,
        "study_digest": data.study_digest,
        "which": data.labels.which,
        "seed": data.seed,
        "version": _version(),
        "scope": data.scope,
        "synthetic": is_synthetic(study),
        "outside": outside_pair({d for t in data.transfers for d in (t.source_dsl, t.target_dsl)}),
    }
    return environment


def _version() -> str:
    try:
        return version("mkb-analyze")
    except PackageNotFoundError:
        return "from source"
