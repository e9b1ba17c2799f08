"""What an answer must be: each wrong one is unscored with its reason, and the right one carries proven quotations."""

import json

import pytest

from annotators import panel, views
from annotators.records import Rater, Side
from annotators.rubric import shipped
from annotators.tasks import Answer, Unreadable, parsed
from annotators.tasks import fate as fate_
from annotators.tasks.attribution import AttributionTask
from annotators.tasks.content import MAX_CHARS, MAX_CLAIMS, Content, Note, chunks
from annotators.tasks.fate import FateTask, TracedClaim
from tests.annotators.support import CONDITIONED, EARLIER, NOTE, OWN_NOTE, study_of_transfers
from tests.servers import scripted

CONTENT, ATTRIBUTION, FATE = (
    Content(shipped("content")),
    AttributionTask(shipped("attribution")),
    FateTask(shipped("fate")),
)


def rater(task):
    return Rater(kind="model", name="openai:tiny", rubric_id=task.rubric.id, rubric_sha256=task.rubric.sha256)


def said(task, item):
    """The scripted model's good answer to an item's only question."""
    (question,) = task.questions(item)
    return scripted.answer({"messages": [{"content": question.system}, {"content": question.user}]})


def read(task, item, answer):
    text = answer if isinstance(answer, str) else json.dumps(answer)
    return task.read(item, [Answer(text)], rater(task))


# Content ---------------------------------------------------------------------------------------------------------


def test_every_claim_gets_its_own_label_and_flags():
    note = Note.of(NOTE)
    record = read(CONTENT, note, said(CONTENT, note))
    assert [(c.start, c.end) for c in record.claims] == [(c.start, c.end) for c in note.claims]
    for claim, own in zip(record.claims, note.claims, strict=True):
        assert claim.label == scripted.pick(own.text.split("\n", 1)[0], scripted.CONTENT)
        assert claim.flags["evidence"] in scripted.EVIDENCE and isinstance(claim.flags["dsl_specific"], bool)
    assert record.unscored is None and record.raw is None


@pytest.mark.parametrize(
    "how, reason",
    [
        ("outside", "label outside the rubric: 'excellent_claim'"),
        ("missing", "not answered"),
        ("twice", "answered 2 times"),
        ("bad-flag", "evidence outside the rubric: 'overwhelming'"),
    ],
)
def test_one_wrong_answer_costs_one_claim(how, reason):
    note = Note.of(NOTE)
    text = scripted.spoilt(how, said(CONTENT, note))
    record = read(CONTENT, note, text)
    assert record.claims[0].label is None and record.claims[0].unscored.startswith(reason)
    assert all(c.label for c in record.claims[1:]) and record.raw == text


def test_a_number_that_was_not_asked_is_nobodys_label():
    note = Note.of(NOTE)
    assert (
        read(CONTENT, note, scripted.spoilt("extra", said(CONTENT, note))).claims
        == read(CONTENT, note, said(CONTENT, note)).claims
    )


@pytest.mark.parametrize(
    "text", ["I think so.", '{"claims": 3}', '{"claims": [{"n": 1, "la', "[]", "null", '{"claims": ' + "[" * 5000]
)
def test_an_unreadable_answer_is_unscored_as_a_whole(text):
    record = read(CONTENT, Note.of(NOTE), text)
    assert record.claims == () and record.unscored.startswith("unreadable answer") and record.raw.startswith(text[:20])


def test_nonsense_in_the_list_costs_nothing_but_itself():
    note = Note.of(NOTE)
    good = said(CONTENT, note)
    good["claims"] += [None, 3, {"n": "1"}, {"n": True, "label": "none"}, {"label": "none"}]
    assert all(c.label for c in read(CONTENT, note, good).claims)


@pytest.mark.parametrize("wrap", ["{}", "Sure:\n```json\n{}\n```\nDone.", "Here: {} I hope.", "\ufeff {}"])
def test_json_is_found_in_what_surrounds_it(wrap):
    assert parsed(wrap.replace("{}", '{"a": 1}')) == {"a": 1}


def test_no_object_is_unreadable():
    with pytest.raises(Unreadable):
        parsed("{not json")


def long_note(n):
    return "# Long\n\n" + "\n".join(f"- Item {k} takes {k}.5 ms on the device." for k in range(n))


def test_a_long_note_is_asked_in_parts_at_claim_boundaries():
    note = Note.of(long_note(2 * MAX_CLAIMS + 5))
    parts = chunks(note.claims)
    assert (
        [a for a, _ in parts[1:]] == [b for _, b in parts[:-1]] and parts[-1][1] == len(note.claims) and len(parts) == 3
    )
    questions = CONTENT.questions(note)
    for (first, last), question in zip(parts, questions, strict=True):
        shown = scripted.fences(question.user)["note"]
        for claim in note.claims[first:last]:
            assert claim.text in shown
    assert note.claims[parts[1][0] - 1].text in scripted.fences(questions[1].user)["note"]  # what came just before
    answers = [Answer(json.dumps(scripted.answer({"messages": [{}, {"content": q.user}]}))) for q in questions]
    record = CONTENT.read(note, answers, rater(CONTENT))
    assert len(record.claims) == len(note.claims) and all(c.label for c in record.claims)
    lost = CONTENT.read(note, [answers[0], Answer(None, "refused", "no"), answers[2]], rater(CONTENT))
    assert [c.unscored for c in lost.claims].count("refused") == MAX_CLAIMS and lost.unscored is None


