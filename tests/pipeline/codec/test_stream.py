from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from voxgate.pipeline.codec.planner import StreamView
from voxgate.pipeline.codec.stream import CodecContext, CodecStream
from voxgate.pipeline.errors import EngineLost, GenerationFailed


class Owner:
    """A fake service that counts the stream's notifications."""

    def __init__(self) -> None:
        self.changes = 0
        self.released: list[CodecStream] = []

    def open(self, slot: int = 4, **options: Any) -> CodecStream:
        check = lambda codes: codes  # noqa: E731 - shorter than a function
        return CodecStream(slot, check, self._changed, self.released.append, **options)

    def _changed(self) -> None:
        self.changes += 1


def frames(first: int, count: int) -> np.ndarray:
    return np.repeat(np.arange(first, first + count, dtype=np.int16)[:, None], 16, axis=1)


def own(codes: np.ndarray) -> CodecContext:
    """A context that no other stream has."""
    return CodecContext(codes[:0], codes)


def offers(stream: CodecStream) -> list[tuple[int, bool]]:
    """What the stream offers for the first frame at once."""
    offered: list[tuple[int, bool]] = []
    stream.offer_first_frame(lambda slot, fresh: offered.append((slot, fresh)))
    return offered


def audio(count: int) -> np.ndarray:
    return np.zeros(count * 1920, dtype=np.float32)


def test_frames_are_taken_in_order_across_pushes() -> None:
    stream = Owner().open()
    for first, count in ((0, 3), (3, 1), (4, 5)):
        stream.push(frames(first, count))
    taken = [stream.take(count, 0, 0.0) for count in (1, 4, 2)]
    assert [codes[:, 0].tolist() for codes, _ in taken] == [[0], [1, 2, 3, 4], [5, 6]]
    assert [is_first for _, is_first in taken] == [True, False, False]
    assert stream.view(0.0) == StreamView(slot=4, pending=2, decoded=7, heard=0)


async def test_woken_reader_gets_an_empty_run_behind_the_audio() -> None:
    stream = Owner().open()
    stream.wake()
    assert len(await anext(stream)) == 0
    stream.push(frames(0, 1))
    stream.take(1, 0, 0.0)
    stream.deliver(audio(1), 1)
    stream.wake()
    assert len(await anext(stream)) == 1920
    stream.finish()
    assert [run async for run in stream] == []


async def test_frame_decoded_by_the_engine_is_part_of_the_stream() -> None:
    owner = Owner()
    stream = owner.open()
    assert offers(stream) == [(4, True)]
    stream.push(frames(0, 1), decoded=True)
    assert not owner.changes, "there is nothing to decode"
    assert not offers(stream)
    stream.push(frames(1, 2))
    assert stream.view(0.0) == StreamView(slot=4, pending=2, decoded=1, heard=0)
    stream.push_pcm(np.ones(1920, np.float32))
    codes, first = stream.take(2, 1, 0.0)
    assert (codes[:, 0].tolist(), first) == ([1, 2], False)
    stream.deliver(audio(2), 2)
    stream.finish()
    assert [(len(run), float(run[0])) for run in [run async for run in stream]] == [(1920, 1.0), (3840, 0.0)]


async def test_nan_from_the_engine_fails_the_stream() -> None:
    stream = Owner().open()
    stream.push(frames(0, 1), decoded=True)
    stream.push_pcm(np.full(1920, np.nan, np.float32))
    with pytest.raises(GenerationFailed):
        await anext(stream)


def test_first_frame_is_offered_for_paced_stream_in_idle_slot_without_context() -> None:
    assert not offers(Owner().open(paced=False))
    assert not offers(Owner().open(context=own(frames(0, 2))))
    assert not offers(Owner().open(external_first_frame=False)), "the job of the previous stream is in flight"


def test_view_follows_playback() -> None:
    stream = Owner().open()
    stream.push(frames(0, 6))
    stream.take(4, 1, 0.0)
    stream.advance(3)
    stream.advance(2)  # acknowledgements may arrive out of order
    assert stream.view(0.0).heard == 3
    stream.advance(9)  # never more than was decoded
    assert stream.view(0.0).lead == 0
    stream.finish()
    assert stream.view(0.0).ended


