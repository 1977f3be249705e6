"""The training speech: chunks read from files as they appear, and a growing store on the training device."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .codec.mel_tokenizer import MelTokenizer
from .sizes import CODEBOOKS, EQUAL_SHARES, FRAME_SAMPLES, FRAMES_PER_HOUR, PHONES_PER_FRAME, SPEAKERS
from .speech.audio import tokenizer_mel


@dataclass(frozen=True, slots=True, eq=False)
class RecordedChunk:
    """Up to 200 consecutive sentences of one voice.

    audio: int16 [frames * 1920] at 24 kHz. phones: uint8 [frames, 4]. lines, frames: line number and length of each
    sentence.
    """

    voice: str
    audio: NDArray[np.int16]
    phones: NDArray[np.uint8]
    lines: list[int]
    frames: list[int]


def read_chunk(description: Path) -> RecordedChunk:
    """Read the chunk with the .json file `description`. Raises OSError, and ValueError for inconsistent sizes."""
    about = json.loads(description.read_text(encoding="utf-8"))
    audio = np.load(description.with_suffix(".npy"))
    phones = np.load(description.with_suffix(".ph.npy"))
    total = sum(about["frames"])
    if len(audio) != total * FRAME_SAMPLES or len(phones) != total or len(about["idx"]) != len(about["frames"]):
        raise ValueError(f"{description}: {len(audio)} samples and {len(phones)} phones for {total} frames")
    if about["voice"] not in SPEAKERS:
        raise ValueError(f"{description}: unknown voice {about['voice']!r}")
    return RecordedChunk(about["voice"], audio, phones, about["idx"], about["frames"])


def finished(folder: Path, seen: set[Path]) -> list[Path]:
    """Descriptions of chunks that are not in `seen`, in order of completion, which mixes the voices."""
    fresh = [path for path in folder.glob("*.json") if path not in seen]
    return sorted(fresh, key=lambda path: (path.stat().st_mtime_ns, path.name))


class ChunkReader:
    """Reads chunks in a thread, up to `ahead` in advance."""

    def __init__(self, folder: Path, ahead: int = 12) -> None:
        self._folder = folder
        self._ready: queue.Queue[RecordedChunk] = queue.Queue(ahead)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        seen: set[Path] = set()
        while not self._stop.is_set():
            for path in finished(self._folder, seen):
                seen.add(path)
                try:
                    chunk = read_chunk(path)
                except (OSError, ValueError) as error:
                    print(f"skipped: {error}", flush=True)
                    continue
                while not self._stop.is_set():
                    try:
                        self._ready.put(chunk, timeout=0.5)
                        break
                    except queue.Full:
                        continue
            self._stop.wait(0.5)

    def take(self, limit: int) -> Iterator[RecordedChunk]:
        """At most `limit` chunks that are ready; does not wait."""
        for _ in range(limit):
            try:
                yield self._ready.get_nowait()
            except queue.Empty:
                return

    def close(self) -> None:
        """Stop the thread."""
        self._stop.set()


_OVERLAP = 16
"""Frames to either side of a piece that its codes depend on."""
_PIECE = 8192
"""Frames encoded at a time."""


@dataclass(frozen=True, slots=True)
class StoredUtterance:
    """One sentence: its voice, its line in the text, its first frame in the store, its length in frames."""

    voice: str
    line: int
    start: int
    frames: int


class SpeechStore:
    """Speech on a device, up to a capacity in hours, of which each voice has its share.

    phones: uint8 [capacity, 4]; audio: int16 [capacity * 1920] or None; codes: int16 [capacity, 16] or None.
    """

    def __init__(
        self,
        device: torch.device,
        hours: float,
        *,
        audio: bool,
        codes: bool,
        shares: Mapping[str, float] = EQUAL_SHARES,
    ) -> None:
        self.capacity = int(hours * FRAMES_PER_HOUR)
        self.frames = 0
        self.voice_frames = dict.fromkeys(shares, 0)
        self.phones = torch.zeros(self.capacity, PHONES_PER_FRAME, dtype=torch.uint8, device=device)
        self.audio = torch.zeros(self.capacity * FRAME_SAMPLES, dtype=torch.int16, device=device) if audio else None
        self.codes = torch.zeros(self.capacity, CODEBOOKS, dtype=torch.int16, device=device) if codes else None
        self._device, self._shares = device, shares
        # Of each sentence: first frame, length, voice. Then the sum of the probabilities up to each.
        self._sentences = torch.zeros(0, 3, dtype=torch.int64, device=device)
        self._until = torch.zeros(0, dtype=torch.float64, device=device)

    @property
    def hours(self) -> float:
        """Hours of speech stored."""
        return self.frames / FRAMES_PER_HOUR

    def has_room_for(self, chunk: RecordedChunk) -> bool:
        """Whether the chunk fits into its voice's share."""
        return self.voice_frames[chunk.voice] + sum(chunk.frames) <= self._shares[chunk.voice] * self.capacity

    def add(self, chunk: RecordedChunk, tokenizer: MelTokenizer | None = None) -> list[StoredUtterance]:
        """Store a chunk, encoded by `tokenizer` if codes are kept; returns its sentences, none if there is no room."""
        if not self.has_room_for(chunk):
            return []
        start, count = self.frames, sum(chunk.frames)
        audio = torch.from_numpy(chunk.audio).to(self._device)
        self.phones[start : start + count] = torch.from_numpy(chunk.phones).to(self._device)
        if self.audio is not None:
            self.audio[start * FRAME_SAMPLES : (start + count) * FRAME_SAMPLES] = audio
        if self.codes is not None:
            if tokenizer is None:
                raise ValueError("storing codes needs a tokenizer")
            self.codes[start : start + count] = encode(tokenizer, audio.float() / 32768).short()
        self.frames += count
        self.voice_frames[chunk.voice] += count
        utterances = []
        for line, frames in zip(chunk.lines, chunk.frames, strict=True):
            utterances.append(StoredUtterance(chunk.voice, line, start, frames))
            start += frames
        self._index(utterances)
        return utterances

    def _index(self, utterances: list[StoredUtterance]) -> None:
        voices = list(self._shares)
        rows = [(part.start, part.frames, voices.index(part.voice)) for part in utterances]
        self._sentences = torch.cat([self._sentences, torch.tensor(rows, device=self._device)])
        rates = [self._shares[voice] / max(1, self.voice_frames[voice]) for voice in voices]
        rate = torch.tensor(rates, dtype=torch.float64, device=self._device)
        self._until = (rate[self._sentences[:, 2]] * self._sentences[:, 1]).cumsum(0)

    def windows(self, count: int, frames: int, from_start: int = 0) -> tuple[Tensor, Tensor]:
        """Random windows of audio, float [count, frames * 1920], and their frames, int64 [count, frames].

        Voices are drawn by their shares. The first `from_start` windows begin with a sentence, the others anywhere.
        """
        if self.audio is None:
            raise ValueError("the store has no audio")
        drawn = torch.rand(count, dtype=torch.float64, device=self._device) * self._until[-1]
        chosen = self._sentences[torch.searchsorted(self._until, drawn).clamp(max=len(self._until) - 1)]
        offset = (torch.rand(count, device=self._device) * chosen[:, 1]).long()
        offset[:from_start] = 0
        start = (chosen[:, 0] + offset).clamp(max=self.frames - frames)
        samples = start[:, None] * FRAME_SAMPLES + torch.arange(frames * FRAME_SAMPLES, device=self._device)
        return self.audio[samples].float() / 32768, start[:, None] + torch.arange(frames, device=self._device)


