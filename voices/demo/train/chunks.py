"""Reads the synthesiser's chunks as they appear, beside the training loop."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .sizes import SPEAKERS


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Some hundred sentences of one voice, one after the other.

    audio: int16 [frames * 1280] at 16 kHz. phones: uint8 [frames, 4]. lines, frames: one number a sentence.
    """

    voice: str
    audio: NDArray[np.int16]
    phones: NDArray[np.uint8]
    lines: list[int]
    frames: list[int]


def read_chunk(description: Path) -> Chunk:
    """`description`: the chunk's .json, which is written last. Raises ValueError for a chunk that does not add up."""
    about = json.loads(description.read_text(encoding="utf-8"))
    audio = np.load(description.with_suffix(".npy"))
    phones = np.load(description.with_suffix(".ph.npy"))
    total = sum(about["frames"])
    if len(audio) != total * 1280 or len(phones) != total or len(about["idx"]) != len(about["frames"]):
        raise ValueError(f"{description}: {len(audio)} samples and {len(phones)} phones for {total} frames")
    if about["voice"] not in SPEAKERS:
        raise ValueError(f"{description}: no such voice {about['voice']!r}")
    return Chunk(about["voice"], audio, phones, about["idx"], about["frames"])


def finished(folder: Path, seen: set[Path]) -> list[Path]:
    """Descriptions not yet seen, in the order in which they were finished: that mixes the voices."""
    fresh = [path for path in folder.glob("*.json") if path not in seen]
    return sorted(fresh, key=lambda path: (path.stat().st_mtime_ns, path.name))


class ChunkReader:
    """A thread that reads ahead, a few chunks at most; `take` never waits."""

    def __init__(self, folder: Path, ahead: int = 12) -> None:
        self._folder = folder
        self._ready: queue.Queue[Chunk] = queue.Queue(ahead)
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
                    print(f"left out: {error}", flush=True)
                    continue
                while not self._stop.is_set():
                    try:
                        self._ready.put(chunk, timeout=0.5)
                        break
                    except queue.Full:
                        continue
            self._stop.wait(0.5)

    def take(self, limit: int) -> Iterator[Chunk]:
        """At most `limit` chunks of those that are ready."""
        for _ in range(limit):
            try:
                yield self._ready.get_nowait()
            except queue.Empty:
                return

    def close(self) -> None:
        self._stop.set()
