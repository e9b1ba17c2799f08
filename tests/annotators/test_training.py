"""The training notes: every label lands on a claim, wordings are drawn by seed, held-out notes stay out."""

import numpy as np
import pytest

from annotators.claims import split
from annotators.embedded import authored, corpus, features
from annotators.embedded.measure import measure
from annotators.rubric import shipped


def test_every_written_label_is_a_label_of_the_rubric_and_lands_on_a_claim():
    draw = np.random.default_rng(1)
    answers, seen, n_lost, n = set(shipped("content").answers), set(), 0, 0
    for _, _, source in authored.sources():
        text, labels = authored.write(source, draw)
        starts = {c.start for c in split(text)}
        for label in labels:
            n += 1
            n_lost += not any(label.start + d in starts for d in (-2, -1, 0, 1, 2))
            seen.add(label.category)
    assert seen == answers
    assert n > 900 and n_lost / n < 0.02


def test_no_line_of_the_source_looks_like_a_mistyped_label():
    for name, _, source in authored.sources():
        for line in source:
            body = line.lstrip("-|").lstrip("0123456789.")
            if len(body) > 3 and body[0] in authored.CODES and body[1] in "MRN" and body[2] in " +":
                assert authored._LABELLED.match(line), (name, line)


def test_wordings_follow_the_seed():
    one, again, other = (corpus.written(2, seed=s).sha256() for s in (3, 3, 4))
    assert one == again != other


def test_followers_are_grouped_with_the_note_they_follow():
    groups = set(corpus.written(1).group)
    assert {"018.md", "028.md", ""} <= groups <= {"", "*", *corpus.labelled().group}


def test_labelled_notes_keep_their_labels():
    got = corpus.labelled()
    assert sum(c is not None for c in got.category) == 334
    assert sum(e is not None for e in got.evidence) >= 318


def test_the_same_claims_give_the_same_numbers_in_any_company():
    one, other = split("# A\n- Lost 4% at T=40."), split("Other words here.")
    alone = features.counts([one])
    both = features.counts([other, one])
    assert (alone != both[len(other) :]).nnz == 0
    assert alone.shape[1] == features.N_FEATURES


def test_measure_against_fractions_worked_by_hand():
    # three of four right; kappa (3/4 - 1/2) / (1 - 1/2); bins: .9 (2 of 2), .6 (1 of 2), so ECE = (.1 + .1) / 2
    p = np.array([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [0.4, 0.6]])
    got = measure(np.array(["a", "a", "b", "a"]), p, ("a", "b"))
    assert got.accuracy == 0.75
    assert got.kappa == pytest.approx(0.5)
    assert got.macro_f1 == pytest.approx((4 / 5 + 2 / 3) / 2)
    assert got.expected_calibration_error == pytest.approx(0.1)
