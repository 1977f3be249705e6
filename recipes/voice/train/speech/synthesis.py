"""Step: synthesises the training speech. The teacher reads the training text in many processes, in chunks.

    python -m train.speech.synthesis W --processes N

A chunk of 200 sentences is W/speech/VOICE_00012.npy (int16 at 24 kHz, each sentence a whole number of frames of 80 ms),
.ph.npy (uint8 [frames, 4], the phone in each 20 ms), and .json, written last: line numbers in train.txt, frames, and
start times of words of each sentence. Existing chunks are skipped.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..sizes import FRAME_SAMPLES, PHONES_PER_FRAME
from .hibari import RATE_HZ, VOICE, Hibari
from .reading import PAUSE, PHONES, Reading

FRAME_S = FRAME_SAMPLES / RATE_HZ
CHUNK_SENTENCES = 200
LEADING_SILENCE_S = 0.08
"""Silence before the first sound, half of the delay that is acceptable."""
TRAILING_SILENCE_S = 0.14
"""Shortest silence after the last sound; the longest is a frame longer. Before another sentence, both make a pause of
0.22 to 0.3 s."""
_SILENCE_RMS = 10 ** (-50 / 20)
MIN_FRAMES, MAX_FRAMES = 4, 240
GAIN = 1.8
"""Makes the voice about -21 dBFS loud over whole sentences."""

_SPARE_DISK_BYTES = 8_000_000_000
_NUMBERS = {name: number for number, name in enumerate(PHONES)}
_PR_SET_PDEATHSIG = 1
"""From <linux/prctl.h>; the gateway's own helper is not installed on the training machine."""


@dataclass(frozen=True, slots=True)
class RecordedSentence:
    """A sentence of whole frames: int16 [1920 * frames], uint8 [frames, 4], and the start times of its words."""

    samples: NDArray[np.int16]
    phones: NDArray[np.uint8]
    words_ms: list[int]

    @property
    def frames(self) -> int:
        """Number of frames."""
        return len(self.phones)


def sentence(reading: Reading, gain: float = 1.0) -> RecordedSentence:
    """Cut a reading into whole frames, with short silences before and after. Raises ValueError for silence."""
    first_s, last_s = audible_s(reading.samples, gain)
    shift_s = LEADING_SILENCE_S - first_s
    frames = math.ceil((last_s + shift_s + TRAILING_SILENCE_S) / FRAME_S)
    samples = np.zeros(frames * FRAME_SAMPLES, np.int16)
    shift = round(shift_s * RATE_HZ)
    source = reading.samples[max(0, -shift) : len(samples) - shift]
    loud = np.clip(np.round(source * (gain * 32768)), -32767, 32767)
    samples[max(0, shift) : max(0, shift) + len(source)] = loud

    ends_s = np.array([phone.end_s for phone in reading.phones]) + shift_s
    numbers = np.array([_NUMBERS[phone.name] for phone in reading.phones] + [_NUMBERS[PAUSE]], np.uint8)
    middles_s = (np.arange(frames * PHONES_PER_FRAME) + 0.5) * FRAME_S / PHONES_PER_FRAME
    phones = numbers[np.searchsorted(ends_s, middles_s)]
    phones[middles_s > last_s + shift_s] = _NUMBERS[PAUSE]  # the last phone's duration includes silence
    words_ms = [round(1000 * (word.start_s + shift_s)) for word in reading.words]
    return RecordedSentence(samples, phones.reshape(frames, PHONES_PER_FRAME), words_ms)


