"""Offsets in code points and in UTF-16 units."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from voxgate.gateway.session.text.text_offsets import TextOffsets


@given(st.lists(st.text(st.sampled_from("ae\u00e9\uffff\U00010000\U0001f600"), max_size=6), max_size=6), st.data())
def test_offset_counts_the_units_before_it(fragments: list[str], data: st.DataObject) -> None:
    utf16, plain, text = TextOffsets(utf16=True), TextOffsets(), "".join(fragments)
    for fragment in fragments:
        utf16.add(fragment)
        plain.add(fragment)
    offset = data.draw(st.integers(0, len(text)))
    assert utf16.of(offset) == len(text[:offset].encode("utf-16-le")) // 2
    assert plain.of(offset) == offset
    assert utf16.code_points(utf16.of(offset)) == offset
    assert plain.code_points(offset) == offset


def test_an_offset_within_a_pair_is_that_of_the_pair() -> None:
    utf16 = TextOffsets(utf16=True)
    utf16.add("a\U0001f600b\U0001f600c")
    assert [utf16.code_points(units) for units in range(8)] == [0, 1, 1, 2, 3, 3, 4, 5]
