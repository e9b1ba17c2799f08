"""Making raters: names, panel files, labels from a file."""

import dataclasses
import json

import pytest

from annotators import panel, raters, seats
from annotators.records import Annotation, Attribution, Fate
from annotators.tasks.content import Note
from runner.errors import UserError
from runner.limits import Limits
from tests.annotators.support import NOTE, lines, study_of_notes, study_of_transfers


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")


def write(folder, *rows):
    file = folder / "labels.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"file:{file}"


# Names and panel files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", ["", "gpt-x", "openai:", "file:", "embedded:x", "OPENAI:x", "file:/nowhere/x.jsonl"])
def test_a_rater_that_cannot_be_made_is_one_line(spec):
    with pytest.raises(UserError) as caught:
        raters.make(spec)
    assert "\n" not in str(caught.value)


def test_a_model_file_of_ones_own_is_a_rater_of_its_own_name(tmp_path):
    from annotators.embedded import model

    shipped_model = model.load()
    file = tmp_path / "mine.npz"
    digest = model.save(dataclasses.replace(shipped_model, threshold=0.5), file)
    own = raters.make(f"embedded:{file}")
    assert own.name == "embedded:mine.npz"
    assert own.rater.threshold == 0.5 and own.rater.model.sha256 == digest != shipped_model.sha256


def test_a_panel_file_names_raters_repeats_and_limits(tmp_path):
    (tmp_path / "prices.yaml").write_text("b: {input_usd: 1, output_usd: 2}\n")
    file = tmp_path / "panel.yaml"
    file.write_text(
        "prices: prices.yaml\nlimits: {max_tokens: 5000, concurrency: 3}\nraters:\n  - embedded\n"
        "  - rater: openai:a\n    repeats: 2\n"
        "    temperature: 0.2\n    base_url: http://127.0.0.1:9/v1\n"
        "    limits: {requests_per_minute: 60}\n  - openai:b\n"
    )
    found, budget = seats.seats(file, base_url="http://127.0.0.1:8/v1")
    assert [(s.rater.name, s.repeat) for s in found] == [
        ("embedded", 1),
        ("openai:a", 1),
        ("openai:a", 2),
        ("openai:b", 1),
    ]
    a, b = found[1].rater, found[3].rater
    assert (a.temperature, b.temperature, b.client.price.output_usd) == (0.2, 0.0, 2.0)
    assert (
        found[1].limits == Limits(max_tokens=5000, concurrency=3, requests_per_minute=60)
        and found[3].limits.concurrency == 3
    )
    assert a.client.budget is b.client.budget is budget and budget.limits.max_tokens == 5000
    assert a.client.base_url == "http://127.0.0.1:9/v1" and b.client.base_url == "http://127.0.0.1:8/v1"


@pytest.mark.parametrize(
    "text, told",
    [
        ("raters: []", "at least one rater"),
        ("- embedded", "a list `raters`"),
        ("raters: embedded", "a list `raters`"),
        ("raters: [3]", "each is a name"),
        ("raters: [{rater: embedded, retries: 3}]", "retries"),
        ("rater: [embedded]", "a list `raters`"),
        ("raters: [embedded]\nspeed: 3", "speed"),
        ("raters: [embedded, embedded]", "named twice"),
        ("raters: [{rater: embedded, repeats: 0}]", "repeats 0"),
        ("raters: [{rater: embedded, repeats: true}]", "repeats True"),
        ("raters: [embedded]\nlimits: {max_usd: cheap}", "no number"),
        ("raters: [embedded]\nlimits: {max_spend: 3}", "max_spend"),
        ("raters: [{rater: embedded, limits: {max_usd: 3}}]", "one purse"),
        ("raters: [", "no YAML"),
        ("raters: [embedded]\nlimits: 3", "limits"),
    ],
)
def test_a_wrong_panel_file_is_one_line(tmp_path, text, told):
    file = tmp_path / "panel.yml"
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        seats.seats(file)
    assert told in str(caught.value) and "\n" not in str(caught.value)