def test_one_request_is_bounded_whatever_the_note_is():
    text = (
        "# T\n\nA first claim is here. "
        + "```\n"
        + "x = 1\n" * 100_000
        + "```\n\n"
        + "\n\n".join("w" * 50 + " claim " + "v " * 3000 for _ in range(9))
    )
    for question in CONTENT.questions(Note.of(text)):
        assert len(question.user) < 6 * MAX_CHARS


def test_a_note_without_claims_asks_nothing():
    note = Note.of("# Title\n\n```\ncode\n```\n")
    assert CONTENT.questions(note) == [] and CONTENT.read(note, [], rater(CONTENT)).unscored is None


# Attribution -----------------------------------------------------------------------------------------------------


@pytest.fixture
def view(tmp_path):
    study = study_of_transfers(tmp_path)
    (triple,) = panel.attributable(study)
    return views.view(study, triple)


def test_a_cause_carries_quotations_that_stand_where_they_say(view):
    record = read(ATTRIBUTION, view, said(ATTRIBUTION, view))
    texts = {s.sha256: s.text for s in view.sources}
    assert record.cause in scripted.CAUSES and {q.side for q in record.quotations} == {
        Side.NOTE,
        Side.CONDITIONED_KERNEL,
    }
    assert all(texts[q.sha256][q.start : q.end] == q.text for q in record.quotations)


def test_the_rater_sees_note_kernels_submissions_verdicts_and_own_note(view):
    (question,) = ATTRIBUTION.questions(view)
    texts = scripted.fences(question.user)
    assert texts["source note"].startswith("# Notes on rmsnorm") and CONDITIONED in texts["conditioned kernel"] + "\n"
    assert "two_rows_a_block" in texts["target solo kernel"] and "rmsnorm again" in texts["own note"]
    assert "1. 30 s, failed at compile: no such type" in texts["conditioned submissions"]
    assert EARLIER.strip() in texts["conditioned submission 1"]
    assert (
        "source attempt: passed, speedup 1.800" in texts["facts"]
        and "conditioned attempt: passed, speedup 1.200" in texts["facts"]
    )


@pytest.mark.parametrize(
    "how, reason",
    [
        ("invented", "invented quotation"),
        ("outside", "cause outside the rubric: 'bad_luck'"),
        ("no-evidence", "evidence missing"),
        ("no-json", "unreadable answer"),
    ],
)
def test_an_attribution_without_proof_is_unscored_with_what_was_said(view, how, reason):
    text = scripted.spoilt(how, said(ATTRIBUTION, view))
    record = read(ATTRIBUTION, view, text)
    assert (
        record.cause is None and record.adherence is None and record.unscored.startswith(reason) and record.raw == text
    )


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"adherence": "mostly"}, "adherence outside the rubric"),
        ({"note_unused": "yes"}, "note_unused is neither"),
        ({"second_cause": "bad_luck"}, "second cause outside the rubric"),
        ({"quotations": "none"}, "unreadable answer"),
        ({"quotations": [{"source": "facts", "text": "speedup 1.200"}]}, "quotation from no source of evidence"),
        (
            {"quotations": [{"source": "target solo submissions", "text": "passed, speedup 2.000"}]},
            "quotation from no source of evidence",
        ),
        (
            {"quotations": [{"source": "source note", "text": "the"}, {"source": "source note", "text": "ms"}]},
            "invented quotation",
        ),
        (
            {"quotations": [{"source": "source note", "text": "Use 128 threads a row"}]},
            "evidence missing: no quotation from the conditioned",
        ),
        (
            {"quotations": [{"source": "conditioned kernel", "text": "one_row(threads=128"}]},
            "evidence missing: no quotation from the note",
        ),
        ({"cause": None}, "cause outside the rubric"),
        ({"cause": ["a"]}, "cause outside the rubric"),
    ],
)
def test_each_part_of_an_attribution_is_held_to_its_rule(view, change, reason):
    assert read(ATTRIBUTION, view, said(ATTRIBUTION, view) | change).unscored.startswith(reason)


def test_an_unused_note_needs_no_quotation_and_a_second_cause_like_the_first_is_none(view):
    good = said(ATTRIBUTION, view)
    good |= {"note_unused": True, "second_cause": good["cause"], "quotations": good["quotations"][1:]}
    record = read(ATTRIBUTION, view, good)
    assert record.note_unused and record.second_cause is None and record.cause == good["cause"]


