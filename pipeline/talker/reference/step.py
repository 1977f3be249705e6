"""The end of a talker step: from hidden states to frames, stored and reported."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch
from torch import Tensor

from ...checkpoint import TalkerCheckpoint
from ...ipc.records import PADDING_ROW, RecordFlag
from ...ipc.slot_tables import Field, Option, SlotTables
from .predictor import Predictor
from .sampling import Candidates, penalise, uniform
from .slot_reader import any_of, look_up

log = logging.getLogger(__name__)

MIN_FRAMES = 2
"""No utterance is shorter (section B.5)."""


class FrameStep:
    """Samples codebook 0, completes the frame and keeps the per-slot state that generation rules need.

    Deviation from the reference, for speech whose text is still being written: end of speech cannot be drawn before
    end-of-text was read (section B.8), unless the slot says `Field.EARLY_END`.
    """

    def __init__(
        self,
        head: Tensor,
        predictor: Predictor,
        checkpoint: TalkerCheckpoint,
        tables: SlotTables,
        codes: Tensor,
        report: Callable[[bytes], object],
    ) -> None:
        # Suppressed ids (section B.5, rule 3) are not computed at all: codebook 0 and end of speech remain.
        self._end = checkpoint.codebook
        self.head = torch.cat([head[: self._end], head[checkpoint.codec_ids.eos][None]]).contiguous()
        self._groups = checkpoint.groups
        self._predictor = predictor
        self.codes = codes
        self._scratch = tables.shape.rows
        self._end_token = tables.shape.end_token
        self._control = torch.from_numpy(tables.control)
        self._options = torch.from_numpy(tables.options)
        slots = tables.shape.rows + 1
        self._seen = torch.zeros(slots, self._end + 1, dtype=torch.bool, device=head.device)
        self._owner = torch.zeros(slots, dtype=torch.int64, device=head.device)
        self._frames = torch.zeros(slots, dtype=torch.int64, device=head.device)
        self._report = report

    def __call__(self, hidden: Tensor, slots: Tensor, positions: Tensor) -> Tensor:
        """Make the next frame of each row's generation, and report it; returns as `make` does."""
        tokens, records = self.make(hidden, slots, positions)
        live = records[records[:, 0] != PADDING_ROW]
        if len(live):
            self._report(live.cpu().numpy().tobytes())
        return tokens

    def make(self, hidden: Tensor, slots: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Make the next frame of each row's generation: vLLM's next token of each row, int64 [n], and the records.

        `hidden`: [n, talker hidden]; `slots`, `positions`: int64 [n]. Rows that are not at their next frame (a chunk
        of a recomputed prefill, vLLM's warm-up, the step after the last that is under way already) change nothing;
        their records, int32 [n, HEADER + groups], have PADDING_ROW for a slot. On a GPU nothing in it waits.
        """
        control, options = look_up(self._control, slots), look_up(self._options, slots)
        frame = positions - control[:, Field.PREFIX_LEN]
        epoch = control[:, Field.EPOCH]
        made = torch.where(self._owner[slots] == epoch, self._frames[slots], 0)
        live = (epoch > 0) & (frame == made)
        rows = torch.where(live, slots, self._scratch)

        first, codes, failed = self._draw(hidden, rows, frame, control, options)
        ended = (first == self._end) | failed
        capped = (control[:, Field.CLOSED] == 1) & (frame >= control[:, Field.FRAME_CAP]) & ~ended
        ended |= capped
        keep = torch.where(ended, self._scratch, rows)

        self.codes[keep, frame.clamp(0, self.codes.shape[1] - 1)] = codes.int()
        self._seen.index_put_((keep, first), torch.ones_like(keep, dtype=torch.bool))
        self._owner[rows] = epoch
        self._frames[rows] = frame + 1
        header = torch.stack(
            [torch.where(live, slots, PADDING_ROW), epoch, frame, self._flags(ended, capped, failed)], 1
        )
        return torch.where(ended & live, self._end_token, slots), torch.cat([header, codes], 1).int()

    def _draw(
        self, hidden: Tensor, rows: Tensor, frame: Tensor, control: Tensor, options: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Codebook 0 or end of speech, int64 [n], the frame's codes, int64 [n, groups], and which rows went wrong.

        A row that makes the step raise goes wrong alone: the others are drawn again without it. On a GPU nothing that a
        row holds can make it raise.
        """
        try:
            first, noise, failed = self._first_codes(hidden, rows, frame, control, options)
            codes = self._complete(hidden, first.clamp(max=self._end - 1), control, options, noise)
        except Exception:
            if rows.is_cuda:
                raise
            if len(rows) > 1:
                single = (slice(row, row + 1) for row in range(len(rows)))
                alone = [self._draw(hidden[n], rows[n], frame[n], control[n], options[n]) for n in single]
                first, codes, failed = (torch.cat(part) for part in zip(*alone, strict=True))
            else:
                log.exception("a generation's step failed")
                first, failed = rows.new_zeros(1), torch.ones_like(rows, dtype=torch.bool)
                codes = rows.new_zeros(1, self._groups)
        return first, codes, failed

    def _first_codes(
        self, hidden: Tensor, rows: Tensor, frame: Tensor, control: Tensor, options: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Codebook 0 by the rules of section B.5, the frame's noise, float32 [n, groups], and rows of no numbers."""
        logits = (hidden @ self.head.t()).float()
        failed = ~torch.isfinite(logits).all(1)
        if any_of(frame == 0):
            self._seen[rows] &= (frame != 0)[:, None]
        penalty = options[:, Option.REPETITION_PENALTY, None]
        if any_of(penalty != 1):
            logits = penalise(logits, self._seen[rows], penalty)
        token = frame + control[:, Field.TEXT_LEAD]
        text_read = (control[:, Field.CLOSED] == 1) & (token >= control[:, Field.TEXT_LEN])
        may_end = (text_read | (control[:, Field.EARLY_END] == 1)) & (frame >= MIN_FRAMES)
        logits[:, self._end].masked_fill_(~may_end, -torch.inf)
        candidates = Candidates.of(
            options[:, Option.TEMPERATURE], control[:, Field.TOP_K], options[:, Option.TOP_P], self._end + 1
        )
        noise = uniform(control[:, Field.SEED], frame, self._groups)
        return candidates.draw(logits, candidates.noise(noise[:, :1])), noise, failed

    def _complete(self, hidden: Tensor, first: Tensor, control: Tensor, options: Tensor, noise: Tensor) -> Tensor:
        candidates = Candidates.of(
            options[:, Option.PREDICTOR_TEMPERATURE],
            control[:, Field.PREDICTOR_TOP_K],
            options[:, Option.PREDICTOR_TOP_P],
            self._end,
        )
        rest = self._predictor(hidden, first, candidates, candidates.noise(noise[:, 1:]))
        return torch.cat([first[:, None], rest], 1)

    def _flags(self, ended: Tensor, capped: Tensor, failed: Tensor) -> Tensor:
        return ended * int(RecordFlag.END) + capped * int(RecordFlag.CAPPED) + failed * int(RecordFlag.FAILED)
