"""Offsets in a plain text and in the client's text that it was made of."""

from __future__ import annotations

from voxgate.pipeline.interface import WordTime
from voxgate.pipeline.text.markup.source_spans import SourceSpans

SOURCE = 'Go <b>to</b> <sub alias="World Wide Web">WWW</sub> now.'
PLAIN = "Go to World Wide Web now."


def spans() -> SourceSpans:
    made = SourceSpans()
    made.copy(3, 0)
    made.copy(2, SOURCE.index("to"))
    made.copy(1, SOURCE.index(" <sub"))
    made.replace(14, SOURCE.index("WWW"), SOURCE.index("WWW"))
    made.extend(SOURCE.index("</sub"))
    made.copy(5, SOURCE.index(" now"))
    made.read = len(SOURCE)
    return made


def source_of(word: str) -> str:
    at = PLAIN.index(word)
    located = spans().locate([WordTime(word, at, at + len(word), 0, 1)])[0]
    return SOURCE[located.start : located.end]


def test_word_is_located_without_the_markup_around_it() -> None:
    assert [source_of(word) for word in ("Go", "to", "now.")] == ["Go", "to", "now."]


def test_words_of_an_alias_lie_where_it_stands_for() -> None:
    assert [source_of(word) for word in ("World", "Wide", "Web")] == ["WWW"] * 3


def test_division_leaves_markup_to_what_follows() -> None:
    assert SOURCE[spans().boundary(3) :].startswith("<b>to")
    assert SOURCE[spans().boundary(5) :].startswith("</b>")


def test_alias_that_was_spoken_in_part_follows_as_a_whole() -> None:
    assert SOURCE[spans().boundary(PLAIN.index("Wide")) :].startswith("WWW</sub>")
    assert SOURCE[spans().boundary(PLAIN.index(" now")) :].startswith("</sub> now.")


def test_end_of_the_plain_text_is_the_end_of_the_source() -> None:
    assert spans().boundary(len(PLAIN)) == len(SOURCE)
    assert spans().boundary(0) == 0


def test_contiguous_copies_are_one_span() -> None:
    made = SourceSpans()
    for at in range(0, 1000, 10):
        made.copy(10, at)
    assert len(made._plain) == 1
    assert made.boundary(995) == 995
