"""Messages that follow each other, also behind a hold."""

from __future__ import annotations

import pytest
from voxgate.client import Audio, AudioFormat, Continued, Done, ProtocolViolation
from voxgate.client.continuity import Continuity

SAMPLES = 4
PCM, OPUS = AudioFormat(), AudioFormat("opus", pre_skip=1)


def audio(seq: int, *, last: bool = False, pts: int | None = None) -> Audio:
    payload = bytes(range(2 * SAMPLES))
    return Audio(1, seq, SAMPLES * seq if pts is None else pts, SAMPLES, payload, first=seq == 0, last=last)


def after(count: int, *, last: bool = False) -> Continuity:
    continuity = Continuity("u1")
    for seq in range(count):
        continuity.check(audio(seq, last=last and seq == count - 1), PCM)
    return continuity


def test_messages_come_again_from_where_it_goes_on() -> None:
    continuity = after(5, last=True)
    continuity.rewind(Continued(2, 3, 0))
    assert not continuity.last_received
    first = continuity.check(audio(2), PCM)
    assert (first.pts, first.samples, first.payload) == (2 * SAMPLES + 3, 1, bytes((6, 7)))
    assert continuity.check(audio(3), PCM) == audio(3), "only the first one was heard in part"
    continuity.check(audio(4, last=True), PCM)
    continuity.check_complete(Done("end", 1, 1, 5 * SAMPLES, 1, 0.0), PCM)


def test_samples_of_a_codec_are_to_be_skipped_by_the_player() -> None:
    continuity = after(2)
    continuity.rewind(Continued(1, 3, 0))
    coded = continuity.check(audio(1), OPUS)
    assert (coded.skip_samples, coded.payload) == (3, audio(1).payload)


def test_everything_was_heard() -> None:
    continuity = after(2, last=True)
    continuity.rewind(Continued(2, 0, 0))
    continuity.check_complete(Done("end", 1, 1, 2 * SAMPLES, 1, 0.0), PCM)


@pytest.mark.parametrize("wrong", [audio(1), audio(3), audio(2, pts=5 * SAMPLES)])
def test_message_that_does_not_follow_is_a_violation(wrong: Audio) -> None:
    continuity = after(4)
    continuity.rewind(Continued(2, 0, 0))
    with pytest.raises(ProtocolViolation, match="must be"):
        continuity.check(wrong, PCM)


def test_going_on_behind_what_was_received_is_a_violation() -> None:
    with pytest.raises(ProtocolViolation, match="at most 2"):
        after(2).rewind(Continued(3, 0, 0))
