"""Which keys have a place, and which one is given up."""

from __future__ import annotations

from voxgate.pipeline.codec.kept_states import KeptStates


def test_new_key_takes_the_place_of_the_least_recently_used() -> None:
    states = KeptStates(2)
    first, second = states.assign(b"a"), states.assign(b"b")
    assert {first, second} == {0, 1}
    assert states.find(b"a") == first
    assert states.assign(b"c") == second, "a was used after b"
    assert [states.find(key) for key in (b"a", b"b", b"c")] == [first, None, second]


def test_key_that_is_kept_is_not_written_again() -> None:
    states = KeptStates(2)
    states.assign(b"a")
    states.assign(b"b")
    assert states.assign(b"a") is None
    states.assign(b"c")
    assert states.find(b"b") is None, "the attempt counts as a use of a"
