"""Claims: spans that never drift, whatever the note looks like, and the reference spans found."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotators.claims import split
from tests.annotators.span_recall import measure

PIECES = st.sampled_from(
    [
        "- ",
        "  - ",
        "+ ",
        "* [x] ",
        "1. ",
        "12) ",
        "```",
        "```py\n",
        "~~~\n",
        "    ",
        "\t",
        "\r\n",
        "\n",
        "\r",
        "\n\n",
        "| ",
        " | ",
        "|---|---|\n",
        "# Head\n",
        "---\n",
        "===\n",
        "<!-- ",
        " -->",
        "{{ x }}\n",
        "> ",
        "`a|b`",
        "``` x ```",
        "**Bold:** ",
        "*",
        "Tile is 128. ",
        "It is 1.3x slower",
        "e.g. ",
        "速度快了 1.3 倍。",
        "未测！",
        "；",
        "🚀",
        "👩‍💻 ",
        "\x00",
        "\ufeff",
        "\u2028",
        "(",
        ")",
        '"',
        "“",
        "”",
        "...",
        "3.14 ",
        "\u0301",
        "\x0b",
        "\x85",
    ]
)
NOTES = st.lists(st.one_of(PIECES, st.text(max_size=6)), max_size=60).map("".join)


@given(NOTES)
@settings(max_examples=400, deadline=None)
def test_text_at_the_span_is_the_claim_and_spans_are_ordered_and_apart(note):
    last = 0
    for claim in split(note):
        assert note[claim.start : claim.end] == claim.text
        assert claim.text.strip() and claim.start >= last
        last = claim.end


@given(NOTES)
@settings(max_examples=200, deadline=None)
def test_a_parent_stands_before_its_child_and_carries_its_own_start(note):
    claims = split(note)
    for index, claim in enumerate(claims):
        if claim.parent is not None:
            assert claim.parent < index and claims[claim.parent].start == claim.parent_start


LINES = st.sampled_from(["The tile is 128 wide.", "- It was 1.3x slower.", "核融合后快了两成。", "", "# A"])


@given(st.lists(LINES, max_size=12))
def test_line_ends_change_no_claim(lines):
    unix = [c.text for c in split("\n".join(lines))]
    assert [c.text for c in split("\r\n".join(lines))] == unix
    assert [c.text for c in split("\ufeff" + "\n".join(lines))] == unix


def texts(note):
    return [c.text for c in split(note)]


def test_front_matter_headings_fences_comments_and_templates_are_no_claims():
    note = (
        "---\nname: x\ndescription: a long sentence about kernels.\n---\n# Title of the note\n"
        "<!-- hidden words stand here.\nAnd here. -->\n{{ template line with words }}\n"
        "- Use wide loads.\n  ```py\n  y = load it. All of it.\n  ```\n  Then store once.\n\n"
        "    indented code goes here. And more.\n\nSetext head words\n===\n\nThe last claim.\n"
    )
    assert texts(note)[:2] == ["Use wide loads.", "Then store once."]
    assert texts(note)[-1] == "The last claim."
    assert not any("hidden" in t or "template" in t or "load it" in t or "Setext" in t for t in texts(note))


def test_indented_code_outside_a_list_is_no_claim():
    assert texts("A real claim.\n\n    code here. More code.\n\nAnother claim.") == ["A real claim.", "Another claim."]


def test_backticks_inside_a_line_open_no_fence():
    assert texts("```x``` is the call we use.\nIt stays fast.") == ["```x``` is the call we use.", "It stays fast."]


@pytest.mark.parametrize("outer", [True, False])
def test_rows_are_claims_and_head_and_separator_are_not(outer):
    rows = ["Change | Time | Remark", "---|---|---", "Fuse norm | 1.2 ms | saves one pass", "Bare | 3 | 4"]
    note = "\n".join(f"| {r} |" if outer else r for r in rows)
    claims = split(note)
    assert [c.text for c in claims] == ["Fuse norm | 1.2 ms | saves one pass"]
    assert claims[0].kind == "row"


def test_a_soft_wrapped_line_that_looks_like_an_item_stays_in_its_sentence():
    note = "- The floor writes every weight (4-bit in\n  + bf16 read\n  + bf16 out) and that is slow."
    assert len(texts(note)) == 1
    assert len(texts("Traffic is one fp4 write\n+ bf16 read of the whole tile.")) == 1


def test_nested_items_know_their_parent():
    claims = split("- Split-K lost 12% here.\n  - The reduce ate the gain.\n  - Only at T=40.\n- Next stands alone.")
    assert [c.parent for c in claims] == [None, 0, 0, None]
    assert claims[1].parent_text == "Split-K lost 12% here."


def test_a_bold_title_with_children_leads_and_is_no_claim():
    claims = split("- **More stages** (round 2)\n  - Cost us 24% speed.\n  - Math was the limit.")
    assert [c.text for c in claims] == ["Cost us 24% speed.", "Math was the limit."]
    assert claims[0].lead == "**More stages** (round 2)"


def test_chinese_without_spaces_and_quotes():
    assert texts("归约核要读四份部分和。每次多花 1.6 µs！要不要再融合？先不动；以后再说。") == [
        "归约核要读四份部分和。",
        "每次多花 1.6 µs！",
        "要不要再融合？",
        "先不动；以后再说。",
    ]


def test_numbers_abbreviations_and_code_end_no_sentence():
    note = "Got 1.3x vs. cuBLAS, i.e. 3.14 ms, with `a. b. C` and f(x. Y) too. Next one follows."
    assert len(texts(note)) == 2


def test_heading_is_the_nearest_above():
    claims = split("# One\nFirst claim here.\n## Two\nSecond claim here.")
    assert [c.heading for c in claims] == ["One", "Two"]


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "(",
        "`",
        "``` ",
        '"',
        "| ",
        "- ",
        "1. ",
        "**",
        "<!-- ",
        "> ",
        "$",
        "。",
        "x. ",
        "- a b\n",
        "  - a b\n",
        "|-",
        "[",
        "a\n\n",
        "``` x\n",
        "(a. b) ",
        '"a" ',
        "{{",
        "\t",
    ],
)
def test_a_hundred_thousand_characters_take_linear_time(piece):
    def seconds(n_chars):
        note = (piece * (n_chars // len(piece) + 1))[:n_chars]
        began = time.process_time()
        split(note)
        return time.process_time() - began

    small = max(seconds(25_000), 0.01)
    assert seconds(100_000) < 12 * small  # four times the length; quadratic would be sixteen


def test_deep_nesting_takes_linear_time():
    note = "".join(" " * (2 * (n % 200)) + "- a level deeper still\n" for n in range(2000))
    began = time.process_time()
    assert len(split(note)) == 2000
    assert time.process_time() - began < 5


def test_nine_in_ten_reference_spans_are_found():
    found, n, made, _ = measure()
    assert n == 391
    assert found / n >= 0.95
    assert found / made >= 0.85
