from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from voxgate.pipeline.codec.planner import (
    CHUNK_FRAMES,
    PlannedBatch,
    StreamView,
    frames_to_decode,
    plan_batch,
    usual_shapes,
)

ROWS, FRAMES = 8, 8


@st.composite
def views(draw: st.DrawFn) -> list[StreamView]:
    slots = draw(st.lists(st.integers(0, 30), unique=True, max_size=12))
    streams = []
    for slot in slots:
        decoded = draw(st.integers(0, 60))
        heard = draw(st.integers(0, decoded))
        streams.append(StreamView(slot, draw(st.integers(0, 20)), decoded, heard, draw(st.booleans())))
    return streams


@given(streams=views(), max_rows=st.integers(1, 10), max_frames=st.sampled_from((1, 2, 8, 16)))
def test_batch_is_valid_and_bounded(streams: list[StreamView], max_rows: int, max_frames: int) -> None:
    batch = plan_batch(streams, max_rows, max_frames)
    if batch is None:
        return
    by_slot = {stream.slot: stream for stream in streams}
    assert batch.frames in CHUNK_FRAMES
    assert len(set(batch.slots)) == len(batch.slots) <= max_rows
    assert all(by_slot[slot].pending >= batch.frames for slot in batch.slots)
    assert len(batch.slots) * batch.frames <= max_frames
    assert (len(batch.slots), batch.frames) in usual_shapes(max_rows, max_frames)


@given(streams=views())
def test_only_streams_with_enough_lead_wait(streams: list[StreamView]) -> None:
    if plan_batch(streams, ROWS, FRAMES) is None:
        for stream in streams:
            assert stream.pending == 0 or (not stream.ended and stream.lead >= 4)


@given(streams=views())
def test_shortest_lead_goes_first(streams: list[StreamView]) -> None:
    batch = plan_batch(streams, ROWS, FRAMES)
    if batch is not None:
        lead = {stream.slot: stream.lead for stream in streams}
        ready = [s for s in streams if s.pending and frames_to_decode(s)]
        assert lead[batch.slots[0]] == min(stream.lead for stream in ready)


@given(streams=views())
def test_batch_is_filled_with_able_streams(streams: list[StreamView]) -> None:
    batch = plan_batch(streams, ROWS, FRAMES)
    if batch is not None and len(batch.slots) < FRAMES // batch.frames:
        able = {stream.slot for stream in streams if stream.pending >= batch.frames}
        assert able == set(batch.slots)


@given(streams=views())
def test_new_stream_gets_one_frame_at_once(streams: list[StreamView]) -> None:
    new = StreamView(slot=99, pending=5, decoded=0, heard=0)
    batch = plan_batch([*streams, new], max_rows=20, max_frames=20)
    assert batch is not None
    assert 99 in batch.slots
    assert batch.frames == 1


@given(streams=views())
def test_ended_streams_are_decoded_completely(streams: list[StreamView]) -> None:
    left = {stream.slot: stream._replace(ended=True) for stream in streams}
    work = sum(stream.pending for stream in streams)
    for _ in range(work):
        batch = plan_batch(left.values(), ROWS, FRAMES)
        if batch is None:
            break
        for slot in batch.slots:
            stream = left[slot]
            left[slot] = stream._replace(pending=stream.pending - batch.frames, decoded=stream.decoded + batch.frames)
    assert all(stream.pending == 0 for stream in left.values())


@given(st.integers(0, 60), st.integers(0, 20), st.integers(0, 20), st.booleans())
def test_chunk_never_exceeds_the_lead(lead: int, pending: int, heard: int, ended: bool) -> None:
    frames = frames_to_decode(StreamView(0, pending, heard + lead, heard, ended))
    assert frames <= max(lead, 1)


@given(st.integers(1, 60), st.integers(1, 20))
def test_playback_ends_every_wait_before_the_stream_runs_dry(lead: int, pending: int) -> None:
    stream = StreamView(0, pending, decoded=lead, heard=0)
    while frames_to_decode(stream) == 0:
        stream = stream._replace(heard=stream.heard + 1)
    assert stream.lead >= min(lead, 2)


