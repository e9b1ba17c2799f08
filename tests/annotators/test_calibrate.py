"""Scores against gold: the counts by hand, the intervals by an outside value, the digests that bind them."""

import json
from pathlib import Path

import pytest

from annotators import calibrate
from annotators.raters import make
from annotators.records import Rater
from annotators.rubric import shipped
from annotators.tasks.content import Content
from runner.errors import UserError
from runner.limits import Limits
from tests.servers.misbehaving import Server

GOLD = Path(__file__).resolve().parents[1] / "data" / "notes" / "gold.jsonl"
RUBRIC = shipped("content")
ONE = Rater(
    kind="model",
    name="openai:tiny",
    rubric_id="content",
    rubric_sha256=RUBRIC.sha256,
    prompt_sha256="cd" * 32,
    settings={"seed": 1, "temperature": 0.0},
)
A, B, C = RUBRIC.ids[:3]


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")


def made(rater=ONE):
    pairs = [(A, A)] * 8 + [(A, B)] * 2 + [(B, B)] * 5 + [(B, A)] + [(B, None)] * 4 + [(C, None)]
    return calibrate.score(pairs, rater, RUBRIC, "ef" * 32, 3)


def test_counts_and_shares_by_hand():
    c = made()
    a, b, c3 = c.scores[:3]
    assert (a.n_gold, a.n_given, a.n_both) == (10, 9, 8) and (b.n_gold, b.n_given, b.n_both) == (10, 7, 5)
    assert a.precision == pytest.approx(8 / 9) and a.recall == pytest.approx(8 / 10) and a.f1 == pytest.approx(16 / 19)
    assert (c3.precision, c3.recall, c3.f1) == (None, 0.0, 0.0) and c.scores[4].f1 is None
    assert c.accuracy == pytest.approx(13 / 21) and c.n_without_label == 5 and c.n_unmatched == 3
    assert c.macro_f1 == pytest.approx((16 / 19 + 10 / 17 + 0) / 3)
    assert sum(map(sum, c.confusion)) == 21 and c.confusion[0][:2] == (8, 2) and c.confusion[1][-1] == 4
    # kappa by hand: chance = (10*9 + 10*7 + 1*0 + 0*5) / 21²
    assert c.kappa == pytest.approx((13 / 21 - 160 / 441) / (1 - 160 / 441))


def test_intervals_are_wilsons():
    # Agresti & Coull 1998 / Newcombe 1998: 8 of 10 -> [0.4902, 0.9433]
    low, high = made().scores[0].recall_interval
    assert (low, high) == (pytest.approx(0.4902, abs=1e-4), pytest.approx(0.9433, abs=1e-4))
    low, high = made().scores[0].f1_interval  # J = 8/11 -> Wilson [0.4344, 0.9025] -> 2J/(1+J)
    assert (low, high) == (pytest.approx(2 * 0.4344 / 1.4344, abs=1e-3), pytest.approx(2 * 0.9025 / 1.9025, abs=1e-3))


def test_a_calibration_comes_back_and_is_bound(tmp_path):
    file = tmp_path / "c.json"
    calibrate.save(made(), file)
    assert calibrate.read(file, ONE) == made().model_copy(update={"at": calibrate.read(file).at})
    calibrate.read(
        file,
        ONE.model_copy(update={"repeat": 3, "settings": {"seed": 9, "temperature": 0.0, "found": {"output": "text"}}}),
    )


@pytest.mark.parametrize(
    "change, what",
    [
        ({"rubric_sha256": "00" * 32}, "rubric"),
        ({"prompt_sha256": "00" * 32}, "prompt"),
        ({"name": "openai:other"}, "rater"),
        ({"settings": {"temperature": 1.0}}, "rater"),
    ],
)
def test_another_rater_rubric_or_prompt_is_refused(tmp_path, change, what):
    file = tmp_path / "c.json"
    calibrate.save(made(), file)
    with pytest.raises(UserError, match=f"its {what} digest"):
        calibrate.read(file, ONE.model_copy(update=change))


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"labels": ["a"]}'])
def test_a_file_that_is_no_calibration_is_one_line(tmp_path, text):
    file = tmp_path / "c.json"
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        calibrate.read(file)
    assert "\n" not in str(caught.value)


def test_a_model_is_scored_on_the_claims_that_it_sees_in_a_study():
    gold = {}
    for line in GOLD.read_text("utf-8").splitlines():
        row = json.loads(line)
        gold[row["text"].strip()[:40]] = row["category"]

    def knows(body):
        from tests.servers import scripted

        out = scripted.answer(body)
        note, code = (
            scripted.fences(body["messages"][1]["content"])["note"],
            scripted.code_of(body["messages"][1]["content"]),
        )
        for claim in out["claims"]:
            text = note.split(f"[{code} {claim['n']}] ", 1)[1].split(f"[{code} ", 1)[0]
            claim["label"] = gold.get(text.strip()[:40]) or "none"
        return out

    with Server(answer=knows) as server:
        c = calibrate.calibrate(GOLD, "openai:tiny", base_url=server.url, limits=Limits(concurrency=4))
    assert c.n_gold > 280 and c.accuracy > 0.9 and c.n_notes == 20 and c.n_notes_seen == 0
    assert c.prompt_sha256 == Content(RUBRIC).prompt_sha256 and c.rater.name == "openai:tiny"


def test_scores_on_a_raters_own_training_notes_say_so():
    c = calibrate.calibrate(GOLD, "embedded")
    seen = make("embedded").seen_notes()
    assert c.n_notes_seen == len(seen & {json.loads(x)["note_sha256"] for x in GOLD.read_text("utf-8").splitlines()})
    assert (c.n_notes_seen > 0) == ("own training" in c.table())


def gold_file(folder, row):
    (folder / "notes").mkdir()
    (folder / "notes" / "n.md").write_text("- The kernel takes 3 ms.\n")
    file = folder / "gold.jsonl"
    file.write_text(json.dumps(row) + "\n" if isinstance(row, dict) else row)
    return file


@pytest.mark.parametrize(
    "row, told",
    [
        (
            {"note": "n.md", "note_sha256": "00" * 32, "start": 2, "end": 9, "category": A},
            "was changed after it was labelled",
        ),
        (
            {"note": "../../x.md", "note_sha256": "00" * 32, "start": 2, "end": 9, "category": A},
            "missing or unreadable",
        ),
        ({"note": "n.md", "note_sha256": "00" * 32, "start": 2, "end": 9, "category": "nice"}, "is not in rubric"),
        ({"note": "n.md"}, "no gold line"),
        ("{broken\n", "no gold line"),
        ("", "no settled label"),
    ],
)
def test_a_wrong_gold_file_is_one_line(tmp_path, row, told):
    with pytest.raises(UserError, match=told):
        calibrate.calibrate(gold_file(tmp_path, row), "embedded")