def test_a_rater_asked_once_is_cold_and_one_asked_often_is_not():
    one, _ = seats.seats("openai:a", base_url="http://127.0.0.1:9/v1")
    many, _ = seats.seats("openai:a", base_url="http://127.0.0.1:9/v1", repeats=3)
    assert one[0].rater.temperature == 0.0 and many[0].rater.temperature == seats.VARIED
    assert len({s.rater.seed_of(s.repeat) for s in many}) == 3


# Files -----------------------------------------------------------------------------------------------------------


def test_labels_of_a_file_are_found_by_span_and_held_to_the_rubric(tmp_path):
    study = study_of_notes(tmp_path / "s", 2)
    sha, other = panel.note_digests(study)
    claims = Note.of(study.note(sha)).claims
    rows = [
        {
            "note_sha256": sha,
            "start": c.start,
            "end": c.end + n % 2,
            "category": "hardware_mapping",
            "evidence": "none",
            "dsl_specific": False,
        }
        for n, c in enumerate(claims)
    ]
    rows[1]["category"], rows[2]["category"] = None, "excellent"
    summary = panel.annotate(study, write(tmp_path, *rows), progress=False)
    (record,) = study.read("annotations", Annotation)
    labels = [c.label for c in record.claims]
    assert labels == ["hardware_mapping", None, None] + ["hardware_mapping"] * (len(claims) - 3)
    assert record.claims[1].unscored.startswith("not answered") and record.claims[2].unscored.startswith(
        "label outside"
    )
    assert summary.n_failed == {"not in the file": 1} and record.rater.kind == "file"


def test_a_studys_own_annotations_are_a_file_of_labels(tmp_path):
    first, second = study_of_notes(tmp_path / "a", 3), study_of_notes(tmp_path / "b", 3)
    panel.annotate(first, "embedded", progress=False)
    panel.annotate(second, f"file:{first.path / 'annotations.jsonl'}", progress=False)
    told = [
        {(c["start"], c.get("label")) for line in lines(s, "annotations") for c in line["claims"]}
        for s in (first, second)
    ]
    assert told[0] == told[1]


def test_transfers_and_fates_of_a_file_need_their_quotations_too(tmp_path):
    study = study_of_transfers(tmp_path / "s", 2)
    keys = [f"m/p0{p}_r1_tirx2cutedsl" for p in (1, 2)]
    good = {
        "transfer": keys[0],
        "cause": "search_truncation",
        "adherence": "full",
        "quotations": [
            {"source": "source note", "text": "Use 128 threads a row"},
            {"source": "conditioned kernel", "text": "threads=128"},
        ],
    }
    bad = {**good, "transfer": keys[1], "quotations": [{"source": "source note", "text": "Use 4096 threads"}]}
    panel.attribute(study, write(tmp_path, good, bad), progress=False)
    found = {r.transfer.problem: r for r in study.read("attributions", Attribution)}
    assert found[1].cause == "search_truncation" and found[2].unscored.startswith("invented quotation")
    start = NOTE.index("Warp")
    span = (start, start + len("Warp specialisation gives the best overlap here."))
    rows = [
        {"transfer": k, "start": span[0], "end": span[1], "fate": "restated", "quotation": q}
        for k, q in zip(keys, ("Warp specialisation gave the best overlap.", "It is great."), strict=True)
    ]
    panel.trace(study, write(tmp_path, *rows), unsupported=lambda sha: [span], progress=False)
    fates = {r.transfer.problem: r for r in study.read("fates", Fate)}
    assert fates[1].fate == "restated" and fates[2].unscored.startswith("invented quotation")


@pytest.mark.parametrize(
    "row", ["{broken", "3", "[]", '{"note_sha256": "x"}', '{"transfer": 3, "fate": "absent"}', '{"a": 1}']
)
def test_a_file_with_another_line_is_named_by_line(tmp_path, row):
    file = tmp_path / "labels.jsonl"
    file.write_text('{"transfer": "m/p01_r1_a2b", "cause": "x"}\n' + row + "\n")
    with pytest.raises(UserError, match="labels.jsonl:2"):
        raters.make(f"file:{file}")
