"""The incremental filter: any fragmentation gives the same output, offsets are exact, nothing is held for long."""

from __future__ import annotations

import os
import random
from itertools import pairwise

import pytest
from voxgate.pipeline.interface import MarkupDialect
from voxgate.pipeline.text.markup.filter import MarkupFilter
from voxgate.pipeline.text.markup.writer import Piece

ALL = tuple(MarkupDialect)
FRAGMENTATIONS = int(os.environ.get("VOXGATE_TEST_FUZZ", "10000")) // 10

PARTS = [
    *"ab1 \n.,!<>[](){}*_~`#-+|&\\\"'/=;:x",
    *['<break time="1.5s"/>', "<break/>", "<p>", "</p>", "<speak>", '<prosody rate="fast">', "</prosody>"],
    *['<sub alias="a b">', "</sub>", "<spell>", "</spell>", '<say-as interpret-as="digits">', "</say-as>"],
    *["<think>", "</think>", "<thinking>", "<b>", "</b>", "<!--", "-->", "<script>", "</script>", "<br/>"],
    *["&amp;", "&lt;", "&#65;", "&foo;", "AT&T", "<750>", "x <3 ", "a < b", '<a href="x>y">', "<foo"],
    *["[laughs]", "[short pause]", "[1]", "[click](", "[click](http://a.b/c_(d))", "[ref][1]", "![cat](x.png)"],
    *[r"\{pause:1s\}", r"\{pause:500\}", '{"word":"X","pronounce":"y"}', r"\{", r"\*"],
    *["**", "__", "~~", "```", "```python\n", "\n# ", "\n- ", "\n> ", "\n---\n", "\n| a | b |\n", "|---|\n", " | "],
    *['<speed ratio="1.5"/>', '<speed ratio="1"/>', '<volume ratio="0.5"/>', '<prosody rate="50%" volume="soft">'],
    *[" and then ", "snake_case", "2 * 3", "5*4", "y" * 40, " " * 20],
]


def filtered(fragments: list[str]) -> tuple[list[Piece], str, list[tuple[int, int, int]]]:
    """Returns the marks, the plain text, and for each of its characters the offsets that it comes from.

    None in `fragments` is a flush.
    """
    markup = MarkupFilter(ALL)
    pieces: list[Piece] = []
    for fragment in fragments:
        pieces += markup.push(fragment) if fragment != "<flush>" else markup.flush()
    pieces += markup.flush()
    plain = "".join(piece for piece in pieces if isinstance(piece, str))
    spans = markup.spans
    assert spans.length == len(plain)
    assert spans.read == sum(len(each) for each in fragments if each != "<flush>")
    offsets = [(spans.start(i), spans.end(i + 1), spans.boundary(i)) for i in range(len(plain))]
    return [piece for piece in pieces if not isinstance(piece, str)], plain, offsets


def cut(rng: random.Random, text: str) -> list[str]:
    parts = []
    while text:
        size = rng.choice((1, 1, 2, 3, 8, 30))
        parts.append(text[:size])
        text = text[size:]
    return parts


def test_output_does_not_depend_on_the_fragmentation() -> None:
    rng = random.Random(1)
    for _ in range(FRAGMENTATIONS):
        text = "".join(rng.choices(PARTS, k=rng.randint(1, 16)))
        whole = filtered([text])
        assert filtered(list(text)) == whole, text
        assert filtered(cut(rng, text)) == whole, text


def test_flushes_do_not_depend_on_the_fragmentation() -> None:
    rng = random.Random(2)
    for _ in range(FRAGMENTATIONS):
        texts = ["".join(rng.choices(PARTS, k=rng.randint(1, 8))) for _ in range(3)]
        whole = filtered([each for text in texts for each in (text, "<flush>")])
        assert filtered([each for text in texts for each in (*cut(rng, text), "<flush>")]) == whole, texts


def test_offsets_are_those_of_the_client() -> None:
    rng = random.Random(3)
    for _ in range(FRAGMENTATIONS):
        text = "".join(rng.choices(PARTS, k=rng.randint(1, 16)))
        text = text.replace('<sub alias="a b">', "")  # may stand for a single character
        _, plain, offsets = filtered([text])
        for char, (start, end, _) in zip(plain, offsets, strict=True):
            # Characters that are not the client's belong to markup, or to the character before them.
            assert end - start != 1 or text[start] == char or not char.strip() or char == ",", (text, plain)
        for before, after in pairwise(offsets):
            assert before[0] <= after[0], text
            assert before[1] <= after[1], text
            assert before[2] <= after[2], text


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_text_without_markup_passes_at_once(size: int) -> None:
    text = "Hello, world! It's 5-6 o'clock (or so): well-known; fifty % of $3.50? Yes…\nNext line. " * 20
    markup = MarkupFilter(ALL)
    for at in range(0, len(text), size):
        fragment = text[at : at + size]
        assert "".join(map(str, markup.push(fragment))) == fragment
    assert markup.flush() == []
    assert [markup.spans.boundary(at) for at in range(len(text) + 1)] == list(range(len(text) + 1))


@pytest.mark.parametrize(
    "text",
    [
        *["a < b", "x <3", "if x <y and then", "1 < 2 > 0", "a <b and c> d", "5 <= 6", "<", "a <", "->", "<-"],
        *["2 * 3", "5*4*3", "snake_case_name", "C# and F#", "#1", "a - b", "[1]", "a[5]", "(see)", "Q&A"],
        *["AT&T", "fish & chips", "&unknown;", "~5", "{a}", "a\\b", "50% + 3"],
    ],
)
def test_prose_stays(text: str) -> None:
    markup = MarkupFilter(ALL)
    assert "".join(map(str, markup.push(text) + markup.flush())) == text


@pytest.mark.parametrize(
    "start", ['<a b="', "[", r"\{pause:", '{"word":"', "&", "<!-- ", '<sub alias="a">', "](", "<!A"]
)
def test_unclosed_markup_holds_back_a_bounded_text(start: str) -> None:
    markup = MarkupFilter(ALL)
    markup.push("one " + start)
    for _ in range(300):
        markup.push("some more text ")
        assert len(markup._text) < 600
    (*_, last) = markup.push("and the end.")
    assert isinstance(last, str)
    assert last.endswith("and the end.")


def test_unclosed_tag_is_prose_at_the_end() -> None:
    markup = MarkupFilter(ALL)
    assert markup.push('Hello <break time="1s"') == ["Hello "]
    assert markup.flush() == ['<break time="1s"']


def test_without_dialects_nothing_is_markup() -> None:
    markup = MarkupFilter()
    assert markup.push("<b>**[x](y)") == ["<b>**[x](y)"]
