"""The report: every link lands, nothing of a stranger's text is live, the same study gives the same bytes."""

import csv
import hashlib
from html.parser import HTMLParser
from pathlib import Path

import pytest

from annotators import rubric
from annotators.records import Attribution, Fate, Quotation
from mkb_analyze.report import build
from mkb_analyze.simulate import simulate
from mkb_analyze.transfers import build as transfers_of
from runner.errors import UserError
from runner.records import Attempt
from runner.study import Study

EVIL_NOTE = (
    '# <script>alert(1)</script>\n- =HYPERLINK("http://x") & <img src=x onerror=alert(2)>\n- Must use \u202eevil, the only way.\n'
    "- 中文结论，没有证据。🙂\n"
)
EVIL_KERNEL = "def solve(x):\n    return '</pre><script>alert(3)</script>'\n"
EVIL_MODEL = "../x<b>\"'"


class Reader(HTMLParser):
    """Tags, ids, links and text of one page."""

    def __init__(self, page: str):
        super().__init__()
        self.tags, self.ids, self.links, self.attributes = [], set(), [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            self.attributes.append(name)
            if name == "id":
                assert value not in self.ids, f"id {value} stands twice"
                self.ids.add(value)
            if name in ("href", "src"):
                self.links.append(value)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A report of one harmed transfer whose every text is hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    study = Study.create(folder / "study")
    note = study.put_text("notes", EVIL_NOTE)
    kernel = study.put_text("kernels", EVIL_KERNEL)
    base = {
        "model": EVIL_MODEL,
        "problem": 28,
        "problem_name": "<i>n</i>",
        "kernel_sha256": kernel,
        "note_sha256": note,
    }
    good = {"passed": True, "stage": "done", "speedup": 3.0, "kernel_ms": 1.0, "reference_ms": 3.0}
    bad = {"passed": False, "stage": "correctness", "reason": "</td><script>alert(4)</script>"}
    attempts = [
        Attempt(**base, dsl="cutedsl", arm="solo", verdict=good),
        Attempt(**base, dsl="tirx", arm="solo", verdict=good),
        Attempt(
            **base,
            dsl="tirx",
            arm="conditioned",
            source_dsl="cutedsl",
            source_note_sha256=note,
            generation=1,
            verdict=bad,
        ),
    ]
    content, causes, fates = (
        rubric.shipped(t) if hasattr(rubric, "shipped") else rubric.load(t) for t in ("content", "attribution", "fate")
    )
    start = EVIL_NOTE.index("Must")
    span = {"start": start, "end": EVIL_NOTE.index("\n", start)}
    quote = Quotation(side="note", sha256=note, text=EVIL_NOTE[span["start"] : span["end"]], **span)
    with study.writing():
        study.append("attempts", attempts)
        (t,) = [t for t in transfers_of(attempts) if t.resolved]
        rater = {"kind": "file", "name": "file:<u>.jsonl", "rubric_id": causes.id, "rubric_sha256": causes.sha256}
        study.append(
            "attributions",
            Attribution(
                transfer=t.ref,
                rater=rater,
                cause=causes.ids[0],
                adherence=causes.scales[0].ids[0],
                quotations=(quote,),
                rationale="<script>alert(5)</script>",
            ),
        )
        study.append(
            "fates",
            Fate(
                transfer=t.ref,
                note_sha256=note,
                next_note_sha256=note,
                fate=fates.ids[0],
                quotation=quote,
                **span,
                rater={**rater, "rubric_id": fates.id, "rubric_sha256": fates.sha256},
            ),
        )
        label = {**span, "label": content.role("unsupported")[-1], "flags": {"evidence": "none", "dsl_specific": False}}
        study.append("annotations", _annotation(note, content, label))
    made = build.report(folder / "study", folder / "out", n_resamples=200)
    return made.index.parent


def _annotation(note, content, label):
    from annotators.records import Annotation

    return Annotation(
        note_sha256=note,
        claims=(label,),
        rater={"kind": "file", "name": "file:<u>.jsonl", "rubric_id": content.id, "rubric_sha256": content.sha256},
    )


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("simulated")
    simulate(folder / "study", rubric.load("content"), n_models=2, n_problems=8, seed=3)
    build.report(folder / "study", folder / "out", n_resamples=200)
    return folder


def pages(folder: Path) -> dict[Path, Reader]:
    return {p: Reader(p.read_text("utf-8")) for p in folder.rglob("*.html")}


def test_no_stranger_runs_anything(hostile):
    for path, page in pages(hostile).items():
        assert page.tags.count("script") == 1, f"{path} holds a script that is not ours"
        assert not {"onerror", "onclick", "onload"} & set(page.attributes)
        assert not any(link.startswith(("http:", "https:", "javascript:", "//")) for link in page.links)


def test_hostile_text_is_shown_not_lost(hostile):
    (page,) = (hostile / "transfers").glob("*cutedsl2tirx*.html")
    text = page.read_text("utf-8")
    assert (
        "&lt;script&gt;alert(1)&lt;/script&gt;" in text
        and "⟨U+202E⟩" in text
        and "中文结论" in text
        and "alert(3)" in text
    )


def test_every_link_lands(hostile, simulated):
    for folder in (hostile, simulated / "out"):
        known = pages(folder)
        for path, page in known.items():
            for link in page.links:
                target, _, anchor = link.partition("#")
                file = (path.parent / target).resolve() if target else path
                assert file.exists() and folder.resolve() in file.resolve().parents, (
                    f"{path.name}: {link} leads nowhere"
                )
                if anchor:
                    assert anchor in known.get(file, page).ids, f"{path.name}: {link} has no such place"


def test_claims_and_quotations_are_marked_in_place(hostile):
    (page,) = (hostile / "transfers").glob("*cutedsl2tirx*.html")
    reader = Reader(page.read_text("utf-8"))
    start = EVIL_NOTE.index("Must")
    assert f"claim-{start}-{EVIL_NOTE.index(chr(10), start)}" in reader.ids and "quote-0-0" in reader.ids


def test_model_name_is_no_path(hostile):
    assert {p.parent.name for p in hostile.rglob("*.html")} == {"out", "transfers", "problems", "categories"}
    assert not any(".." in p.name or "<" in p.name for p in hostile.rglob("*"))


def test_csv_cells_are_no_formulas(hostile):
    for path in (hostile / "tables").glob("*.csv"):
        with open(path, encoding="utf-8", newline="") as stream:
            for row in csv.reader(stream):
                assert not any(cell.startswith(("=", "+", "@")) for cell in row), path.name


def digest(folder: Path) -> dict[str, str]:
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


def test_same_study_same_bytes_with_kernels_coloured_by_other_processes(simulated, monkeypatch):
    monkeypatch.setattr(build.colours, "_WORTH_A_PROCESS", 1)
    monkeypatch.setattr(build.colours.os, "cpu_count", lambda: 2)
    build.report(simulated / "study", simulated / "forked", n_resamples=200)
    assert digest(simulated / "forked") == digest(simulated / "out")


def test_from_the_headline_to_the_sentence_in_one_click(hostile):
    """The overview links the blamed sentence of the largest loss to its place in the note."""
    start = EVIL_NOTE.index("Must")
    (link,) = {x for x in pages(hostile)[hostile / "index.html"].links if "#quote-" in x}
    page = (hostile / link.partition("#")[0]).read_text("utf-8")
    at = page.index('id="quote-0-0"')
    assert f'id="claim-{start}-' in page[at - 400 : at] and page[at:].startswith('id="quote-0-0"></span>Must use')


def test_a_long_list_is_split_by_model_and_loses_no_row(simulated, monkeypatch):
    monkeypatch.setattr(build.pages.lists, "MAX_ROWS", 10)
    build.report(simulated / "study", simulated / "split", n_resamples=200)
    rows = [
        link
        for path, page in pages(simulated / "split").items()
        if path.name.startswith("transfers")
        for link in page.links
        if link.startswith("transfers/")
    ]
    assert len(rows) == len(set(rows)) == 2 * 8 * 2
    assert len(list((simulated / "split").glob("transfers*.html"))) == 4


def test_synthetic_stands_on_every_page(simulated):
    assert all("Synthetic study." in p.read_text("utf-8") for p in (simulated / "out").rglob("*.html"))


def test_report_replaces_only_a_report(simulated, tmp_path):
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(UserError, match="holds files that are no report"):
        build.report(simulated / "study", tmp_path)
    assert (tmp_path / "precious.txt").read_text() == "mine"


def test_a_broken_build_leaves_the_old_report(simulated, monkeypatch):
    before = digest(simulated / "out")
    monkeypatch.setattr(build.texts, "code_css", lambda: (_ for _ in ()).throw(RuntimeError("disk full")))
    with pytest.raises(RuntimeError):
        build.report(simulated / "study", simulated / "out", n_resamples=200)
    assert digest(simulated / "out") == before
    assert not [p for p in simulated.iterdir() if p.name.startswith(".out")]


def test_an_empty_study_says_so(tmp_path):
    Study.create(tmp_path / "s")
    page = build.report(tmp_path / "s", tmp_path / "r").index.read_text("utf-8")
    assert "No transfer is resolved yet" in page and "nan" not in page.lower().replace("finance", "")