def test_a_quotation_under_the_wrong_name_of_the_same_attempt_is_found(view):
    good = said(ATTRIBUTION, view)
    good["quotations"][1] = {"source": "conditioned kernel", "text": "no such type"}
    found = read(ATTRIBUTION, view, good).quotations[1]
    assert found.side is Side.SUBMISSION and found.text == "no such type"


def test_where_no_cause_is_due_only_adherence_is_asked_and_kept(tmp_path):
    study = study_of_transfers(tmp_path)
    item = views.view(study, panel.attributable(study)[0], cause_asked=False)
    (question,) = ATTRIBUTION.questions(item)
    assert "cause" not in question.schema["properties"]
    record = read(ATTRIBUTION, item, said(ATTRIBUTION, item))
    assert record.cause is None and record.adherence and not record.cause_asked


def test_long_texts_are_cut_in_the_middle_and_the_cut_is_recorded(tmp_path):
    note = "HEAD of it.\n" + "filler line of text\n" * 5000 + "TAIL of it.\n"
    study = study_of_transfers(tmp_path, note=note, conditioned="HEAD = 1\n" + "x = 1\n" * 9000 + "TAIL = 1\n")
    item = views.view(study, panel.attributable(study)[0])
    (question,) = ATTRIBUTION.questions(item)
    texts = scripted.fences(question.user)
    for name in ("source note", "conditioned kernel"):
        assert texts[name].startswith("HEAD") and texts[name].rstrip().endswith(("TAIL of it.", "TAIL = 1"))
        assert len(texts[name]) < views.ROOM[name] + 100 and "characters are not shown" in texts[name]
    assert read(ATTRIBUTION, item, said(ATTRIBUTION, item)).cuts == item.cuts and len(item.cuts) == 2
    assert (
        item.cuts[0]
        == f"source note: {len(note) - views.ROOM['source note']} of {len(note)} characters cut from the middle"
    )


@pytest.mark.parametrize("room", [1, 2, 3, 10, 99])
def test_a_cut_keeps_exactly_its_room(room):
    text = "".join(chr(65 + n % 26) for n in range(100))
    shown, n_cut = views.cut_middle(text, room)
    head, tail = shown.split(f"\n[... {n_cut} characters are not shown ...]\n")
    assert n_cut == 100 - room and text == head + text[len(head) : 100 - len(tail)] + tail


# Fate ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def traced(tmp_path):
    study = study_of_transfers(tmp_path)
    ref = views.ref_of(panel.attributable(study)[0])
    source, own = study.note(ref.source_note_sha256), study.note(ref.own_note_sha256)
    claim = next(c for c in Note.of(source).claims if "Warp specialisation" in c.text)
    return TracedClaim(
        ref, ref.source_note_sha256, claim, ref.own_note_sha256, own, fate_.nearest(claim, Note.of(own).claims)
    )


def test_the_nearest_claim_comes_first(traced):
    assert traced.candidates[0][0].text == "Warp specialisation gave the best overlap."
    assert all(a[1] >= b[1] for a, b in zip(traced.candidates, traced.candidates[1:], strict=False))


def test_a_fate_carries_its_sentence_of_the_next_note(traced):
    record = read(FATE, traced, said(FATE, traced))
    assert (
        record.fate in scripted.FATES
        and traced.next_note[record.quotation.start : record.quotation.end] == record.quotation.text
    )


@pytest.mark.parametrize(
    "answer, reason",
    [
        ({"fate": "bad_luck", "quotation": "x"}, "fate outside the rubric"),
        ({"fate": "restated", "quotation": ""}, "evidence missing"),
        ({"fate": "restated", "quotation": "Warp specialisation gives the best overlap here."}, "invented quotation"),
        ({"fate": None}, "fate outside the rubric"),
        ("maybe", "unreadable answer"),
    ],
)
def test_a_fate_without_proof_is_unscored(traced, answer, reason):
    record = read(FATE, traced, answer)
    assert record.fate is None and record.unscored.startswith(reason)


def test_absent_needs_no_sentence(traced):
    record = read(FATE, traced, {"fate": "absent", "quotation": "whatever"})
    assert record.fate == "absent" and record.quotation is None


def test_similarity_knows_figures_and_chinese():
    bag = fate_.bag
    assert fate_.similarity(bag("tile of 128 rows"), bag("128 is the tile")) > fate_.similarity(
        bag("tile of 128 rows"), bag("64 is the tile")
    )
    assert (
        fate_.similarity(bag("共享内存没有冲突"), bag("共享内存无冲突"))
        > 0.4
        > fate_.similarity(bag("共享内存没有冲突"), bag("寄存器溢出"))
    )
    assert fate_.similarity(bag(""), bag(OWN_NOTE)) == 0.0 or fate_.similarity(bag(""), bag(OWN_NOTE)) < 0.2
