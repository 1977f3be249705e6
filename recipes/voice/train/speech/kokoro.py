"""Step: synthesises the speech of Kokoro's voices on a GPU. `python -m train.speech.kokoro W --hours 10`

Reads W/text/train.txt and W/kokoro (`kokoro_weights.py`); writes chunks as `synthesis.py` does, VOICE_00012 of each
voice. Every third line is one voice's, so each voice reads other sentences of every kind. Processes make the phonemes
of blocks of 600 lines, batches of sentences of like length are spoken, and processes cut and write the chunks. Ends
after HOURS of speech per voice. Existing chunks are skipped.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..optimisation import Interval
from ..run_files import TrainingLog, device_named
from .kokoro_network import FRAME_SAMPLES, KokoroNetwork, load_network
from .kokoro_weights import VOICES
from .phonemes import TICK_S, PhonemeText, Phonemizer, timed
from .reading import Reading
from .synthesis import CHUNK_SENTENCES, RecordedSentence, chunk_name, end_with_parent, read_lines, sentence, write_chunk

LEAD_S = 0.06
"""The sound of a phoneme precedes its time by this much: vowels correlate most with the levels 5 ms before hibari's."""
GAINS = {"michael": 1.9, "emma": 1.3, "george": 1.4}
"""Make the voices about as loud as hibari's: -21 to -22 dBFS over whole sentences."""
MOST_PHONEMES = 330
"""Longer sentences last longer than the longest that are kept."""
_MOST_TOKENS = 7000
"""Padded phonemes of a batch, which limit its memory."""
_WAIT_S = 180.0
_SPARE_DISK_BYTES = 3_000_000_000


@dataclass(frozen=True, slots=True)
class NumberedText:
    """The phonemes of a line of the text, and the voice that reads it."""

    voice: str
    line: int
    text: PhonemeText


def block_lines(block: int, lines: int) -> Iterator[tuple[str, int]]:
    """Yield the lines of a block with their voices."""
    voices = tuple(VOICES)
    size = CHUNK_SENTENCES * len(voices)
    for line in range(block * size, min((block + 1) * size, lines)):
        yield voices[line % len(voices)], line


