"""The end of a talker step: from hidden states to frames that are stored and reported."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch
from torch import Tensor

from ...checkpoint.checkpoint import TalkerCheckpoint
from ...ipc.records import PADDING_ROW, RecordFlag
from ...ipc.slot_tables import Field, Option, TableShape
from .embedding import FrameHistory
from .predictor import Predictor
from .sampling import Sampler, TorchSampler, penalise
from .slot_reader import SlotReader

log = logging.getLogger(__name__)

MIN_FRAMES = 2
"""Frames before end of speech may be drawn (`docs/qwen3_tts.md`, section 6, rule 2)."""


class FrameStep:
    """Samples codebook 0, completes the frame and keeps the state by slot that the generation rules need.

    Deviation from the reference implementation, because text may still be arriving: end of speech cannot be drawn
    before end-of-text was read (`docs/qwen3_tts.md`, section 4.6), unless the slot sets `Field.EARLY_END`.
    """

    def __init__(
        self,
        head: Tensor,
        predictor: Predictor,
        checkpoint: TalkerCheckpoint,
        shape: TableShape,
        tables: SlotReader,
        history: FrameHistory,
        report: Callable[[bytes], object],
        *,
        sampler: Sampler | None = None,
        isolate_failures: bool = True,
    ) -> None:
        """`head`: the published codec head, [codec vocab, hidden]; `history`: that of `InputEmbedding`.

        `report` receives the records of a step's frames. `sampler`: `TorchSampler` by default. `isolate_failures`: when
        a batch raises, draw its rows one by one so that only the failing row ends.
        """
        # The suppressed ids (section 6, rule 3) are not computed: codebook 0 and end of speech remain.
        self._end = checkpoint.codebook
        self.head = torch.cat([head[: self._end], head[checkpoint.codec_ids.eos][None]]).contiguous()
        self.history = history
        self._groups = checkpoint.groups
        self._predictor = predictor
        self._tables = tables
        self._sampler = sampler or TorchSampler()
        self._isolate_failures = isolate_failures
        self._padding_slot, self._end_token = shape.rows, shape.end_token
        slots = shape.rows + 1
        self._owner = torch.zeros(slots, dtype=torch.int64, device=head.device)
        self._frames = torch.zeros(slots, dtype=torch.int64, device=head.device)
        self._report = report

    def __call__(self, hidden: Tensor, slots: Tensor, positions: Tensor) -> Tensor:
        """Make the next frame of each row's generation and report it; arguments and tokens as of `make`."""
        tokens, records = self.make(hidden, slots, positions)
        live = records[records[:, 0] != PADDING_ROW]
        if len(live):
            self._report(live.cpu().numpy().tobytes())
        return tokens

    def make(self, hidden: Tensor, slots: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Make the next frame of each row's generation: vLLM's next token of each row, int64 [n], and the records.

        `hidden`: [n, talker hidden]; `slots`, `positions`: int64 [n]. A row that is not at its slot's next frame (part
        of a recomputed prefill, vLLM's warm-up, a step started before the last one ended the speech) changes nothing;
        its record, int32 [n, HEADER + groups], has PADDING_ROW as slot. With tables and a sampler that do not wait for
        the device, neither does this.
        """
        control, options = self._tables.control(slots), self._tables.options(slots)
        frame = positions - control[:, Field.PREFIX_LEN]
        epoch = control[:, Field.EPOCH]
        frames_made = torch.where(self._owner[slots] == epoch, self._frames[slots], control[:, Field.PAST_FRAMES])
        live = (epoch > 0) & (frame == frames_made)
        rows = torch.where(live, slots, self._padding_slot)

        first, codes, failed = self._draw(hidden, rows, frame, control, options)
        ended = (first == self._end) | failed
        capped = (control[:, Field.CLOSED] == 1) & (frame >= control[:, Field.FRAME_CAP]) & ~ended
        ended |= capped
        stored_rows = torch.where(ended, self._padding_slot, rows)

        history = self.history
        history.codes[stored_rows, frame.clamp(0, history.codes.shape[1] - 1)] = codes.int()
        history.sampled[stored_rows, first] = epoch.int()
        self._owner[rows] = epoch
        self._frames[rows] = frame + 1
        header = torch.stack([torch.where(live, slots, PADDING_ROW), epoch, frame, _flags(ended, capped, failed)], 1)
        return torch.where(ended & live, self._end_token, slots), torch.cat([header, codes], 1).int()

    def _draw(
        self, hidden: Tensor, rows: Tensor, frame: Tensor, control: Tensor, options: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Codebook 0 or end of speech, int64 [n]; the frame's codes, int64 [n, groups]; bool [n], rows that failed."""
        try:
            first, noise, failed = self._draw_first(hidden, rows, frame, control, options)
            codes = self._complete(hidden, first.clamp(max=self._end - 1), control, options, noise)
        except Exception:
            if not self._isolate_failures:
                raise
            if len(rows) > 1:
                single = (slice(row, row + 1) for row in range(len(rows)))
                parts = [self._draw(hidden[n], rows[n], frame[n], control[n], options[n]) for n in single]
                first, codes, failed = (torch.cat(part) for part in zip(*parts, strict=True))
            else:
                log.exception("step of one generation failed; its speech ends")
                first, failed = rows.new_zeros(1), torch.ones_like(rows, dtype=torch.bool)
                codes = rows.new_zeros(1, self._groups)
        return first, codes, failed

    def _draw_first(
        self, hidden: Tensor, rows: Tensor, frame: Tensor, control: Tensor, options: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Draw codebook 0 (`docs/qwen3_tts.md`, section 6).

        Returns the ids, int64 [n], the frame's noise, float32 [n, groups], and bool [n], rows with a non-finite logit.
        """
        logits = (hidden @ self.head.t()).float()
        failed = ~torch.isfinite(logits).all(1)
        penalty = options[:, Option.REPETITION_PENALTY, None]
        if self._tables.any(penalty != 1):
            logits = penalise(logits, self.history.sampled[rows] == control[:, Field.EPOCH, None], penalty)
        token = frame + control[:, Field.TEXT_LEAD]
        text_read = (control[:, Field.CLOSED] == 1) & (token >= control[:, Field.TEXT_LEN])
        may_end = (text_read | (control[:, Field.EARLY_END] == 1)) & (frame >= MIN_FRAMES)
        logits[:, self._end].masked_fill_(~may_end, -torch.inf)
        candidates = self._sampler.candidates(
            options[:, Option.TEMPERATURE], control[:, Field.TOP_K], options[:, Option.TOP_P], self._end + 1
        )
        noise = self._sampler.uniform(control[:, Field.SEED], frame, self._groups)
        return self._sampler.draw(logits, candidates, candidates.noise(noise[:, :1])), noise, failed

    def _complete(self, hidden: Tensor, first: Tensor, control: Tensor, options: Tensor, noise: Tensor) -> Tensor:
        """All codes of the frames that start with `first`, int64 [n, groups]."""
        candidates = self._sampler.candidates(
            options[:, Option.PREDICTOR_TEMPERATURE],
            control[:, Field.PREDICTOR_TOP_K],
            options[:, Option.PREDICTOR_TOP_P],
            self._end,
        )
        rest = self._predictor(hidden, first, candidates, candidates.noise(noise[:, 1:]))
        return torch.cat([first[:, None], rest], 1)


def _flags(ended: Tensor, capped: Tensor, failed: Tensor) -> Tensor:
    return ended * int(RecordFlag.END) + capped * int(RecordFlag.CAPPED) + failed * int(RecordFlag.FAILED)