def wait_for_voices(
    store: SpeechStore, take: Callable[[int], object], frames: int, voice_frames: int, wait_s: float
) -> None:
    """Take chunks until the store has `frames`, and `voice_frames` of each voice, for which it waits `wait_s` at most.

    Raises TimeoutError if `frames` are not there ten minutes later.
    """
    began = time.monotonic()
    while True:
        elapsed = time.monotonic() - began
        lacking = [voice for voice, count in store.voice_frames.items() if count < voice_frames]
        if store.frames >= frames and (not lacking or elapsed > wait_s):
            if lacking:
                print(f"begins without enough speech of {', '.join(lacking)}", flush=True)
            return
        if elapsed > wait_s + 600:
            raise TimeoutError(f"{store.frames} of {frames} frames of speech appeared within {elapsed:.0f} s")
        take(12)
        time.sleep(0.1)


@torch.no_grad()
def encode(tokenizer: MelTokenizer, audio: Tensor) -> Tensor:
    """Codes of audio, float [frames * 1920] -> int64 [frames, 16].

    Encodes in overlapping pieces, with the same result as for the whole.
    """
    frames = audio.numel() // FRAME_SAMPLES
    codes = []
    for start in range(0, frames, _PIECE):
        end = min(start + _PIECE, frames)
        left, right = max(0, start - _OVERLAP), min(frames, end + _OVERLAP)
        piece = audio[left * FRAME_SAMPLES : right * FRAME_SAMPLES]
        codes.append(tokenizer.encode(tokenizer_mel(piece[None]))[0, start - left : end - left])
    return torch.cat(codes)