def batches(texts: list[NumberedText], sentences: int, tokens: int = _MOST_TOKENS) -> Iterator[list[NumberedText]]:
    """Yield texts of like length together, the longest first: `sentences` at most, `tokens` with padding."""
    left = sorted(texts, key=lambda numbered: -len(numbered.text.ids))
    while left:
        count = max(1, min(sentences, tokens // len(left[0].text.ids)))
        yield left[:count]
        left = left[count:]


def recorded(numbered: NumberedText, samples: NDArray[np.float32], durations: NDArray[np.int64]) -> RecordedSentence:
    """Cut a spoken sentence. Raises ValueError for silence and for words without phones."""
    ends_s = np.cumsum(durations) * TICK_S - LEAD_S
    reading = Reading(samples, *timed(numbered.text.phonemes, ends_s, numbered.text.words))
    return sentence(reading, GAINS[numbered.voice])


def speak(
    network: KokoroNetwork, styles: dict[str, Tensor], batch: list[NumberedText]
) -> list[tuple[NumberedText, NDArray[np.float32], NDArray[np.int64]]]:
    """Each sentence with its samples and the durations of its phonemes. Halves batches that do not fit in memory."""
    ids = [numbered.text.ids for numbered in batch]
    try:
        style = torch.stack([styles[numbered.voice][len(numbered.text.phonemes) - 1] for numbered in batch])
        spoken = network.speak(ids, style)
        audio, durations = spoken.audio.cpu().numpy(), spoken.durations.cpu().numpy()
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        if len(batch) == 1:
            raise
        half = len(batch) // 2
        return speak(network, styles, batch[:half]) + speak(network, styles, batch[half:])
    made = []
    for numbered, samples, ticks in zip(batch, audio, durations, strict=True):
        length = int(ticks.sum()) * FRAME_SAMPLES
        if np.isfinite(samples[:length]).all():
            made.append((numbered, samples[:length], ticks[: len(numbered.text.ids)]))
    return made


def _phonemes(worker: int, workers: int, work: Path, lines: list[str], blocks: list[int], made: Any) -> None:
    end_with_parent()
    converters = {british: Phonemizer(work / "hibari", british=british) for british in (False, True)}
    for block in blocks[worker::workers]:
        texts = []
        for voice, line in block_lines(block, len(lines)):
            try:
                text = converters[VOICES[voice].startswith("b")].read(lines[line])
            except ValueError:
                continue
            if 0 < len(text.phonemes) <= MOST_PHONEMES:
                texts.append(NumberedText(voice, line, text))
        made.put((block, texts))
    made.put(None)


def _write(work: Path, inbox: Any, hours: Any) -> None:
    """Cut and write what arrives: batches of blocks, and None instead of a batch at a block's end."""
    end_with_parent()
    blocks: dict[int, list[tuple[NumberedText, RecordedSentence]]] = {}
    while (item := inbox.get()) is not None:
        block, spoken = item
        if spoken is not None:
            for numbered, samples, ticks in spoken:
                try:
                    blocks.setdefault(block, []).append((numbered, recorded(numbered, samples, ticks)))
                except ValueError:
                    continue
            continue
        sentences = sorted(blocks.pop(block, []), key=lambda pair: pair[0].line)
        for number, voice in enumerate(VOICES):
            of_voice = {numbered.line: one for numbered, one in sentences if numbered.voice == voice}
            seconds = write_chunk(work / "speech", voice, block, of_voice)
            with hours.get_lock():
                hours[number] += seconds / 3600


def unwritten_blocks(folder: Path, lines: int) -> list[int]:
    """Blocks of which a voice has no chunk yet."""
    count = math.ceil(lines / (CHUNK_SENTENCES * len(VOICES)))
    return [b for b in range(count) if not all((folder / f"{chunk_name(v, b)}.json").exists() for v in VOICES)]


def synthesise(args: argparse.Namespace) -> None:
    """Run the step with the options of `main`."""
    began = time.monotonic()
    log = TrainingLog(args.work / "logs" / "kokoro.jsonl")
    (args.work / "speech").mkdir(exist_ok=True)
    lines = read_lines(args.work)
    blocks = unwritten_blocks(args.work / "speech", len(lines))
    context = multiprocessing.get_context("fork")  # before CUDA is initialised, which a forked process cannot use
    made: Any = context.Queue(2 * args.processes)
    inboxes: list[Any] = [context.Queue(4) for _ in range(args.writers)]
    hours = context.Array("d", len(VOICES))
    for worker in range(args.processes):
        arguments = (worker, args.processes, args.work, lines, blocks, made)
        context.Process(target=_phonemes, args=arguments, daemon=True).start()
    writers = [context.Process(target=_write, args=(args.work, inbox, hours), daemon=True) for inbox in inboxes]
    for writer in writers:
        writer.start()

    device = device_named(args.device)
    network, styles = load_network(args.work / "kokoro")
    network, styles = network.to(device), {name: rows.to(device) for name, rows in styles.items()}
    log.write(ready_s=time.monotonic() - began, blocks=len(blocks))
    report, count, spoken_s, busy = Interval(10.0), 0, 0.0, args.processes
    begun = time.monotonic()
    while busy and min(hours) < args.hours and time.monotonic() - began < args.seconds:
        if shutil.disk_usage(args.work).free < _SPARE_DISK_BYTES:
            print("stopped: the disk is nearly full", flush=True)
            break
        item = made.get(timeout=_WAIT_S)
        if item is None:
            busy -= 1
            continue
        block, texts = item
        inbox: Queue[Any] = inboxes[block % len(inboxes)]
        torch.manual_seed(args.seed * 1_000_003 + block)
        for batch in batches(texts, args.sentences):
            spoken = speak(network, styles, batch)
            inbox.put((block, spoken), timeout=_WAIT_S)
            spoken_s += sum(len(samples) for _, samples, _ in spoken) / 24_000
        inbox.put((block, None), timeout=_WAIT_S)
        count += 1
        if report() or count <= 3:
            elapsed = time.monotonic() - begun
            log.write(block=block, seconds=elapsed, hours=min(hours), faster=spoken_s / elapsed, waiting=made.qsize())
    for inbox in inboxes:
        inbox.put(None, timeout=_WAIT_S)
    for writer in writers:
        writer.join(_WAIT_S)
    log.write(done=count, seconds=time.monotonic() - begun, hours=list(hours))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m train.speech.kokoro", description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("--hours", type=float, default=10, help="hours of speech of each voice")
    parser.add_argument("--seconds", type=float, default=math.inf, help="most seconds")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--sentences", type=int, default=64, help="most sentences of a batch")
    parser.add_argument("--processes", type=int, default=4, help="processes that make phonemes")
    parser.add_argument("--writers", type=int, default=3, help="processes that cut and write chunks")
    parser.add_argument("--seed", type=int, default=1)
    synthesise(parser.parse_args())
    os._exit(0)  # without waiting for the processes that make phonemes


if __name__ == "__main__":
    main()
