"""Which streams go into the codec's next batch, and with how many frames, decided from plain numbers.

A stream's first chunk is one frame, so that it is heard at once. Later chunks are of 1, 2, 4 or 8 frames:
larger ones cost less a frame but come later, so they grow with the stream's lead, the frames decoded but not
yet heard. A stream short of lead takes what there is; one with a long lead waits for a fuller chunk, since
that costs the listener nothing. The stream closest to running dry is served first, among equals the one
served longest ago, and others with as many frames pending ride along in its batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

CHUNK_FRAMES = (1, 2, 4, 8)
"""The chunk sizes in use; few, so that every shape can be warmed up."""
_CHUNKS = [max(size for size in CHUNK_FRAMES if size <= max(frames, 1)) for frames in range(CHUNK_FRAMES[-1] + 1)]


class StreamView(NamedTuple):
    """What the planner sees of a stream.

    `pending`: frames not yet given to a batch; `decoded`: frames given to batches so far; `heard`: of those,
    heard by the listener; `ended`: not to wait for more frames; `served`: number of the last batch it was in;
    `context`: of the pending ones, those that nobody will hear.
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
    """The next `frames` frames of each of `slots`, to be decoded together."""

    slots: tuple[int, ...]
    frames: int


def plan(streams: Iterable[StreamView], max_rows: int, max_frames: int) -> PlannedBatch | None:
    """The next batch, or None when nothing should be decoded now.

    `max_rows` and `max_frames` (over all rows) bound it, so that a stream that comes new never waits long for
    the batch under way.
    """
    urgent_first = sorted((s for s in streams if s.pending), key=lambda s: (s.lead, s.served, s.slot))
    for first in urgent_first:
        if frames := frames_to_decode(first, max_frames):
            break
    else:
        return None
    riders = [s.slot for s in urgent_first if s is not first and s.pending >= frames]
    room = min(max_rows, max_frames // frames)
    return PlannedBatch((first.slot, *riders[: room - 1]), frames)


def frames_to_decode(stream: StreamView, max_frames: int = CHUNK_FRAMES[-1]) -> int:
    """The next chunk of `stream` were it alone; 0 to wait for more frames.

    It takes at most as many frames as the lead holds, so that the chunk is heard without a gap, and waits
    only for half of that: the lead is used up while it waits, so the wait ends by itself and long before the
    stream runs dry. Frames that nobody hears are in the way of those that somebody will: they go in full chunks.
    """
    if stream.context and stream.pending:
        return _chunk(min(stream.context, max_frames))
    most = _chunk(min(stream.lead, max_frames))
    worth_waiting_for = _chunk(min(stream.lead // 2, max_frames))
    if stream.pending < worth_waiting_for and not stream.ended:
        return 0
    return min(most, _chunk(stream.pending)) if stream.pending else 0


def _chunk(frames: int) -> int:
    """The largest chunk size within `frames`, at least one frame."""
    return _CHUNKS[min(max(frames, 0), CHUNK_FRAMES[-1])]


def usual_shapes(max_rows: int, max_frames: int) -> list[tuple[int, int]]:
    """Every (rows, frames) that `plan` can ask for."""
    return [
        (rows, frames)
        for frames in CHUNK_FRAMES
        if frames <= max_frames
        for rows in range(1, min(max_rows, max_frames // frames) + 1)
    ]
