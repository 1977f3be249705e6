"""Two ways to decode a stream chunk by chunk: with exact state, or re-decoding the frames before."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Protocol

import torch
from torch import Tensor

from .decoder import CodecDecoder
from .stream_state import ChunkHistory, StreamState

StreamingMode = Literal["stateful", "overlap"]


class StreamingDecoder(Protocol):
    """Decodes chunks of many streams in one batch; what a stream needs from its past is in the state."""

    books: int
    """Codes a frame."""
    codebook_size: int
    frame_samples: int

    def initial_state(self, rows: int) -> StreamState:
        """The state of `rows` streams of which nothing was decoded yet."""

    def decode(self, codes: Tensor, state: StreamState) -> tuple[Tensor, StreamState]:
        """The next n frames of B streams: int64 [B, n, 16] -> float32 [B, n * 1920], and their state."""


class OverlapDecoder:
    """Decodes each chunk together with up to `left_context` frames before it, and cuts those off.

    The state is codes only (32 bytes a frame when stored as int16), the work a multiple of the stateful
    decoder's, and the result approximate unless `left_context` reaches `DecoderConfig.exact_left_context`.
    """

    def __init__(self, decoder: CodecDecoder, left_context: int) -> None:
        self.decoder = decoder
        self.left_context = left_context
        self.books, self.codebook_size = decoder.books, decoder.codebook_size
        self.frame_samples = decoder.frame_samples

    def initial_state(self, rows: int) -> StreamState:
        """The state of `rows` streams of which nothing was decoded yet."""
        return StreamState(
            torch.zeros(rows, self.left_context * self.books, dtype=torch.int64),
            torch.zeros(rows, dtype=torch.int64),
        )

    @torch.inference_mode()
    def decode(self, codes: Tensor, state: StreamState) -> tuple[Tensor, StreamState]:
        """Decode the next n frames: int64 [B, n, 16] -> float [B, n * 1920], and the state behind them.

        Rows begin together at the left and are padded behind their end, where a causal decoder cannot hear
        it; so a row with few frames before its chunk is decoded exactly as it would be alone.
        """
        rows, steps, _ = codes.shape
        seen = torch.cat((state.history.view(rows, self.left_context, self.books), codes), dim=1)
        context = state.frames.clamp(max=self.left_context)
        after = StreamState(seen[:, steps:].flatten(1), state.frames + steps)

        history = ChunkHistory.over(self.decoder.initial_state(rows))
        hidden = self.decoder.hidden(_from(seen, self.left_context - context), history)
        # The vocoder hears less far back than the transformer, and costs far more.
        audible = context.clamp(max=self.decoder.config.vocoder_left_context)
        hidden = _from(hidden.transpose(0, 1), context - audible, int(audible.max()) + steps).transpose(0, 1)
        pcm = self.decoder.vocode(hidden.contiguous(), history)
        pcm = _from(pcm.unsqueeze(2), audible * self.frame_samples, steps * self.frame_samples)
        return pcm.squeeze(2), after


def _from(x: Tensor, first: Tensor, length: int | None = None) -> Tensor:
    """`x` [B, T, ...] with row b beginning at step first[b]; short rows repeat their last step."""
    lowest = int(first.min())
    length = x.shape[1] - lowest if length is None else length
    if bool((first == lowest).all()):
        return x[:, lowest : lowest + length]
    steps = (first.unsqueeze(1) + torch.arange(length)).clamp(max=x.shape[1] - 1)
    return x[torch.arange(len(x)).unsqueeze(1), steps]


def load_streaming_decoder(checkpoint_dir: Path, mode: StreamingMode, left_context: int) -> StreamingDecoder:
    """Load the decoder; `left_context` only matters for "overlap". Raises CodecFormatError."""
    decoder = CodecDecoder.from_checkpoint(checkpoint_dir)
    return decoder if mode == "stateful" else OverlapDecoder(decoder, left_context)
