"""A step's input and its end on a GPU: `InputEmbedding` and `FrameStep` in few kernels, the end as CUDA graphs.

vLLM's graphs end at the hidden states. Launching head, sampling and code predictor kernel by kernel would take several
times as long as running them, so they are captured for every batch size when the model is loaded, and a step replays
the smallest graph that its rows fit in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

from ...checkpoint.checkpoint import TalkerCheckpoint
from ...cuda.graph_sizes import graph_sizes_for
from ...cuda.graphs import GraphBuckets, new_memory_pool
from ...ipc.records import HEADER
from ...ipc.slot_tables import CONTROL_COLUMNS, OPTION_COLUMNS
from ..reference.embedding import InputEmbedding
from ..reference.predictor import Predictor
from ..reference.row_tags import TAG_CHANNELS
from ..reference.sampling import Candidates
from ..reference.slot_reader import TableViews
from ..reference.step import MIN_FRAMES, FrameStep
from .step_kernels import draw_first, embed, gather_inputs, store_frame

_EMBED_SPAN = 512
"""Channels that a program of `embed` sums."""
_DRAW_WARPS = 8
"""Warps of a program of `draw_first`."""


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """Control and options of the slots of a step as they were when it started, by slot; the last row is for padding.

    `control`: int64 [slots + 1, CONTROL_COLUMNS]; `options`: float32 [slots + 1, OPTION_COLUMNS].
    """

    control: Tensor
    options: Tensor

    @classmethod
    def of(cls, slots: int, device: torch.device) -> TableSnapshot:
        return cls(
            torch.zeros(slots + 1, CONTROL_COLUMNS, dtype=torch.int64, device=device),
            torch.zeros(slots + 1, OPTION_COLUMNS, dtype=torch.float32, device=device),
        )


class GpuInputEmbedding:
    """`InputEmbedding` in two kernels, which also fill the snapshot that `GpuFrameStep` reads."""

    def __init__(self, reference: InputEmbedding, tables: TableViews, snapshot: TableSnapshot) -> None:
        """`tables` must have been mapped (`mapped_tables.map_tables`); weights are those of `reference`."""
        self._reference, self._tables, self._snapshot = reference, tables, snapshot
        self._groups = reference.history.codes.shape[2]
        self._columns = triton.next_power_of_2(self._groups + 2)

    def __call__(self, ids: Tensor, positions: Tensor) -> Tensor:
        """The input of each row, [n, talker hidden]. `ids`: vLLM's tokens, int [n]; `positions`: int64 [n]."""
        reference, tables, groups, columns = self._reference, self._tables, self._groups, self._columns
        history = reference.history
        entries = torch.empty(len(ids), columns, dtype=torch.int32, device=ids.device)
        gather_inputs[(len(ids),)](
            ids, positions, tables.control, tables.options, tables.text, tables.prefix, history.codes,
            history.sampled, reference.group_starts, self._snapshot.control, self._snapshot.options, entries,
            len(tables.control), tables.text.shape[1], tables.prefix.shape[1], history.codes.shape[1],
            history.sampled.shape[1], reference.no_entry, reference.ids.pad, reference.ids.eos,
            GROUPS=groups, COLUMNS=columns, num_warps=1,
        )  # fmt: skip  # one argument list
        hidden = reference.codec.shape[1]
        out = reference.codec.new_empty(len(ids), hidden)
        embed[(len(ids), triton.cdiv(hidden, _EMBED_SPAN))](
            entries, reference.text, reference.codec, tables.speaker, out, hidden,
            GROUPS=groups, COLUMNS=columns, SPAN=_EMBED_SPAN,
        )  # fmt: skip  # one argument list
        return out


