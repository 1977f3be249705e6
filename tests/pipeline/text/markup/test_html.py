"""HTML elements and entities."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Apply = Callable[..., tuple[list[str | int], tuple[str, ...]]]


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        *[("<b>Bold</b> and <i>it</i>", "Bold and it"), ('<a href="https://x.y/?a>b">here</a>', "here")],
        *[("one<br>two<br/>three", "one two three"), ("<ul><li>a</li><li>b</li></ul>", "a\n\nb\n\n")],
        *[("x<!-- a > b -->y", "xy"), ("<style>p {}</style>x", "x"), ("<script>a < b</script>x", "x")],
        *[("AT&amp;T &lt;3 &#65;&#x42; &copy;", "AT&T <3 AB ©"), ("see <https://a.b/c>", "see https://a.b/c")],
        *[("mail <a.b@c.de>", "mail a.b@c.de"), ("<!DOCTYPE html>x", "x"), ("H<sub>2</sub>O", "H2O")],
    ],
)
def test_tags_and_entities(apply: Apply, text: str, plain: str) -> None:
    assert apply(text, "html") == ([plain], ())


def test_unknown_element_is_reported(apply: Apply) -> None:
    runs, (notice,) = apply("<foo>yes</foo>", "html")
    assert runs == ["yes "]
    assert "unknown" in notice


def test_entity_of_a_tag_does_not_become_one(apply: Apply) -> None:
    assert apply("&lt;b&gt;", "html") == (["<b>"], ())
