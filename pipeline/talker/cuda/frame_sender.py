"""Passes a step's records to the gateway without blocking the step: an asynchronous copy, an event, and a thread."""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...cuda.graphs import new_event
from ...errors import EngineError
from ...ipc.records import PADDING_ROW

if TYPE_CHECKING:
    # It imports Triton, which only builds for a GPU have.
    from .first_frame import FirstFrameDecoder, PendingFirstFrames

log = logging.getLogger(__name__)

IN_FLIGHT = 8
"""Steps whose records may be on their way to the host; vLLM runs at most a few steps ahead."""
SEND_TIMEOUT_S = 60.0
"""Longest wait for a free buffer, after which the step fails: far above any step."""


@dataclass(frozen=True, slots=True)
class _Buffer:
    """Pinned memory for the records of a step, int32 [rows, width], and two events: they are there."""

    records: Tensor
    copied: torch.cuda.Event
    copied_soon: torch.cuda.Event
    """Waited for by spinning, in a step that begins an utterance: its client waits for what follows."""


class FrameSender:
    """Copies records to pinned memory and sends them from a thread of its own."""

    def __init__(
        self,
        max_rows: int,
        width: int,
        send: Callable[[bytes], object],
        first_frames: FirstFrameDecoder | None = None,
        completed: NDArray[np.float64] | None = None,
        end_process: Callable[[int], object] = os._exit,
    ) -> None:
        """`width`: numbers of a record; `send` is called from the thread; `first_frames` decodes first frames.

        `completed`, of `SlotTables`, gets the number of a step that is over, and when that was, by the monotonic clock.
        `end_process` is called with status 1 when frames cannot be sent.
        """
        self.width = width
        self._send, self._first_frames, self._end_process = send, first_frames, end_process
        self._completed = np.zeros(2) if completed is None else completed
        self._step_number = 0
        self._free: queue.Queue[_Buffer] = queue.Queue()
        self._due: queue.SimpleQueue[tuple[_Buffer, int, int, PendingFirstFrames | None]] = queue.SimpleQueue()
        for _ in range(IN_FLIGHT):
            records = torch.empty(max_rows, width, dtype=torch.int32, pin_memory=True)
            self._free.put(_Buffer(records, new_event(), new_event(spin=True)))
        self._thread = threading.Thread(target=self._run, name="frame-sender", daemon=True)
        self._thread.start()

    def begin_step(self, number: int) -> None:
        """The records that follow are of the step with this number."""
        self._step_number = number

    def put(self, records: Tensor) -> None:
        """Send `records`, int32 [n, width], once the current stream has reached this point.

        Raises EngineError when no buffer becomes free in time.
        """
        try:
            buffer = self._free.get(timeout=SEND_TIMEOUT_S)
        except queue.Empty as error:
            raise EngineError(f"no frame was sent for {SEND_TIMEOUT_S:.0f} s") from error
        buffer.records[: len(records)].copy_(records, non_blocking=True)
        buffer.copied.record()
        buffer.copied_soon.record()
        pending = self._first_frames.launch(records) if self._first_frames is not None else None
        self._due.put((buffer, len(records), self._step_number, pending))

    def _run(self) -> None:
        try:
            while True:
                self._send_next()
        except Exception:
            # The engine would still answer heartbeats, and generations wait for frames that nothing sends.
            log.exception("ending the engine's process: frames cannot be sent")
            self._end_process(1)

    def _send_next(self) -> None:
        buffer, rows, step_number, pending = self._due.get()
        (buffer.copied if pending is None else buffer.copied_soon).synchronize()
        # The time first: the reader looks for the number.
        self._completed[1] = time.monotonic()
        self._completed[0] = step_number
        records = buffer.records[:rows].numpy()
        if pending is not None:
            pending.mark(records)
        message = records[records[:, 0] != PADDING_ROW].tobytes()
        self._free.put(buffer)
        if message:
            self._send(message)
        if pending is not None:
            # Before the records of the next step, which continue these streams.
            for pcm_message in pending.wait():
                self._send(pcm_message)
