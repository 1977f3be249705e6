"""A step's input and its end on a GPU: what `InputEmbedding` and `FrameStep` compute, in a kernel or two each."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

from ..checkpoint import TalkerCheckpoint
from .embedding import InputEmbedding
from .frames import HEADER
from .gpu_rows import FIELDS, OPTIONS, draw_first, embed, keep_frame, look
from .predictor import Predictor
from .row_names import CHANNELS
from .sampling import Candidates
from .step import MIN_FRAMES, FrameStep
from .tables import Field, Option

_SPAN = 512
"""Channels that a program of `embed` sums."""
_DRAW_WARPS = 8


@dataclass(frozen=True, slots=True)
class Copies:
    """The tables' rows of a step's generations, as it found them at its beginning; by slot, one row nobody's."""

    control: Tensor
    options: Tensor

    @classmethod
    def of(cls, slots: int, device: torch.device) -> Copies:
        return cls(
            torch.zeros(slots + 1, FIELDS.value, dtype=torch.int64, device=device),
            torch.zeros(slots + 1, OPTIONS.value, dtype=torch.float32, device=device),
        )


class GpuInput:
    """`InputEmbedding` in two kernels. The tables must have been mapped (`gpu_tables.map_tables`)."""

    def __init__(self, plain: InputEmbedding, copies: Copies) -> None:
        self._plain, self._copies = plain, copies
        self._groups = plain.codes.shape[2]
        self._columns = triton.next_power_of_2(self._groups + 2)

    def __call__(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Returns [n, talker hidden]; `ids`: vLLM's tokens, int [n]; `positions`: int64 [n]."""
        plain, groups, columns = self._plain, self._groups, self._columns
        entries = torch.empty(len(ids), columns, dtype=torch.int32, device=ids.device)
        look[(len(ids),)](
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
        self, plain: FrameStep, predictor: Predictor, checkpoint: TalkerCheckpoint, copies: Copies, slots: int
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

        `states`: [n, hidden + CHANNELS], as of `name_rows`. Nothing in it waits.
        """
        count, vocab, groups = len(states), self._vocab, self._groups
        hidden = states[:, :-CHANNELS]
        logits = hidden @ self._head.t()
        first, keep, tokens, limit = self._owner.new_empty(4, count).unbind(0)
        heat, top_p = self._copies.options.new_empty(2, count).unbind(0)
        noise = self._copies.options.new_empty(count, groups - 1)
        records = torch.empty(count, HEADER + groups, dtype=torch.int32, device=states.device)
        draw_first[(count,)](
            states, logits, self._copies.control, self._copies.options, self._seen, self._owner, self._frames,
            first, keep, tokens, records, heat, limit, top_p, noise,
            self._slots, hidden.shape[1], vocab, len(self._head), MIN_FRAMES,
            NAMES=CHANNELS, GROUPS=groups, HEADER=HEADER, SPAN=triton.next_power_of_2(vocab), num_warps=_DRAW_WARPS,
        )  # fmt: skip  # one argument list
        # The noise of greedy rows is zero already.
        candidates = Candidates(
            heat[:, None], torch.zeros_like(first, dtype=torch.bool), limit[:, None], top_p[:, None], vocab - 1
        )
        rest = self._predictor(hidden, first, candidates, noise)
        keep_frame[(count,)](
            rest, first, keep, records, self._codes, self._codes.shape[1], GROUPS=groups, HEADER=HEADER, num_warps=1
        )
        return tokens[:, None], records
