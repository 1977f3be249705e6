"""Decodes many streams chunk by chunk, each in a slot: with exact state, or from the left context alone.

Two strategies with one interface (`SlotDecoder`), each on CPU and GPU:

- **stateful**: a slot keeps what every layer needs of the past, and each frame is decoded once. Any chunking gives the
  audio of a single pass, up to rounding. `StatefulDecoder` on a CPU, `cuda.decoder.GpuDecoder` on a GPU.
- **overlap**: a slot keeps the last `left_context` frames of codes. `OverlapDecoder` decodes them again before each
  chunk, from zero state, and cuts their audio off. The state is small and can be copied anywhere; the work is a
  multiple, and the result is exact only from `DecoderConfig.exact_left_context` frames on (docs/qwen3_tts.md,
  section 8.3). `benchmarks/overlap_error.py` measures the error of shorter contexts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from .config import KEPT_STATES, CodecMode
from .decoder import CodecDecoder
from .stream_state import StreamState, select_steps


class SlotDecoder(Protocol):
    """Decodes the next chunk of any of the streams that it holds. Not thread-safe."""

    @property
    def slots(self) -> int:
        """Number of streams, in slots 0 to `slots - 1`; slot `slots` is for batch rows that belong to no stream."""

    @property
    def codebooks(self) -> int:
        """Codes per frame."""

    @property
    def codebook_size(self) -> int: ...

    @property
    def frame_samples(self) -> int: ...

    @property
    def context_frames(self) -> int:
        """Frames before a chunk on which its audio depends: a stream that repeats them goes on with the same audio."""

    @property
    def device(self) -> torch.device: ...

    def decode(self, codes: Tensor, slots: Tensor, fresh: Tensor) -> Tensor:
        """Decodes the next n frames of B streams: float32 [B, n * 1920] in [-1, 1], 24 kHz mono.

        `codes`: int64 [B, n, codebooks], n >= 1; `slots`: int64 [B], distinct except for the padding slot; `fresh`:
        int64 [B], 1 where a new stream begins. All on `device`. On a CPU, raises ValueError for codes outside the
        codebooks; no stream has advanced then. A GPU does not check them.
        """

    def keep_state(self, slot: int, place: int) -> None:
        """Copies the state of the stream in `slot` to one of KEPT_STATES places."""

    def restore_state(self, slot: int, place: int) -> None:
        """Lets a stream begin in `slot` with the state that was kept in `place`; its next frames are not fresh."""


class WindowDecoder(Protocol):
    """What `OverlapDecoder` decodes with: `CodecDecoder` or `GpuDecoder`."""

    codebooks: int
    codebook_size: int
    frame_samples: int

    def decode_windows(self, codes: Tensor, context: Tensor, frames: int) -> Tensor:
        """Decodes B independent windows from zero state, and returns the audio of `frames` frames of each.

        `codes`: int64 [B, n, codebooks]; `context`: int64 [B], frames of a window before those that are returned.
        Frames of a window after those are padding, which a causal decoder does not see. Returns float32
        [B, frames * 1920].
        """


class StatefulDecoder:
    """A `SlotDecoder` on a CPU that keeps the state of every stream in one slab."""

    device = torch.device("cpu")

    def __init__(self, decoder: CodecDecoder, slots: int) -> None:
        self._decoder, self.slots = decoder, slots
        self.codebooks, self.codebook_size = decoder.codebooks, decoder.codebook_size
        self.frame_samples, self.context_frames = decoder.frame_samples, decoder.config.exact_left_context
        self._slab = decoder.initial_state(slots + 1)
        # Not filled: a place takes memory once a state is kept in it.
        history = self._slab.history
        self._kept = StreamState(
            history.new_empty(KEPT_STATES, history.shape[1]), self._slab.frames.new_empty(KEPT_STATES)
        )

    @torch.inference_mode()
    def decode(self, codes: Tensor, slots: Tensor, fresh: Tensor) -> Tensor:
        """See `SlotDecoder.decode`."""
        self._slab.reset(slots[fresh > 0])
        return self._decoder.decode_slots(codes, self._slab, slots)

    def keep_state(self, slot: int, place: int) -> None:
        """See `SlotDecoder.keep_state`."""
        self._kept.put(torch.tensor([place]), self._slab.take(torch.tensor([slot])))

    def restore_state(self, slot: int, place: int) -> None:
        """See `SlotDecoder.restore_state`."""
        self._slab.put(torch.tensor([slot]), self._kept.take(torch.tensor([place])))


class OverlapDecoder:
    """A `SlotDecoder` that decodes up to `left_context` frames again before each chunk, on its backend's device."""

    def __init__(
        self, decoder: WindowDecoder, slots: int, left_context: int, device: torch.device | None = None
    ) -> None:
        """`device`: that of `decoder`; the CPU unless given."""
        self._decoder, self.slots, self.left_context = decoder, slots, left_context
        self.context_frames = left_context
        self.codebooks, self.codebook_size = decoder.codebooks, decoder.codebook_size
        self.frame_samples = decoder.frame_samples
        self.device = torch.device("cpu") if device is None else device
        rows = slots + 1 + KEPT_STATES
        self._codes = torch.zeros(rows, left_context, self.codebooks, dtype=torch.int64, device=self.device)
        """The last codes of each slot, the newest last; behind the slots, those of kept states."""
        self._frames = torch.zeros(rows, dtype=torch.int64, device=self.device)
        """Frames decoded of each slot's stream."""

    @torch.inference_mode()
    def decode(self, codes: Tensor, slots: Tensor, fresh: Tensor) -> Tensor:
        """See `SlotDecoder.decode`. A row with little context is decoded exactly as it would be alone.

        On a GPU all shapes depend on those of the arguments alone and nothing waits for the device, so that the call
        can be captured in a CUDA graph. On a CPU no more context is decoded than the oldest stream of the batch has.
        """
        frames = codes.shape[1]
        decoded = torch.where(fresh > 0, 0, self._frames[slots])
        context = decoded.clamp(max=self.left_context)
        known = torch.cat((self._codes[slots], codes), dim=1)
        longest = int(context.max()) if self.device.type == "cpu" else self.left_context
        windows = select_steps(known, self.left_context - context, longest + frames)
        pcm = self._decoder.decode_windows(windows, context, frames)
        self._codes[slots] = known[:, frames:]
        self._frames[slots] = decoded + frames
        return pcm

    def keep_state(self, slot: int, place: int) -> None:
        """See `SlotDecoder.keep_state`."""
        self._copy(slot, self.slots + 1 + place)

    def restore_state(self, slot: int, place: int) -> None:
        """See `SlotDecoder.restore_state`."""
        self._copy(self.slots + 1 + place, slot)

    def _copy(self, source: int, target: int) -> None:
        self._codes[target] = self._codes[source]
        self._frames[target] = self._frames[source]


def load_slot_decoder(
    checkpoint_dir: Path, slots: int, codec_mode: CodecMode, left_context: int, threads: int = 1
) -> SlotDecoder:
    """Loads the decoder of a `speech_tokenizer` folder on the CPU; `left_context` is for overlap.

    `threads`: among which the streams of a batch are divided.

    Raises CodecFormatError.
    """
    decoder = CodecDecoder.from_checkpoint(checkpoint_dir, threads=threads)
    if codec_mode == "overlap":
        return OverlapDecoder(decoder, slots, left_context)
    return StatefulDecoder(decoder, slots)
