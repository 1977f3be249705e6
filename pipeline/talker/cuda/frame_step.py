"""A step's input and its end on a GPU: what `InputEmbedding` and `FrameStep` compute, in a kernel or two each."""
# TODO-DOC The end of a talker step on a GPU: head, sampling and code predictor as one CUDA graph for each size of
# TODO-DOC batch. vLLM's own graphs end at the hidden states. Launching what follows kernel by kernel would take
# TODO-DOC several times as long as running it, so it is captured when the model is loaded, and a step replays the
# TODO-DOC smallest graph that its rows fit in.

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

from ...checkpoint import TalkerCheckpoint
from ...cuda.graphs import capture, new_event
from ...ipc.records import HEADER, PADDING_ROW
from ...ipc.slot_tables import Field, Option
from ..reference.embedding import InputEmbedding
from ..reference.predictor import Predictor
from ..reference.row_tags import TAG_CHANNELS
from ..reference.sampling import Candidates
from ..reference.step import MIN_FRAMES, FrameStep
from .first_frame import FirstFrameDecoder, PendingFirstFrames
from .graph_sizes import graph_sizes_for
from .step_kernels import FIELDS, OPTIONS, draw_first, embed, gather_inputs, store_frame

_SPAN = 512
"""Channels that a program of `embed` sums."""
_DRAW_WARPS = 8


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """The tables' rows of a step's generations, as it found them at its beginning; by slot, one row nobody's."""

    control: Tensor
    options: Tensor

    @classmethod
    def of(cls, slots: int, device: torch.device) -> TableSnapshot:
        return cls(
            torch.zeros(slots + 1, FIELDS.value, dtype=torch.int64, device=device),
            torch.zeros(slots + 1, OPTIONS.value, dtype=torch.float32, device=device),
        )


