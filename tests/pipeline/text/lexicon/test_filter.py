"""Terms in a text that comes in fragments: output, offsets, limits."""

from __future__ import annotations

import random
import string
from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from voxgate.pipeline.interface import MarkupDialect, WordTime
from voxgate.pipeline.text.lexicon.filter import MAX_ALLOWANCE_CHARACTERS, MAX_APPLIED, make_text_filter
from voxgate.pipeline.text.lexicon.lexicon import Lexicon, LexiconRule, SearchText
from voxgate.pipeline.text.markup.writer import Pause, Piece

RULES = [
    LexiconRule("SQL", "sequel"),
    LexiconRule("New York", "the big apple"),
    LexiconRule("New", "knew", case_sensitive=True),
    LexiconRule("a b", "ay bee"),
    LexiconRule("ab", "abee", word_boundaries=False),
]
MARKUP = (MarkupDialect.SSML, MarkupDialect.HTML, MarkupDialect.MARKDOWN)


def filtered(
    text: str, lexica: Sequence[Lexicon], cuts: Sequence[int] = (), markup: Sequence[MarkupDialect] = MARKUP
) -> tuple[list[Piece], tuple[str, ...], list[int]]:
    """What is written for a text cut at those offsets: pieces joined, terms, and the boundary of each offset."""
    text_filter = make_text_filter(markup, lexica)
    bounds = [0, *sorted(cuts), len(text)]
    pieces = [piece for a, b in pairwise(bounds) for piece in text_filter.push(text[a:b])] + text_filter.flush()
    joined: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, str) and joined and isinstance(joined[-1], str):
            joined[-1] += piece
        else:
            joined.append(piece)
    length = sum(len(piece) for piece in joined if isinstance(piece, str))
    return joined, text_filter.applied, [text_filter.spans.boundary(at) for at in range(length + 1)]


def test_terms_are_replaced_and_reported() -> None:
    pieces, applied, _ = filtered("Use sql in New\nYork, NEW or New, not MySQL.", [Lexicon(RULES)])
    assert pieces == ["Use sequel in the big apple, NEW or knew, not MySQL."]
    assert applied == ("SQL", "New York", "New")


@given(
    text=st.text(alphabet="ab NewYorkSQL<>/.&;\n", max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=8),
)
def test_output_does_not_depend_on_the_cuts(text: str, cuts: list[int]) -> None:
    lexica = [Lexicon(RULES)]
    assert filtered(text, lexica, [cut for cut in cuts if cut < len(text)]) == filtered(text, lexica)


def test_text_passes_as_soon_as_no_term_can_begin_with_it() -> None:
    text_filter = make_text_filter((), [Lexicon([LexiconRule("The Beatles", "x")])])
    assert text_filter.push("Well, ") == ["Well, "]
    assert text_filter.push("the b") == []
    assert text_filter.push("ook") == ["the book"]


def test_offsets_are_those_of_the_clients_text() -> None:
    text = "Go <b>SQL</b> &amp; New York now"
    text_filter = make_text_filter(MARKUP, [Lexicon(RULES)])
    pieces = [*text_filter.push(text), *text_filter.flush()]
    spoken = "".join(piece for piece in pieces if isinstance(piece, str))
    assert spoken == "Go sequel & the big apple now"
    words = []
    for word in spoken.split():
        start = spoken.index(word)
        words.append(WordTime(word, start, start + len(word), 0, 0))
    places = [text[word.start : word.end] for word in text_filter.spans.locate(words)]
    assert places == ["Go", "SQL", "&amp;", "New York", "New York", "New York", "now"]
    assert text[: text_filter.spans.boundary(spoken.index("apple"))].endswith("&amp; "), "a term is not divided"


def test_a_text_that_is_one_term_has_its_offsets() -> None:
    text_filter = make_text_filter((), [Lexicon(RULES)])
    text_filter.push("SQL")
    text_filter.flush()
    (word,) = text_filter.spans.locate([WordTime("sequel", 0, 6, 0, 0)])
    assert (word.start, word.end) == (0, 3)


def test_no_term_spans_a_pause_or_a_flush() -> None:
    pieces, applied, _ = filtered('New <break time="1s"/>York', [Lexicon(RULES)])
    assert pieces == ["knew ", Pause(1000, 5), "York"]
    assert applied == ("New",)
    text_filter = make_text_filter((), [Lexicon(RULES)])
    assert [*text_filter.push("New "), *text_filter.flush(), *text_filter.push("York"), *text_filter.flush()] == [
        "knew ",
        "York",
    ]


def test_of_equally_long_terms_that_of_the_first_lexicon_counts() -> None:
    first = Lexicon([LexiconRule("sql", "one"), LexiconRule("new", "two")])
    assert filtered("SQL New York", [first, Lexicon(RULES)])[0] == ["one the big apple"]


def test_spoken_forms_at_most_double_a_text() -> None:
    letters = Lexicon([LexiconRule(c, "y" * 128, word_boundaries=False) for c in string.ascii_lowercase])
    text = "abcdefgh" * 500
    (spoken,), _, _ = filtered(text, [letters])
    assert isinstance(spoken, str)
    assert len(text) < len(spoken) <= 2 * len(text) + MAX_ALLOWANCE_CHARACTERS
    assert filtered(text, [letters], range(0, len(text), 7))[0] == [spoken]


def test_reported_terms_are_bounded() -> None:
    lexicon = Lexicon([LexiconRule(f"w{n}", "x") for n in range(500)])
    assert len(filtered(" ".join(f"w{n}" for n in range(500)), [lexicon])[1]) == MAX_APPLIED


def test_work_on_ten_thousand_overlapping_terms_is_bounded_by_the_longest() -> None:
    """Each character of the text is compared with at most as many nodes as the longest term has characters."""
    looks = 0

    class CountedText(str):
        def __getitem__(self, at: object) -> str:
            nonlocal looks
            looks += 1
            return super().__getitem__(at)  # type: ignore[index]

    draw = random.Random(1)
    terms = {"a" * (n % 47 + 1) + draw.choice(string.ascii_lowercase) for n in range(10_000)}
    terms |= {"".join(draw.choices("ab", k=48)) for _ in range(10_000 - len(terms))}
    lexicon = Lexicon(LexiconRule(term, "x", word_boundaries=False) for term in terms)
    text = "a" * 400
    searched = SearchText(text, CountedText(text), CountedText(text))
    for at in range(len(text)):
        lexicon.find(searched, at, "a", final=True)
    assert looks <= 2 * 49 * len(text)
