"""First frames are decoded on the device as soon as they are made.

On its way through the processes a frame would wait for four of them to wake up, and the device meanwhile for the frame.
So who makes a first frame has it decoded right behind his step, by a graph on a stream of its own; only sound is then
on its way. Frames that go on from there are decoded as ever (`pipeline/codec/`).
"""

from __future__ import annotations

import queue
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import triton
from numpy.typing import NDArray
from torch import Tensor

from ...cuda.graphs import capture, new_event, new_stream
from ...ipc.records import HEADER, RecordFlag, pack_pcm
from .step_kernels import find_first_frames

if TYPE_CHECKING:
    from ...codec.gpu_worker import GpuBatchDecoder

SIZES = (1, 2, 4)
"""Streams of the graphs; more first frames of one step than that are decoded as others are."""
UNDER_WAY = 4
"""Steps whose first frames may be on their way at the same time."""
_NOT_WANTED = -2
"""In place of a slot: no record says so."""


@dataclass(frozen=True, slots=True)
class _FirstFrameGraph:
    graph: torch.cuda.CUDAGraph
    given: Tensor
    pcm: Tensor


class _FirstFrameStaging:
    """Memory for the first frames of one step: `wanted` and `pcm` are the host's."""

    def __init__(self, groups: int, samples: int, device: torch.device) -> None:
        most = SIZES[-1]
        self.wanted = torch.empty(2, most, dtype=torch.int64, pin_memory=True)
        self.given = torch.empty(2 + groups, most, dtype=torch.int64, device=device)
        self.pcm = torch.empty(most, samples, dtype=torch.float32, pin_memory=True)
        self.found, self.done = new_event(), new_event()


class PendingFirstFrames:
    """Of one step's first frames."""

    def __init__(
        self,
        staging: _FirstFrameStaging,
        wanted: Sequence[tuple[int, int]],
        free: queue.SimpleQueue[_FirstFrameStaging],
    ) -> None:
        self._staging, self._slots, self._free = staging, [slot for slot, _ in wanted], free
        self._decoded: list[tuple[int, int, int]] = []

    def mark(self, records: NDArray[np.int32]) -> None:
        """Say in the step's records which of them are decoded."""
        for place, slot in enumerate(self._slots):
            for row in np.flatnonzero((records[:, 0] == slot) & (records[:, 2] == 0) & (records[:, 3] == 0)):
                records[row, 3] = RecordFlag.DECODED
                self._decoded.append((place, slot, int(records[row, 1])))

    def wait(self) -> list[bytes]:
        """Their sound, as it is sent; to be called once."""
        self._staging.done.synchronize()
        pcm = self._staging.pcm.numpy()
        messages = [pack_pcm(slot, epoch, pcm[place]) for place, slot, epoch in self._decoded]
        self._free.put(self._staging)
        return messages


class FirstFrameDecoder:
    """Begins streams in slots of the codec's `worker`. Belongs to the thread that runs the steps."""

    def __init__(self, worker: GpuBatchDecoder, max_rows: int, groups: int) -> None:
        """Captures its graphs, for steps of up to `max_rows` rows."""
        self._worker, self._groups, self._span = worker, groups, triton.next_power_of_2(max_rows)
        device, samples = worker.decoder.device, worker.decoder.frame_samples
        # Ahead of what others hear go on: of these nobody has heard anything yet.
        self._stream = new_stream(priority=-2)
        self._captured = {size: self._capture(size) for size in SIZES}
        self._free: queue.SimpleQueue[_FirstFrameStaging] = queue.SimpleQueue()
        for _ in range(UNDER_WAY):
            self._free.put(_FirstFrameStaging(groups, samples, device))
        self._expected: Sequence[tuple[int, int]] = ()
        # Compiled now, and not while somebody waits.
        self.expect([(_NOT_WANTED, worker.decoder.slots)])
        nothing = self.launch(torch.zeros(1, HEADER + groups, dtype=torch.int32, device=device))
        assert nothing is not None
        nothing.wait()

    def _capture(self, size: int) -> _FirstFrameGraph:
        decoder = self._worker.decoder
        given = torch.zeros(2 + self._groups, size, dtype=torch.int64, device=decoder.device)
        given[0], given[1] = decoder.slots, 1
        graph, pcm = capture(lambda: decoder.decode(given[2:].t()[:, None], given[0], given[1]), self._stream)
        return _FirstFrameGraph(graph, given, pcm)

    def expect(self, begun: Sequence[tuple[int, int]]) -> None:
        """Whose first frame the next step makes: slots of the talker's and of the codec's."""
        self._expected = begun[: SIZES[-1]]

    def launch(self, records: Tensor) -> PendingFirstFrames | None:
        """Decode the first frames among `records`, int32 [n, HEADER + groups], once the current stream has made them.

        None when there are none, or too many under way.
        """
        wanted, self._expected = self._expected, ()
        if not wanted or self._free.empty():
            return None
        staging, size = self._free.get(), next(size for size in SIZES if size >= len(wanted))
        captured = self._captured[size]
        numbers = staging.wanted.numpy()
        numbers[:] = _NOT_WANTED
        numbers[:, : len(wanted)] = np.array(wanted).T
        # Here, since the next step's records take the place of these.
        find_first_frames[(size,)](
            records, staging.wanted, staging.given, len(records), SIZES[-1], self._worker.decoder.slots,
            GROUPS=self._groups, HEADER=HEADER, SPAN=self._span,
        )  # fmt: skip  # one argument list
        staging.found.record()
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(staging.found)
            captured.given.copy_(staging.given[:, :size])
            captured.graph.replay()
            staging.pcm[:size].copy_(captured.pcm, non_blocking=True)
            staging.done.record()
        self._worker.first_frame_event = staging.done
        return PendingFirstFrames(staging, wanted, self._free)