class GpuInputEmbedding:
    """`InputEmbedding` in two kernels. The tables must have been mapped (`gpu_tables.map_tables`)."""

    def __init__(self, plain: InputEmbedding, copies: TableSnapshot) -> None:
        self._plain, self._copies = plain, copies
        self._groups = plain.codes.shape[2]
        self._columns = triton.next_power_of_2(self._groups + 2)

    def __call__(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Returns [n, talker hidden]; `ids`: vLLM's tokens, int [n]; `positions`: int64 [n]."""
        plain, groups, columns = self._plain, self._groups, self._columns
        entries = torch.empty(len(ids), columns, dtype=torch.int32, device=ids.device)
        gather_inputs[(len(ids),)](
            ids, positions, plain.control, plain.options, plain.text_ids, plain.prefix, plain.codes, plain.starts,
            self._copies.control, self._copies.options, entries,
            len(plain.control), plain.text_ids.shape[1], plain.prefix.shape[1], plain.codes.shape[1], plain.nothing,
            plain.ids.pad, plain.ids.eos,
            GROUPS=groups, COLUMNS=columns, KNOWN_FIELDS=len(Field), KNOWN_OPTIONS=len(Option), num_warps=1,
        )  # fmt: skip  # one argument list
        hidden = plain.codec.shape[1]
        out = plain.codec.new_empty(len(ids), hidden)
        embed[(len(ids), triton.cdiv(hidden, _SPAN))](
            entries, plain.text, plain.codec, plain.speaker, out, hidden, GROUPS=groups, COLUMNS=columns, SPAN=_SPAN
        )
        return out


class GpuFrameStep:
    """`FrameStep.make` in three kernels and the predictor: it takes over the plain step's weights and its tables."""

    def __init__(
        self, plain: FrameStep, predictor: Predictor, checkpoint: TalkerCheckpoint, copies: TableSnapshot, slots: int
    ) -> None:
        self._predictor, self._copies, self._slots = predictor, copies, slots
        self._codes, self._groups, self._vocab = plain.codes, checkpoint.groups, len(plain.head)
        # Lines of logits that begin where the library writes fast.
        self._head = F.pad(plain.head, (0, 0, 0, -self._vocab % 8))
        self._seen = torch.zeros(slots + 1, self._vocab, dtype=torch.int8, device=plain.head.device)
        self._owner = torch.zeros(slots + 1, dtype=torch.int64, device=plain.head.device)
        self._frames = torch.zeros_like(self._owner)

    def make(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """vLLM's next token of each row, int64 [n, 1], and the records, as of `FrameStep.make`.

        `states`: [n, hidden + TAG_CHANNELS], as of `append_row_tags`. Nothing in it waits.
        """
        count, vocab, groups = len(states), self._vocab, self._groups
        hidden = states[:, :-TAG_CHANNELS]
        logits = hidden @ self._head.t()
        first, keep, tokens, limit = self._owner.new_empty(4, count).unbind(0)
        inv_temperature, top_p = self._copies.options.new_empty(2, count).unbind(0)
        noise = self._copies.options.new_empty(count, groups - 1)
        records = torch.empty(count, HEADER + groups, dtype=torch.int32, device=states.device)
        draw_first[(count,)](
            states, logits, self._copies.control, self._copies.options, self._seen, self._owner, self._frames,
            first, keep, tokens, records, inv_temperature, limit, top_p, noise,
            self._slots, hidden.shape[1], vocab, len(self._head), MIN_FRAMES,
            NAMES=TAG_CHANNELS, GROUPS=groups, HEADER=HEADER, SPAN=triton.next_power_of_2(vocab), num_warps=_DRAW_WARPS,
        )  # fmt: skip  # one argument list
        # The noise of greedy rows is zero already.
        candidates = Candidates(
            inv_temperature[:, None],
            torch.zeros_like(first, dtype=torch.bool),
            limit[:, None],
            top_p[:, None],
            vocab - 1,
        )
        rest = self._predictor(hidden, first, candidates, noise)
        store_frame[(count,)](
            rest, first, keep, records, self._codes, self._codes.shape[1], GROUPS=groups, HEADER=HEADER, num_warps=1
        )
        return tokens[:, None], records


IN_FLIGHT = 8
"""Steps whose frames may be on their way to the host; vLLM itself never has more than a few under way."""
SEND_TIMEOUT_S = 60.0


class FrameSender:
    """Takes records from the device to the gateway without a wait in the step: a copy, an event, and a thread.

    `send` is called from the thread only.
    """

    def __init__(
        self, max_rows: int, width: int, send: Callable[[bytes], object], first: FirstFrameDecoder | None = None
    ) -> None:
        self._send, self._first = send, first
        self._free: queue.Queue[tuple[Tensor, torch.cuda.Event]] = queue.Queue()
        self._due: queue.SimpleQueue[tuple[Tensor, torch.cuda.Event, int, PendingFirstFrames | None]] = (
            queue.SimpleQueue()
        )
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
            message = records[records[:, 0] != PADDING_ROW].tobytes()
            self._free.put((buffer, event))
            if message:
                self._send(message)
            if sounds is not None:
                # Before frames that go on from there, so that nobody decodes those first.
                for sound in sounds.wait():
                    self._send(sound)


@dataclass(frozen=True, slots=True)
class _StepGraph:
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
        self._captured: dict[int, _StepGraph] = {}
        self._sizes = graph_sizes_for(max_rows)
        self._size_for = [next(size for size in self._sizes if size >= rows) for rows in range(1, max_rows + 1)]

    def capture(self) -> None:
        """Capture every size; the first time compiles the kernels, which takes a while."""
        pool = None
        for size in reversed(self._sizes):
            rows = self._idle.repeat(size, 1)
            graph, (tokens, records) = capture(partial(self._make, rows), pool=pool)
            pool = pool or graph.pool()
            self._captured[size] = _StepGraph(graph, rows, tokens, records)

    def __call__(self, states: Tensor) -> Tensor:
        """Make and send the frames of `states`, [n, hidden + TAG_CHANNELS]; returns what vLLM is told of each.

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