def audible_s(samples: NDArray[np.float32], gain: float) -> tuple[float, float]:
    """Times between which audio at 24 kHz is audible, for at least 20 ms at a time. Raises ValueError for silence."""
    window = RATE_HZ // 100
    whole = samples[: len(samples) // window * window].astype(np.float64) * gain
    loud = np.sqrt(np.mean(whole.reshape(-1, window) ** 2, axis=1)) >= _SILENCE_RMS
    lasting = np.flatnonzero(loud[:-1] & loud[1:])
    if not len(lasting):
        raise ValueError("the reading must be audible")
    return float(lasting[0]) / 100, float(lasting[-1] + 2) / 100


def write(number: int, lines: list[str], teacher: Hibari, folder: Path) -> float:
    """Read a chunk of lines and write its files; returns its duration in seconds. Skips unreadable lines."""
    first = number * CHUNK_SENTENCES
    sentences: dict[int, RecordedSentence] = {}
    for line in range(first, min(first + CHUNK_SENTENCES, len(lines))):
        try:
            sentences[line] = sentence(teacher.read(lines[line], seed=line), GAIN)
        except ValueError:
            continue
    return write_chunk(folder, VOICE, number, sentences)


def write_chunk(folder: Path, voice: str, number: int, sentences: Mapping[int, RecordedSentence]) -> float:
    """Write the files of a chunk, sentences by line; returns its duration in seconds. Leaves out too long sentences."""
    kept = {line: recorded for line, recorded in sentences.items() if MIN_FRAMES <= recorded.frames <= MAX_FRAMES}
    if not kept:
        return 0.0
    base = folder / chunk_name(voice, number)
    _save(base.with_suffix(".ph.npy"), np.concatenate([recorded.phones for recorded in kept.values()]))
    _save(base.with_suffix(".npy"), np.concatenate([recorded.samples for recorded in kept.values()]))
    frames = [recorded.frames for recorded in kept.values()]
    description = {
        "voice": voice,
        "idx": list(kept),
        "frames": frames,
        "words": [recorded.words_ms for recorded in kept.values()],
    }
    unfinished = base.with_suffix(".json.tmp")
    unfinished.write_text(json.dumps(description, separators=(",", ":")))
    unfinished.rename(base.with_suffix(".json"))  # marks the chunk as complete
    return sum(frames) * FRAME_S


def chunk_name(voice: str, number: int) -> str:
    """The stem of a chunk's files."""
    return f"{voice}_{number:05}"


def _save(path: Path, array: NDArray[Any]) -> None:
    unfinished = path.with_name(path.name + ".tmp")
    with unfinished.open("wb") as file:
        np.save(file, array)
    unfinished.rename(path)


def end_with_parent() -> None:
    """Make this process end with its parent."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def read_lines(work: Path) -> list[str]:
    """The sentences of W/text/train.txt, lines `source<TAB>sentence`."""
    return [line.split("\t", 1)[1] for line in (work / "text/train.txt").read_text("utf-8").splitlines()]


def _work(worker: int, workers: int, lines: list[str], folder: Path, package: Path) -> None:
    end_with_parent()
    os.nice(10)
    teacher = Hibari(package)
    for number in range(worker, math.ceil(len(lines) / CHUNK_SENTENCES), workers):
        if shutil.disk_usage(folder).free < _SPARE_DISK_BYTES:
            print("stopped: the disk is nearly full", flush=True)
            return
        if not (folder / f"{chunk_name(VOICE, number)}.json").exists():
            begun_s, cpu_s = time.monotonic(), time.process_time()
            speech_s = write(number, lines, teacher, folder)
            if worker == 0:
                elapsed_s, cpu_s = time.monotonic() - begun_s, time.process_time() - cpu_s
                print(
                    f"chunk {number}: {speech_s:.0f} s of speech in {elapsed_s:.1f} s ({cpu_s:.1f} s of a core)",
                    flush=True,
                )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m train.speech.synthesis")
    parser.add_argument("work", type=Path)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    folder = options.work / "speech"
    folder.mkdir(exist_ok=True)
    lines = read_lines(options.work)
    context = multiprocessing.get_context("fork")
    workers = [
        context.Process(target=_work, args=(n, options.processes, lines, folder, options.work / "hibari"))
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