class GpuFrameStep:
    """`FrameStep.make` in two kernels, a product and the predictor."""

    def __init__(
        self,
        reference: FrameStep,
        predictor: Predictor,
        checkpoint: TalkerCheckpoint,
        snapshot: TableSnapshot,
        slots: int,
    ) -> None:
        """Takes head and history from `reference`; `slots`: rows of the tables, without the padding row."""
        self._predictor, self._snapshot, self._slots = predictor, snapshot, slots
        self._history, self._groups, self._vocab = reference.history, checkpoint.groups, len(reference.head)
        # Padded so that every line of logits starts at an aligned address.
        self._head = F.pad(reference.head, (0, 0, 0, -self._vocab % 8))
        device = reference.head.device
        self._owner = torch.zeros(slots + 1, dtype=torch.int64, device=device)
        self._frames = torch.zeros_like(self._owner)

    def make(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """vLLM's next token of each row, int64 [n, 1], and the records, as of `FrameStep.make`.

        `states`: [n, hidden + TAG_CHANNELS], as of `append_row_tags`. Nothing waits for the device.
        """
        count, vocab, groups = len(states), self._vocab, self._groups
        hidden = states[:, :-TAG_CHANNELS]
        logits = hidden @ self._head.t()
        first, stored_rows, tokens, top_k = self._owner.new_empty(4, count).unbind(0)
        inv_temperature, top_p = self._snapshot.options.new_empty(2, count).unbind(0)
        noise = self._snapshot.options.new_empty(count, groups - 1)
        records = torch.empty(count, HEADER + groups, dtype=torch.int32, device=states.device)
        draw_first[(count,)](
            states, logits, self._snapshot.control, self._snapshot.options, self._history.sampled, self._owner,
            self._frames, first, stored_rows, tokens, records, inv_temperature, top_k, top_p, noise,
            self._slots, hidden.shape[1], vocab, len(self._head), MIN_FRAMES,
            TAGS=TAG_CHANNELS, GROUPS=groups, HEADER=HEADER, SPAN=triton.next_power_of_2(vocab), num_warps=_DRAW_WARPS,
        )  # fmt: skip  # one argument list
        # `greedy` is unused: the kernel has written noise of zero for greedy rows.
        greedy = torch.zeros_like(first, dtype=torch.bool)
        candidates = Candidates(inv_temperature[:, None], greedy, top_k[:, None], top_p[:, None], vocab - 1)
        rest = self._predictor(hidden, first, candidates, noise)
        store_frame[(count,)](
            rest, first, stored_rows, records, self._history.codes, self._history.codes.shape[1],
            GROUPS=groups, HEADER=HEADER, num_warps=1,
        )  # fmt: skip  # one argument list
        return tokens[:, None], records


class GraphedStep:
    """The end of a step as CUDA graphs: from the states that `VoxgateTalker.forward` returns to tokens and records.

    Not thread-safe.
    """

    def __init__(
        self,
        make: Callable[[Tensor], tuple[Tensor, Tensor]],
        padding_row: Tensor,
        max_rows: int,
        send: Callable[[Tensor], object],
    ) -> None:
        """`make`: as `GpuFrameStep.make`; `padding_row`: a row of the padding slot, [1, hidden + TAG_CHANNELS]."""
        self._make, self._padding_row, self._max_rows, self._send = make, padding_row, max_rows, send
        self._graphs: GraphBuckets[Tensor, tuple[Tensor, Tensor]] | None = None

    def capture(self) -> None:
        """Capture a graph for every batch size; compiles the kernels where they are not cached."""
        self._graphs = GraphBuckets.capture(
            self._make,
            lambda size: self._padding_row.repeat(size, 1),
            graph_sizes_for(self._max_rows),
            pool=new_memory_pool(),
        )

    def __call__(self, states: Tensor) -> Tensor:
        """Make and send the frames of `states`, [n, hidden + TAG_CHANNELS]; returns vLLM's next tokens.

        The next call overwrites the result.
        """
        assert self._graphs is not None, "capture() comes before the first step"
        count = len(states)
        if count > self._max_rows:
            # Only vLLM's warm-up has more rows than there are generations.
            _, graph = self._graphs.smallest(1)
            tokens, _ = graph.outputs
            return tokens.new_zeros(count, *tokens.shape[1:])
        size, graph = self._graphs.smallest(count)
        graph.inputs[:count].copy_(states)
        if count < size:
            # Without this, rows of an earlier step would run again.
            graph.inputs[count:].copy_(self._padding_row)
        tokens, records = graph.replay()
        self._send(records[:count])
        return tokens[:count]
