"""What the next stream of an utterance has to continue."""

from __future__ import annotations

import numpy as np
import pytest
from fakes.pipeline.speech_bench import FakeCodec
from voxgate.pipeline.codec.resumable_stream import ResumableStream

REFERENCE = np.arange(8, dtype=np.int16).reshape(4, 2)


def frames(first: int, count: int) -> np.ndarray:
    return np.repeat(np.arange(first, first + count, dtype=np.int16)[:, None], 2, axis=1)


def resumable(reference: np.ndarray, context_frames: int) -> ResumableStream:
    codec = FakeCodec(chunk=1)
    codec.context_frames = context_frames
    return ResumableStream(codec, lambda: None, reference)


async def test_reference_stays_shared_while_all_of_it_is_needed() -> None:
    stream = resumable(REFERENCE, context_frames=6)
    assert stream.context.shared.tolist() == REFERENCE.tolist()
    assert stream.context.own.shape == (0, 2)
    key = stream.context.key
    stream.push(frames(50, 4))
    for _ in range(2):
        await anext(stream)
    assert stream.context.key == key
    assert stream.context.own.tolist() == frames(50, 2).tolist(), "those with audio"
    await anext(stream)
    assert stream.context.shared.shape == (0, 2)
    assert stream.context.own.tolist() == [*REFERENCE[1:].tolist(), *frames(50, 3).tolist()]


@pytest.mark.parametrize("reference", [REFERENCE, REFERENCE[:0]])
async def test_context_before_the_first_audio_has_the_width_of_a_frame(reference: np.ndarray) -> None:
    stream = resumable(reference, context_frames=6)
    stream.push(frames(50, 1))
    context = stream.context
    assert (context.shared.shape, context.own.shape) == (reference.shape, (0, 2))
