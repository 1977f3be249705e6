"""Step: synthesises the training speech. Flite's voices read the training text in many processes, in chunks.

    python -m train.speech.synthesis W --processes N [--voices slt,rms,awb] [--passes 3]

A chunk of 200 sentences is W/speech/VOICE_00012.npy (int16 at 16 kHz, each sentence a whole number of frames of 80 ms),
.ph.npy (uint8 [frames, 4], the phone in each 20 ms), and .json, written last: line numbers in train.txt, frames, and
start times of words of each sentence. Each voice reads a third of the text; further passes give each chunk to the next
voice. Existing chunks are skipped.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import multiprocessing
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .flite import PAUSE, PHONES, RATE_HZ, VOICES, Flite, FliteReading

FRAME_SAMPLES = 1280
FRAME_S = FRAME_SAMPLES / RATE_HZ
PHONES_PER_FRAME = 4
CHUNK_SENTENCES = 200
LEADING_SILENCE_S = 0.09
"""Silence before the first phone; after the last one it lasts between one frame and two."""
AUDIBLE_BY_S = 0.11
"""Latest time at which a sentence becomes audible: less than two frames, because the talker may add to it. A sentence
whose first phone starts silently, such as a stop or an "h", starts earlier by as much."""
_MIN_LEADING_SILENCE_S = 0.02
_SILENCE_RMS = 10 ** (-50 / 20)
MIN_FRAMES, MAX_FRAMES = 4, 240
GAINS = {"slt": 0.56, "rms": 1.06, "awb": 0.94}
"""Make the voices equally loud, about -21 dBFS over whole sentences."""

_NUMBERS = {name: number for number, name in enumerate(PHONES)}
_PR_SET_PDEATHSIG = 1
"""From <linux/prctl.h>; the gateway's own helper is not installed on the training machine."""


@dataclass(frozen=True, slots=True)
class RecordedSentence:
    """A sentence of whole frames: int16 [1280 * frames], uint8 [frames, 4], and the start times of its words."""

    samples: NDArray[np.int16]
    phones: NDArray[np.uint8]
    words_ms: list[int]

    @property
    def frames(self) -> int:
        """Number of frames."""
        return len(self.phones)


def sentence(reading: FliteReading, gain: float = 1.0) -> RecordedSentence:
    """Cut a reading into whole frames, with short silences before and after."""
    sounds = [n for n, phone in enumerate(reading.phones) if phone.name != PAUSE]
    begin_s = reading.phones[sounds[0] - 1].end_s if sounds[0] else 0.0
    audible_s = audible_from_s(reading.samples, gain)
    shift_s = max(min(LEADING_SILENCE_S - begin_s, AUDIBLE_BY_S - audible_s), _MIN_LEADING_SILENCE_S - begin_s)
    frames = math.ceil((reading.phones[sounds[-1]].end_s + shift_s) / FRAME_S) + 1
    samples = np.zeros(frames * FRAME_SAMPLES, np.int16)
    shift = round(shift_s * RATE_HZ)
    source = reading.samples[max(0, -shift) : len(samples) - shift]
    loud = np.clip(np.round(source * gain), -32768, 32767)
    samples[max(0, shift) : max(0, shift) + len(source)] = loud

    ends_s = np.array([phone.end_s for phone in reading.phones]) + shift_s
    numbers = np.array([_NUMBERS[phone.name] for phone in reading.phones] + [_NUMBERS[PAUSE]], np.uint8)
    middles_s = (np.arange(frames * PHONES_PER_FRAME) + 0.5) * FRAME_S / PHONES_PER_FRAME
    phones = numbers[np.searchsorted(ends_s, middles_s)].reshape(frames, PHONES_PER_FRAME)
    return RecordedSentence(samples, phones, [round(1000 * (word.start_s + shift_s)) for word in reading.words])


