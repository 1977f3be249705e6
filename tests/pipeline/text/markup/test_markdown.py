"""Markdown marks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Apply = Callable[..., tuple[list[str | int], tuple[str, ...]]]


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        *[("**Bold** and *it*, ***both***.", "Bold and it, both."), ("__a__ _b_ ~~c~~", "a b c")],
        *[("un**believ**able", "unbelievable"), ("你**好**吗", "你好吗"), ("`code` ``more``", "code more")],
        *[("2 * 3, 5*4 and snake_case", "2 * 3, 5*4 and snake_case"), (r"\*not\* \_so\_", "*not* _so_")],
        *[("see [the docs](https://a.b/c_(d)) now", "see the docs now"), ("[a **b**](c 'title').", "a b.")],
        *[("![a cat](cat.png)", "!a cat"), ("[text][ref] and [1] x[^note]", "text and [1] x")],
        *[("# Title\nText", "Title\nText"), ("a\n## Sub #\nb", "a\n\nSub #\nb"), ("C# #tag", "C# #tag")],
        *[("- one\n- two", "one\n\ntwo"), ("* [x] done\n  - [ ] open", " done\n  \n\n open")],
        *[("1. one\n2. two", "1. one\n2. two"), ("> quote\n> more", "quote\nmore"), ("a\n---\nb", "a\n\n\nb")],
        *[("```python\nx = 1\n```\nend", "\nx = 1\n\nend"), ("~~~\ny\n~~~\n", "\ny\n\n")],
        *[("| a | b |\n|---|:-:|\n| 1 | 2 |", "a , b \n\n\n\n1 , 2 \n\n"), ("5 - 3", "5 - 3")],
    ],
)
def test_marks_are_dropped(apply: Apply, text: str, plain: str) -> None:
    assert apply(text, "markdown") == ([plain], ())


def test_address_without_an_end_drops_a_bounded_text(apply: Apply) -> None:
    runs, _ = apply("[a](http://x " + "word " * 1000, "markdown")
    assert isinstance(runs[0], str)
    assert len(runs[0]) > 3900


def test_address_ends_with_the_line(apply: Apply) -> None:
    assert apply("[a](http://x\nnext", "markdown") == (["a\nnext"], ())
