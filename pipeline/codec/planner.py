"""Chooses the streams of the codec's next batch, and how many frames of each, from plain numbers.

A stream's first chunk is one frame, so that its audio is available soon. Later chunks have 1, 2, 4 or 8 frames: a
larger chunk costs less per frame but is ready later, so chunks grow with the stream's lead, the frames decoded but not
yet heard. A stream with a short lead takes what is pending; one with a long lead waits for a fuller chunk, which costs
the listener nothing. The stream with the shortest lead is served first, among equals the one served longest ago, and
other streams with as many frames pending join its batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

CHUNK_FRAMES = (1, 2, 4, 8)
"""The chunk sizes in use, in frames; few, so that every batch shape can be warmed up or captured."""
_CHUNKS = [max(size for size in CHUNK_FRAMES if size <= max(frames, 1)) for frames in range(CHUNK_FRAMES[-1] + 1)]
"""The largest chunk size within a number of frames."""


class StreamView(NamedTuple):
    """What the planner sees of a stream, in frames.

    `pending`: not yet given to a batch; `decoded`: given to batches so far; `heard`: of those, heard by the listener;
    `ended`: no more frames come; `served`: number of the last batch with this stream; `context`: pending frames whose
    audio is discarded.
    """

    slot: int
    pending: int
    decoded: int
    heard: int
    ended: bool = False
    served: int = 0
    context: int = 0

    @property
    def lead(self) -> int:
        return self.decoded - self.heard


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """The next `frames` frames of each of `slots`, to be decoded together.

    `urgent`: whether one of the streams has nothing ahead of its playback, as before its first audio.
    """

    slots: tuple[int, ...]
    frames: int
    urgent: bool = False


def plan_batch(streams: Iterable[StreamView], max_rows: int, max_frames: int) -> PlannedBatch | None:
    """Returns the next batch, or None when nothing should be decoded now.

    `max_rows` and `max_frames` (over all rows) bound it, so that a new stream never waits long for the batch in flight.
    """
    shortest_lead_first = sorted((s for s in streams if s.pending), key=lambda s: (s.lead, s.served, s.slot))
    for first in shortest_lead_first:
        if frames := frames_to_decode(first, max_frames):
            break
    else:
        return None
    # A chunk does not go beyond a context: the state behind it may have to be kept.
    others = [s.slot for s in shortest_lead_first if s is not first and (s.context or s.pending) >= frames]
    rows = min(max_rows, max_frames // frames)
    # A stream without a lead never waits for more frames, so it comes first.
    return PlannedBatch((first.slot, *others[: rows - 1]), frames, urgent=not first.lead)


def frames_to_decode(stream: StreamView, max_frames: int = CHUNK_FRAMES[-1]) -> int:
    """Returns the next chunk of `stream` if it were alone; 0 to wait for more frames.

    A chunk has at most as many frames as the lead, so that playback has no gap. A stream waits for half as many at
    most: its lead shrinks while it waits, so the wait ends by itself, long before the stream runs dry. Frames whose
    audio is discarded delay those that are heard, so they are decoded in full chunks.
    """
    if stream.context and stream.pending:
        return _chunk(min(stream.context, max_frames))
    largest = _chunk(min(stream.lead, max_frames))
    worth_waiting_for = _chunk(min(stream.lead // 2, max_frames))
    if stream.pending < worth_waiting_for and not stream.ended:
        return 0
    return min(largest, _chunk(stream.pending)) if stream.pending else 0


def _chunk(frames: int) -> int:
    """Returns the largest chunk size within `frames`, at least one frame."""
    return _CHUNKS[min(max(frames, 0), CHUNK_FRAMES[-1])]


def usual_shapes(max_rows: int, max_frames: int) -> list[tuple[int, int]]:
    """Returns every (rows, frames) that `plan_batch` can ask for."""
    return [
        (rows, frames)
        for frames in CHUNK_FRAMES
        if frames <= max_frames
        for rows in range(1, min(max_rows, max_frames // frames) + 1)
    ]
