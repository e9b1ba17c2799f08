"""The notebook's door: tidy frames that agree with the tables, HTML that escapes, an import that costs nothing."""

import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import mkb_analyze
from mkb_analyze.console import run
from mkb_analyze.pictures import FIGURES
from mkb_analyze.tables import TABLES
from runner.records import Attempt
from runner.study import Study

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "study"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """The recorded study, labelled by the embedded rater."""
    folder = tmp_path_factory.mktemp("view") / "study"
    shutil.copytree(EXAMPLE, folder)
    for verb in ("annotate", "attribute", "trace"):
        assert run([verb, "--study", str(folder), "--quiet"]) == 0
    return folder


@pytest.fixture(scope="module")
def view(path):
    return mkb_analyze.open(path, resamples=100)


def test_importing_costs_nothing():
    code = (
        "import sys, mkb_analyze; print([m for m in ('numpy', 'pandas', 'matplotlib', 'pydantic') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_every_public_name_is_there():
    assert all(getattr(mkb_analyze, name) is not None for name in mkb_analyze.__all__)
    with pytest.raises(AttributeError):
        mkb_analyze.nothing  # noqa: B018


def test_transfers_are_the_rows_of_the_table(view):
    rows, table = view.transfers(), view.table("transfers").frame()
    assert len(rows) == len(table) == 6 and set(rows["outcome"]) <= {"helped", "neutral", "harmed"}
    counted = view.table("outcomes").frame()
    assert (rows["outcome"] == "harmed").sum() == counted[counted["model"] != "all"]["n_harmed"].sum()


def test_attempts_hold_every_verdict(view):
    rows = view.attempts()
    assert len(rows) == 12 and rows["passed"].all() and (rows["speedup"] > 0).all()
    assert (rows["reference_ms"] / rows["kernel_ms"] / rows["speedup"]).between(0.99, 1.01).all()


def test_claims_quote_their_note_letter_for_letter(view, path):
    rows = view.claims()
    study = Study(path)
    assert len(rows) > 50
    for r in rows.itertuples():
        assert r.text == study.note(r.note_sha256)[r.start : r.end]


def test_labels_count_what_the_files_hold(view, path):
    rows = view.labels()
    n_claims = sum(len(line["claims"]) for _, line in Study(path).lines("annotations"))
    n_fates = sum(1 for _ in Study(path).lines("fates"))
    assert (rows["task"] == "content").sum() == n_claims and (rows["task"] == "fate").sum() == n_fates
    assert (rows["label"].isna() == rows["unscored"].notna()).all()


def test_labels_hold_what_people_settled(path, tmp_path):
    from annotators.records import Adjudication

    shutil.copytree(path, tmp_path / "s")
    study = Study(tmp_path / "s")
    sha = study.attempts()[0].note_sha256
    told = {"claims": [{"start": 0, "end": 5, "label": "cost_model", "flags": {}}]}
    with study.writing():
        study.append(
            "adjudications",
            Adjudication(task="content", item=sha, person="ana", rubric_id="r", rubric_sha256="0" * 64, decision=told),
        )
    rows = mkb_analyze.open(tmp_path / "s", resamples=100).labels()
    assert rows[rows["rater"] == "person:ana"][["item", "start", "end", "label"]].values.tolist() == [
        [sha, 0, 5, "cost_model"]
    ]


def test_the_names_of_tables_are_all_and_in_order(view):
    assert view.tables() == TABLES


@pytest.mark.parametrize("name", ["outcomes", "causes"])
def test_figures_are_the_same_bytes_again(view, name, tmp_path):
    for ending in ("svg", "png", "pdf"):
        a, b = (view.figure(name, "paper").save(tmp_path / f"{k}.{ending}").read_bytes() for k in "ab")
        assert a == b and len(a) > 1000
    assert view.figure(name)._repr_svg_().lstrip().startswith("<?xml")


def test_every_figure_has_its_reading_and_a_table(view):
    from mkb_analyze import figures_study

    assert tuple(figures_study.FIGURES) == FIGURES
    n_drawn = 0
    for name in FIGURES:
        try:
            made = view.figure(name)
        except mkb_analyze.UserError as nothing:
            assert "nothing to draw" in str(nothing)
            continue
        assert made.reading and made.alt and made.table in TABLES
        n_drawn += 1
    assert n_drawn >= 8


def test_paper_is_a_column_wide_in_eight_points(view):
    from matplotlib.text import Text

    figure = view.figure("paired_ratios", "paper").figure
    assert figure.get_size_inches()[0] == 5.5 and {t.get_fontsize() for t in figure.findobj(Text)} == {8.0}


def test_drawing_leaves_the_backend_of_the_notebook(view):
    import matplotlib

    matplotlib.use("svg")
    view.figure("outcomes")
    assert matplotlib.get_backend().lower() == "svg"


@pytest.mark.parametrize(
    "call, needle",
    [
        (lambda v: v.table("nothing"), "no such table; one of adherence"),
        (lambda v: v.figure("nothing"), "no such figure; one of outcomes"),
        (lambda v: v.figure("outcomes", "poster"), "one of screen, paper is due"),
        (lambda v: v.figure("outcomes").save("x.gif"), "ends in .svg, .png, .pdf"),
        (lambda v: mkb_analyze.open("/nonexistent"), "no study here"),
        (lambda v: mkb_analyze.open(v.study.path, flor=1), "no such setting; there are floor"),
        (lambda v: mkb_analyze.open(v.study.path, floor=500), "0 < floor < cap"),
    ],
)
def test_a_mistake_names_value_rule_and_cure(view, call, needle):
    with pytest.raises(mkb_analyze.UserError, match=needle):
        call(view)


def test_report_writes_the_same_site_as_the_verb(view, tmp_path):
    index = view.report(tmp_path / "site")
    assert index.is_file() and index.name == "index.html"


def test_what_shows_itself_is_escaped(tmp_path):
    study = Study.create(tmp_path / "s")
    with study.writing():
        study.append("attempts", Attempt(model="<script>alert(1)</script>", problem=1, dsl="tirx", arm="solo"))
    view = mkb_analyze.open(tmp_path / "s", resamples=100)
    for shown in (view._repr_html_(), view.table("attempts")._repr_html_()):
        assert "<script>" not in shown and "&lt;script&gt;" in shown
    assert isinstance(view.transfers(), pd.DataFrame) and len(view.transfers()) == 0
