"""The end of a talker step on a GPU: head, sampling and code predictor as one CUDA graph for each size of batch.

vLLM's own graphs end at the hidden states. Launching what follows kernel by kernel would take several times as long as
running it, so it is captured when the model is loaded, and a step replays the smallest graph that its rows fit in.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ...codecs.neural.gpu_graph import capture, new_event
from .buckets import buckets_for
from .frames import NOBODY
from .gpu_first_sound import FirstSounds, SoundsUnderWay

IN_FLIGHT = 8
"""Steps whose frames may be on their way to the host; vLLM itself never has more than a few under way."""
SEND_TIMEOUT_S = 60.0


class FrameSender:
    """Takes records from the device to the gateway without a wait in the step: a copy, an event, and a thread.

    `send` is called from the thread only.
    """

    def __init__(
        self, max_rows: int, width: int, send: Callable[[bytes], object], first: FirstSounds | None = None
    ) -> None:
        self._send, self._first = send, first
        self._free: queue.Queue[tuple[Tensor, torch.cuda.Event]] = queue.Queue()
        self._due: queue.SimpleQueue[tuple[Tensor, torch.cuda.Event, int, SoundsUnderWay | None]] = queue.SimpleQueue()
        for _ in range(IN_FLIGHT):
            buffer = torch.empty(max_rows, width, dtype=torch.int32, pin_memory=True)
            self._free.put((buffer, new_event()))
        threading.Thread(target=self._forward, name="frames", daemon=True).start()

    def put(self, records: Tensor) -> None:
        """Send `records`, int32 [n, width], once the current stream has come so far."""
        buffer, event = self._free.get(timeout=SEND_TIMEOUT_S)
        buffer[: len(records)].copy_(records, non_blocking=True)
        event.record()
        sounds = self._first.launch(records) if self._first is not None else None
        self._due.put((buffer, event, len(records), sounds))

    def _forward(self) -> None:
        while True:
            buffer, event, rows, sounds = self._due.get()
            event.synchronize()
            records = buffer[:rows].numpy()
            if sounds is not None:
                sounds.mark(records)
            message = records[records[:, 0] != NOBODY].tobytes()
            self._free.put((buffer, event))
            if message:
                self._send(message)
            if sounds is not None:
                # Before frames that go on from there, so that nobody decodes those first.
                for sound in sounds.wait():
                    self._send(sound)


@dataclass(frozen=True, slots=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    rows: Tensor
    tokens: Tensor
    records: Tensor


class GraphedStep:
    """`make` as graphs: from the hidden states that `VoxgateTalker.forward` returns to what vLLM is told, and records.

    `idle`: a row of nobody's. Not thread-safe.
    """

    def __init__(
        self,
        make: Callable[[Tensor], tuple[Tensor, Tensor]],
        idle: Tensor,
        max_rows: int,
        send: Callable[[Tensor], object],
    ) -> None:
        self._make, self._idle, self._send = make, idle, send
        self._captured: dict[int, _Captured] = {}
        self._sizes = buckets_for(max_rows)
        self._size_for = [next(size for size in self._sizes if size >= rows) for rows in range(1, max_rows + 1)]

    def capture(self) -> None:
        """Capture every size; the first time compiles the kernels, which takes a while."""
        pool = None
        for size in reversed(self._sizes):
            rows = self._idle.repeat(size, 1)
            graph, (tokens, records) = capture(partial(self._make, rows), pool=pool)
            pool = pool or graph.pool()
            self._captured[size] = _Captured(graph, rows, tokens, records)

    def __call__(self, states: Tensor) -> Tensor:
        """Make and send the frames of `states`, [n, hidden + CHANNELS]; returns what vLLM is told of each.

        What it returns is overwritten by the next call.
        """
        count = len(states)
        if count > len(self._size_for):
            # Only vLLM's warm-up has more rows than there are generations.
            tokens = self._captured[self._sizes[0]].tokens
            return tokens.new_zeros(count, *tokens.shape[1:])
        captured = self._captured[self._size_for[count - 1]]
        captured.rows[:count].copy_(states)
        if count < len(captured.rows):
            # Or rows of an earlier step would run once more.
            captured.rows[count:].copy_(self._idle)
        captured.graph.replay()
        self._send(captured.records[:count])
        return captured.tokens[:count]
