"""Speech on the training device: audio or codes, phones, and where each sentence lies. It grows while training runs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .audio import resample_16_to_24, tokenizer_mel
from .chunks import Chunk
from .mel_tokenizer import MelTokenizer
from .sizes import CODEBOOKS, FRAME_SAMPLES, FRAMES_PER_HOUR, PHONES_PER_FRAME

_OVERLAP = 16
"""Frames beside a piece that its codes depend on."""
_PIECE = 8192
"""Frames that are encoded at a time."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """One sentence: its voice, its line in the text, its first frame in the store, its length in frames."""

    voice: str
    line: int
    start: int
    frames: int


class SpeechStore:
    """phones: uint8 [capacity, 4]; audio: int16 [capacity * 1920] or None; codes: int16 [capacity, 16] or None."""

    def __init__(self, device: torch.device, hours: float, *, audio: bool, codes: bool) -> None:
        self.capacity = int(hours * FRAMES_PER_HOUR)
        self.frames = 0
        self.phones = torch.zeros(self.capacity, PHONES_PER_FRAME, dtype=torch.uint8, device=device)
        self.audio = torch.zeros(self.capacity * FRAME_SAMPLES, dtype=torch.int16, device=device) if audio else None
        self.codes = torch.zeros(self.capacity, CODEBOOKS, dtype=torch.int16, device=device) if codes else None
        self._device = device
        self._starts = torch.zeros(0, dtype=torch.int64, device=device)

    @property
    def hours(self) -> float:
        return self.frames / FRAMES_PER_HOUR

    def room_for(self, chunk: Chunk) -> bool:
        return self.frames + sum(chunk.frames) <= self.capacity

    def add(self, chunk: Chunk, tokenizer: MelTokenizer | None = None) -> list[Utterance]:
        """Take a chunk in; `tokenizer` makes its codes where they are kept. What does not fit is left out."""
        if not self.room_for(chunk):
            return []
        start, count = self.frames, sum(chunk.frames)
        samples = torch.from_numpy(chunk.audio).to(self._device).float()
        audio = resample_16_to_24(samples)
        self.phones[start : start + count] = torch.from_numpy(chunk.phones).to(self._device)
        if self.audio is not None:
            self.audio[start * FRAME_SAMPLES : (start + count) * FRAME_SAMPLES] = audio.clamp(-32767, 32767).short()
        if self.codes is not None:
            if tokenizer is None:
                raise ValueError("a store of codes needs the tokenizer")
            self.codes[start : start + count] = encode(tokenizer, audio / 32768).short()
        self.frames += count
        utterances = []
        for line, frames in zip(chunk.lines, chunk.frames, strict=True):
            utterances.append(Utterance(chunk.voice, line, start, frames))
            start += frames
        starts = torch.tensor([part.start for part in utterances], dtype=torch.int64, device=self._device)
        self._starts = torch.cat([self._starts, starts])
        return utterances

    def windows(self, count: int, frames: int, from_start: int = 0) -> tuple[Tensor, Tensor]:
        """Random windows: float [count, frames * 1920] and the frames they cover, int64 [count, frames].

        The first `from_start` of them begin where a sentence does, the others anywhere.
        """
        if self.audio is None:
            raise ValueError("this store keeps no audio")
        start = torch.randint(self.frames - frames, (count,), device=self._device)
        if from_start:
            chosen = torch.randint(len(self._starts), (from_start,), device=self._device)
            start[:from_start] = self._starts[chosen].clamp(max=self.frames - frames)
        samples = start[:, None] * FRAME_SAMPLES + torch.arange(frames * FRAME_SAMPLES, device=self._device)
        return self.audio[samples].float() / 32768, start[:, None] + torch.arange(frames, device=self._device)


@torch.no_grad()
def encode(tokenizer: MelTokenizer, audio: Tensor) -> Tensor:
    """float [frames * 1920] -> int64 [frames, 16], piece by piece with enough beside each to equal the whole."""
    frames = audio.numel() // FRAME_SAMPLES
    codes = []
    for start in range(0, frames, _PIECE):
        end = min(start + _PIECE, frames)
        left, right = max(0, start - _OVERLAP), min(frames, end + _OVERLAP)
        piece = audio[left * FRAME_SAMPLES : right * FRAME_SAMPLES]
        codes.append(tokenizer.encode(tokenizer_mel(piece[None]))[0, start - left : end - left])
    return torch.cat(codes)