async def test_iteration_ends_after_the_last_frame() -> None:
    stream = Owner().open()
    stream.push(frames(0, 3))
    stream.take(1, 1, 0.0)
    stream.take(2, 1, 0.0)
    stream.finish()
    stream.deliver(audio(1), 1)
    stream.deliver(audio(2), 2)
    assert [len(pcm) // 1920 async for pcm in stream] == [1, 2]


async def test_finish_wakes_waiting_reader() -> None:
    stream = Owner().open()
    reader = asyncio.create_task(anext(stream))
    await asyncio.sleep(0)
    stream.finish()
    with pytest.raises(StopAsyncIteration):
        await reader


async def test_cancelling_a_read_loses_nothing() -> None:
    stream = Owner().open()
    stream.push(frames(0, 1))
    stream.take(1, 1, 0.0)
    reader = asyncio.create_task(anext(stream))
    await asyncio.sleep(0)
    reader.cancel()
    stream.deliver(audio(1), 1)
    await asyncio.wait((reader,))
    assert len(await anext(stream)) == 1920


async def test_error_is_raised_after_delivered_audio() -> None:
    stream = Owner().open()
    stream.push(frames(0, 2))
    stream.take(1, 1, 0.0)
    stream.deliver(audio(1), 1)
    stream.fail(EngineLost("gone"))
    stream.fail(EngineLost("a later reason does not count"))
    assert len(await anext(stream)) == 1920
    with pytest.raises(EngineLost, match="gone"):
        await anext(stream)
    assert stream.view(0.0).pending == 0  # no more frames are decoded


async def test_closing_releases_slot_once_and_drops_late_audio() -> None:
    owner = Owner()
    stream = owner.open()
    stream.push(frames(0, 2))
    stream.take(1, 1, 0.0)
    await stream.aclose()
    await stream.aclose()
    stream.deliver(audio(1), 1)
    assert owner.released == [stream]
    assert [pcm async for pcm in stream] == []
    stream.push(frames(2, 1))  # the talker's last frames may arrive later
    assert stream.view(0.0).pending == 0


def test_push_after_finish_is_refused() -> None:
    stream = Owner().open()
    stream.finish()
    with pytest.raises(ValueError, match="finished"):
        stream.push(frames(0, 1))


def test_unpaced_stream_is_due_in_real_time() -> None:
    stream = Owner().open(paced=False)
    stream.push(frames(0, 30))
    stream.take(8, 1, now_s=100.0)
    stream.take(8, 2, now_s=100.1)
    stream.advance(16)  # all of it was sent at once
    assert [stream.view(100.0 + s).lead for s in (0.0, 0.081, 0.5, 60.0)] == [16, 15, 10, 0]
    assert not stream.view(100.0).ended, "what is far ahead can wait for a fuller chunk"


async def test_context_is_decoded_first_and_discarded() -> None:
    stream = Owner().open(context=own(frames(100, 5)))
    stream.push(frames(0, 3))
    assert stream.view(0.0) == StreamView(slot=4, pending=8, decoded=0, heard=0, context=5)
    codes, first = stream.take(4, 1, 0.0)
    assert first
    assert codes[:, 0].tolist() == [100, 101, 102, 103]
    # Frames of the context count as heard as soon as they are decoded.
    assert stream.view(0.0) == StreamView(slot=4, pending=4, decoded=4, heard=4, served=1, context=1)
    stream.deliver(audio(4), 4)
    stream.take(2, 2, 0.0)
    stream.deliver(np.arange(2 * 1920, dtype=np.float32), 2)
    assert (await anext(stream)).tolist() == list(range(1920, 2 * 1920))
    assert stream.view(0.0).lead == 1
    stream.advance(1)
    assert stream.view(0.0).lead == 0


def test_unpaced_time_begins_after_the_context() -> None:
    stream = Owner().open(paced=False, context=own(frames(100, 2)))
    stream.push(frames(0, 4))
    stream.take(2, 1, 10.0)
    stream.take(1, 2, 20.0)
    stream.take(2, 3, 20.1)
    assert stream.view(20.1).lead == 2


async def test_context_alone_gives_no_audio() -> None:
    stream = Owner().open(context=own(frames(100, 2)))
    stream.finish()
    stream.take(2, 1, 0.0)
    stream.deliver(audio(2), 2)
    assert [pcm async for pcm in stream] == []


async def test_shared_context_is_decoded_once_and_kept_before_more_is_taken() -> None:
    stream = Owner().open(context=CodecContext(frames(100, 9), frames(200, 1)))
    kept: list[int] = []
    stream.push(frames(0, 2))
    assert not stream.pending, "the codec has not said whether it has kept the state"
    stream.begin_behind_shared(False, lambda: kept.append(stream.view(0.0).decoded))
    assert stream.view(0.0) == StreamView(slot=4, pending=12, decoded=0, heard=0, context=9)
    codes, first = stream.take(8, 1, 0.0)
    assert (codes[:, 0].tolist(), first) == ([*range(100, 108)], True)
    stream.deliver(audio(8), 8)
    assert not kept
    assert stream.view(0.0).context == 1
    codes, first = stream.take(1, 2, 0.0)
    assert (codes[:, 0].tolist(), first) == ([108], False)
    assert not stream.pending, "the state is to be kept before the next frame changes it"
    stream.deliver(audio(1), 1)
    assert kept == [9]
    assert stream.view(0.0).context == 1, "its own frames"
    stream.take(1, 3, 0.0)
    stream.deliver(audio(1), 1)
    stream.take(2, 4, 0.0)
    stream.deliver(np.ones(2 * 1920, np.float32), 2)
    assert kept == [9]
    assert (await anext(stream)).tolist() == [1.0] * 2 * 1920


async def test_state_of_frames_that_could_not_be_decoded_is_not_kept() -> None:
    stream = Owner().open(context=CodecContext.reference(frames(100, 2)))
    kept: list[int] = []
    stream.begin_behind_shared(False, lambda: kept.append(1))
    stream.take(2, 1, 0.0)
    stream.fail(GenerationFailed("the codec could not decode the speech"))
    assert not kept
    with pytest.raises(GenerationFailed):
        await anext(stream)


async def test_stream_behind_restored_state_begins_with_its_first_frame() -> None:
    stream = Owner().open(context=CodecContext.reference(frames(100, 50)))
    offered: list[tuple[int, bool]] = []
    stream.offer_first_frame(lambda slot, fresh: offered.append((slot, fresh)))
    assert not offered, "the state is not there yet"
    stream.begin_behind_shared(True, lambda: None)
    assert offered == [(4, False)]
    stream.push(frames(0, 2))
    assert stream.view(0.0) == StreamView(slot=4, pending=2, decoded=0, heard=0)
    codes, first = stream.take(1, 1, 0.0)
    assert (codes[:, 0].tolist(), first) == ([0], False)
    stream.deliver(np.ones(1920, np.float32), 1)
    assert (await anext(stream)).tolist() == [1.0] * 1920


@pytest.mark.parametrize("restored", [True, False])
def test_first_frame_is_not_offered_once_frames_are_there(restored: bool) -> None:
    stream = Owner().open(context=CodecContext.reference(frames(100, 2)))
    offered: list[int] = []
    stream.offer_first_frame(lambda slot, _: offered.append(slot))
    stream.push(frames(0, 1))
    stream.begin_behind_shared(restored, lambda: None)
    assert not offered


async def test_answer_for_closed_stream_changes_nothing() -> None:
    owner = Owner()
    stream = owner.open(context=CodecContext.reference(frames(100, 2)))
    stream.offer_first_frame(lambda *_: pytest.fail("the slot may be another stream's"))
    await stream.aclose()
    changes = owner.changes
    stream.begin_behind_shared(True, lambda: None)
    assert owner.changes == changes
    assert not stream.pending


def test_equal_references_have_equal_keys() -> None:
    keys = [CodecContext.reference(each).key for each in (frames(1, 3), frames(1, 3), frames(1, 4), frames(2, 3))]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


@pytest.mark.parametrize("paced", [True, False])
async def test_what_is_heard_concerns_the_planner_of_paced_streams_only(paced: bool) -> None:
    owner = Owner()
    stream = owner.open(paced=paced)
    stream.push(frames(0, 2))
    before = owner.changes
    stream.advance(1)
    assert owner.changes - before == paced
