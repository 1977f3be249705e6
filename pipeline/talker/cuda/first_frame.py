"""Decodes an utterance's first frame on the device, right behind the step that makes it.

Through the codec's worker the frame would wait for several processes to wake up, and the device for the frame. Here a
graph on a stream of its own decodes it, and only PCM travels. Later frames go through the codec's worker
(`pipeline/codec/`), which continues the stream in the same slot.
"""

from __future__ import annotations

import math
import queue
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
import triton
from numpy.typing import NDArray
from torch import Tensor

from ...cuda.graphs import GraphBuckets, new_event, new_stream
from ...ipc.records import HEADER, RecordFlag, pack_pcm
from .step_kernels import find_first_frames

if TYPE_CHECKING:
    from ...codec.gpu_worker import GpuBatchDecoder

SIZES = (1, 2, 4)
"""Batch sizes of the graphs; further first frames of the same step go through the codec's worker."""
IN_FLIGHT = 4
"""Steps whose first frames may be decoded at the same time."""
STREAM_PRIORITY = -2
"""Above the codec's worker (-1) and the talker (0): these utterances have no audio to play yet."""
_NO_SLOT = -2
"""In place of a slot that no record has."""


class FirstFrameDecoder:
    """Starts streams in slots of the codec's worker. Used by the thread that runs the steps."""

    def __init__(self, worker: GpuBatchDecoder, max_rows: int, groups: int) -> None:
        """Captures the graphs, for steps of up to `max_rows` rows."""
        self._worker, self._groups, self._span = worker, groups, triton.next_power_of_2(max_rows)
        decoder = worker.decoder
        self._stream = new_stream(priority=STREAM_PRIORITY)
        self._graphs = GraphBuckets.capture(
            lambda inputs: decoder.decode(inputs[2:].t()[:, None], inputs[0], inputs[1]),
            self._padding_inputs,
            SIZES,
            stream=self._stream,
        )
        self._free: queue.SimpleQueue[_FirstFrameStaging] = queue.SimpleQueue()
        for _ in range(IN_FLIGHT):
            self._free.put(_FirstFrameStaging(groups, decoder.frame_samples, decoder.device))
        self._expected: Sequence[tuple[int, int, bool]] = ()
        self._announced_s = -math.inf
        """When those expected were announced to the codec's worker."""
        # Compiles find_first_frames now instead of in the first step.
        self.expect([(_NO_SLOT, decoder.slots, True)])
        nothing = self.launch(torch.zeros(1, HEADER + groups, dtype=torch.int32, device=decoder.device))
        assert nothing is not None
        nothing.wait()

    def _padding_inputs(self, size: int) -> Tensor:
        """int64 [2 + groups, size]: slots, fresh flags and codes of streams in the padding slot."""
        decoder = self._worker.decoder
        inputs = torch.zeros(2 + self._groups, size, dtype=torch.int64, device=decoder.device)
        inputs[0], inputs[1] = decoder.slots, 1
        return inputs

    def expect(self, starting: Sequence[tuple[int, int, bool]]) -> None:
        """Announce the utterances whose first frame the next step makes: (talker slot, codec slot, fresh stream).

        A stream that is not fresh continues from the state that the codec's worker has restored in its slot.
        """
        self._expected = starting[: SIZES[-1]]
        if starting:
            self._announced_s = time.monotonic()
            self._worker.beginnings.begin(self._announced_s)

    def launch(self, records: Tensor) -> PendingFirstFrames | None:
        """Decode the expected first frames among `records`, int32 [n, HEADER + groups], behind the current stream.

        None when none is expected, or when `IN_FLIGHT` steps are still being decoded.
        """
        expected, self._expected = self._expected, ()
        if not expected:
            return None
        end = partial(self._worker.beginnings.end, self._announced_s)
        if self._free.empty():
            end()
            return None
        staging = self._free.get()
        size, graph = self._graphs.smallest(len(expected))
        wanted = staging.wanted.numpy()
        wanted[:] = _NO_SLOT
        wanted[:, : len(expected)] = np.array(expected).T
        # On the current stream, because the next step overwrites the records.
        find_first_frames[(size,)](
            records, staging.wanted, staging.inputs, len(records), SIZES[-1], self._worker.decoder.slots,
            GROUPS=self._groups, HEADER=HEADER, SPAN=self._span,
        )  # fmt: skip  # one argument list
        staging.found.record()
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(staging.found)
            self._stream.wait_event(self._worker.restored_event)
            graph.inputs.copy_(staging.inputs[:, :size])
            pcm = graph.replay()
            staging.pcm[:size].copy_(pcm, non_blocking=True)
            staging.decoded.record()
        self._worker.first_frame_event = staging.decoded

        def finish() -> None:
            self._free.put(staging)
            end()

        return PendingFirstFrames(staging, [slot for slot, *_ in expected], finish)


class PendingFirstFrames:
    """The first frames of one step while the device decodes them."""

    def __init__(self, staging: _FirstFrameStaging, slots: Sequence[int], finish: Callable[[], object]) -> None:
        """`slots`: those expected; `finish` is called when the PCM is taken out of `staging`."""
        self._staging, self._slots, self._finish = staging, slots, finish
        self._decoded: list[tuple[int, int, int]] = []

    def mark(self, records: NDArray[np.int32]) -> None:
        """Flag the first frames that are decoded in the step's records, int32 [n, HEADER + groups]."""
        for place, slot in enumerate(self._slots):
            for row in np.flatnonzero((records[:, 0] == slot) & (records[:, 2] == 0) & (records[:, 3] == 0)):
                records[row, 3] = RecordFlag.DECODED
                self._decoded.append((place, slot, int(records[row, 1])))

    def wait(self) -> list[bytes]:
        """Wait for the PCM of the frames marked; returns one message for each. To be called once."""
        self._staging.decoded.synchronize()
        pcm = self._staging.pcm.numpy()
        messages = [pack_pcm(slot, epoch, pcm[place]) for place, slot, epoch in self._decoded]
        self._finish()
        return messages


class _FirstFrameStaging:
    """Buffers for the first frames of one step.

    `wanted`: int64 [3, SIZES[-1]], pinned, as of `find_first_frames`; `inputs`: int64 [2 + groups,
    SIZES[-1]], on the device; `pcm`: float32 [SIZES[-1], samples], pinned.
    """

    def __init__(self, groups: int, samples: int, device: torch.device) -> None:
        columns = SIZES[-1]
        self.wanted = torch.empty(3, columns, dtype=torch.int64, pin_memory=True)
        self.inputs = torch.empty(2 + groups, columns, dtype=torch.int64, device=device)
        self.pcm = torch.empty(columns, samples, dtype=torch.float32, pin_memory=True)
        self.found, self.decoded = new_event(), new_event(spin=True)
