"""Quotations: found where they stand, refused where they do not."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotators.quotes import Match, find

WORDS = st.text(alphabet="abc核🚀 \n\t\r\x00\u3000", max_size=80)


@given(WORDS, WORDS, WORDS)
def test_what_stands_there_is_found_letter_for_letter(before, quotation, after):
    source = before + quotation + after
    span = find(quotation, source)
    if len("".join(quotation.split())) < 3:
        assert span is None
    else:
        assert span.match is Match.EXACT and span.of(source) == quotation


@given(st.lists(st.sampled_from(["tile", "128", "核", "🚀x"]), min_size=3, max_size=8), st.data())
def test_white_space_alone_is_forgiven_and_the_span_is_the_sources(words, data):
    gaps = st.sampled_from([" ", "\n", "  ", "\r\n  ", "\t"])
    source = "head  \n" + "".join(w + data.draw(gaps) for w in words) + "tail"
    span = find(" ".join(words), source)
    assert span.of(source).split() == words


@pytest.mark.parametrize("quotation", ["", "  \n", "ab", "a b", "核心"])
def test_too_short_to_prove_anything(quotation):
    assert find(quotation, quotation * 5) is None


@pytest.mark.parametrize(
    "quotation", ["Use wide loads", "use wide load s", "use  wide-loads", "use narrow loads", "use wide…"]
)
def test_a_changed_letter_is_not_found(quotation):
    assert find(quotation, "We use wide loads here.") is None


def test_the_exact_match_wins_over_an_earlier_normalised_one():
    assert find("a b c", "a  b  c, then a b c").start == 14


@pytest.mark.parametrize(
    ("quotation", "source"), [("a" * 50_000 + "b", "a" * 100_000), ("a b " * 20_000 + "x", "a  b\n" * 40_000)]
)
def test_hostile_repetition_takes_linear_time(quotation, source):
    began = time.process_time()
    assert find(quotation, source) is None
    assert time.process_time() - began < 2