def audible_from_s(samples: NDArray[np.int16], gain: float) -> float:
    """Time at which audio at 16 kHz first exceeds silence for two windows of 10 ms; 0 if it never does."""
    window = RATE_HZ // 100
    whole = samples[: len(samples) // window * window].astype(np.float64) * (gain / 32768)
    loud = np.sqrt(np.mean(whole.reshape(-1, window) ** 2, axis=1)) >= _SILENCE_RMS
    lasting = np.flatnonzero(loud[:-1] & loud[1:])
    return float(lasting[0]) / 100 if len(lasting) else 0.0


@dataclass(frozen=True, slots=True)
class ChunkPlan:
    """A chunk to synthesise. `number` counts over all passes; `first` is its first line."""

    number: int
    voice: str
    first: int

    @property
    def name(self) -> str:
        """The stem of its files."""
        return f"{self.voice}_{self.number:05}"


def chunks(lines: int, voices: tuple[str, ...], passes: int) -> list[ChunkPlan]:
    """All chunks in order; voices alternate, and are shifted by one in each pass."""
    each = math.ceil(lines / CHUNK_SENTENCES)
    return [
        ChunkPlan(turn * each + n, voices[(turn + n) % len(voices)], n * CHUNK_SENTENCES)
        for turn in range(passes)
        for n in range(each)
    ]


def write(chunk: ChunkPlan, lines: list[str], flite: Flite, folder: Path) -> float:
    """Read a chunk's lines and write its files; returns its duration in seconds. Unreadable lines are skipped."""
    numbers, sentences = [], []
    for number in range(chunk.first, min(chunk.first + CHUNK_SENTENCES, len(lines))):
        try:
            reading = flite.read(lines[number])
        except ValueError:
            continue
        if len(reading.words) != len(lines[number].split()):
            continue  # flite skipped a word, so the word times would be shifted
        recorded = sentence(reading, GAINS[chunk.voice])
        if MIN_FRAMES <= recorded.frames <= MAX_FRAMES:
            numbers.append(number)
            sentences.append(recorded)
    base = folder / chunk.name
    _save(base.with_suffix(".ph.npy"), np.concatenate([recorded.phones for recorded in sentences]))
    _save(base.with_suffix(".npy"), np.concatenate([recorded.samples for recorded in sentences]))
    frames = [recorded.frames for recorded in sentences]
    description = {
        "voice": chunk.voice,
        "idx": numbers,
        "frames": frames,
        "words": [recorded.words_ms for recorded in sentences],
    }
    unfinished = base.with_suffix(".json.tmp")
    unfinished.write_text(json.dumps(description, separators=(",", ":")))
    unfinished.rename(base.with_suffix(".json"))  # marks the chunk as complete
    return sum(frames) * FRAME_S


def _save(path: Path, array: NDArray[Any]) -> None:
    unfinished = path.with_name(path.name + ".tmp")
    with unfinished.open("wb") as file:
        np.save(file, array)
    unfinished.rename(path)


def _work(
    worker: int, workers: int, lines: list[str], plan: list[ChunkPlan], folder: Path, libraries: Path | None
) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)  # ends this process with its parent
    os.nice(10)
    flites: dict[str, Flite] = {}
    for chunk in plan[worker::workers]:
        if not (folder / f"{chunk.name}.json").exists():
            if chunk.voice not in flites:
                flites[chunk.voice] = Flite(chunk.voice, libraries)
            begun_s, cpu_s = time.monotonic(), time.process_time()
            speech_s = write(chunk, lines, flites[chunk.voice], folder)
            if worker == 0:
                elapsed_s, cpu_s = time.monotonic() - begun_s, time.process_time() - cpu_s
                print(
                    f"{chunk.name}: {speech_s:.0f} s of speech in {elapsed_s:.1f} s ({cpu_s:.1f} s of a core)",
                    flush=True,
                )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m train.speech.synthesis")
    parser.add_argument("work", type=Path)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--voices", default=",".join(VOICES))
    parser.add_argument("--passes", type=int, default=len(VOICES))
    options = parser.parse_args()
    folder = options.work / "speech"
    folder.mkdir(exist_ok=True)
    libraries = options.work / "flite"
    lines = [line.split("\t", 1)[1] for line in (options.work / "text/train.txt").read_text("utf-8").splitlines()]
    plan = chunks(len(lines), tuple(options.voices.split(",")), options.passes)
    context = multiprocessing.get_context("fork")
    workers = [
        context.Process(
            target=_work,
            args=(n, options.processes, lines, plan, folder, libraries if libraries.exists() else None),
        )
        for n in range(options.processes)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if any(worker.exitcode for worker in workers):
        raise SystemExit("a process failed; run this step again, it keeps finished chunks")


if __name__ == "__main__":
    main()
