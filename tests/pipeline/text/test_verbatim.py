from __future__ import annotations

import pytest
from voxgate.pipeline.text.traced import EMPTY, TracedText
from voxgate.pipeline.text.verbatim import Verbatim


@pytest.mark.parametrize(
    ("text", "mark"),
    [("go", "."), ("go. ", ""), ('"Go!" ', ""), ("好。", ""), ("go,", "."), ("", ""), (" ", "")],
)
def test_the_closing_mark_is_added_where_there_is_none(text: str, mark: str) -> None:
    form = Verbatim(".")
    given = TracedText(text, tuple(range(1, len(text) + 1)))
    assert form.push(given) == given
    assert form.flush().text == mark
    assert form.flush() == EMPTY


def test_without_a_closing_mark_nothing_is_added() -> None:
    form = Verbatim()
    form.push(TracedText("go", (1, 2)))
    assert form.flush() == EMPTY