@pytest.mark.parametrize(
    ("pending", "lead", "ended", "frames"),
    [
        (0, 0, False, 0),
        (9, 0, False, 1),
        (9, 1, False, 1),
        (9, 2, False, 2),
        (1, 3, False, 1),  # short lead: takes what is pending
        (1, 4, False, 0),  # long enough to wait for two
        (2, 4, False, 2),
        (3, 8, False, 0),
        (9, 7, False, 4),
        (9, 8, False, 8),
        (7, 16, False, 0),
        (7, 16, True, 4),  # nothing more comes: no waiting
        (0, 16, True, 0),
    ],
)
def test_chunks_grow_with_the_lead(pending: int, lead: int, ended: bool, frames: int) -> None:
    assert frames_to_decode(StreamView(0, pending, 20 + lead, 20, ended)) == frames


def test_stream_with_shortest_lead_determines_the_chunk() -> None:
    dry = StreamView(slot=3, pending=2, decoded=10, heard=9)
    ahead = StreamView(slot=1, pending=4, decoded=30, heard=10)
    empty = StreamView(slot=2, pending=0, decoded=5, heard=5)
    assert plan_batch([ahead, empty, dry], ROWS, FRAMES) == PlannedBatch(slots=(3, 1), frames=1)


def test_among_equal_leads_the_one_served_longest_ago_goes_first() -> None:
    """Without spare capacity all leads are 0, and no stream may starve."""
    streams = [StreamView(slot, pending=5, decoded=9, heard=9, served=served) for slot, served in enumerate((7, 3, 5))]
    assert plan_batch(streams, max_rows=1, max_frames=8) == PlannedBatch((1,), 1, urgent=True)


@given(st.lists(st.builds(StreamView, st.integers(), *[st.integers(0, 9)] * 3), max_size=8))
def test_batch_with_a_stream_that_has_nothing_ahead_is_urgent(views: list[StreamView]) -> None:
    views = [view._replace(slot=slot) for slot, view in enumerate(views) if view.lead >= 0]
    if (batch := plan_batch(views, ROWS, FRAMES)) is not None:
        assert batch.urgent == any(view.lead == 0 for view in views if view.slot in batch.slots)


def test_neither_playing_nor_new_streams_starve() -> None:
    """Without spare capacity and with a new stream at every turn, each is served within one round."""
    streams = {slot: StreamView(slot, pending=9, decoded=20, heard=20) for slot in range(6)}
    waited = dict.fromkeys(streams, 0)
    for turn in range(1, 60):
        new = 100 + turn
        streams[new] = StreamView(new, pending=1, decoded=0, heard=0, ended=True)
        waited[new] = 0
        batch = plan_batch(streams.values(), max_rows=2, max_frames=2)
        assert batch is not None
        for slot in batch.slots:
            stream = streams[slot]
            heard = stream.heard + batch.frames
            decoded = stream.decoded + batch.frames
            streams[slot] = stream._replace(decoded=decoded, heard=heard, served=turn)
            waited[slot] = -1
        for slot in [slot for slot in batch.slots if slot >= 100]:
            del streams[slot], waited[slot]
        waited = {slot: turns + 1 for slot, turns in waited.items()}
        # A new stream takes one of two rows; the six others take turns in the second.
        assert max(waited.values()) <= 6 + 2


def test_context_is_decoded_in_full_chunks() -> None:
    fresh = StreamView(0, pending=13, decoded=0, heard=0, context=11)
    assert frames_to_decode(fresh) == 8
    assert frames_to_decode(fresh._replace(pending=5, decoded=8, heard=8, context=3)) == 2
    # What follows is played, and its first frame at once.
    assert frames_to_decode(fresh._replace(pending=2, decoded=11, heard=11, context=0)) == 1
