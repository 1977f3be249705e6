"""When words are heard, by the phone durations that flite knows of its own speech (Debian package `flite`).

The demo voices learnt from flite's. Both reading one text, one recording warps onto the other, and flite's word
boundaries go along.
"""
# TODO-DOC How far the word times of a running gateway are from those that flite knows of the same text. For the demo
# TODO-DOC voices, which learnt from flite's: other voices do not speak enough like them for the comparison.

from __future__ import annotations

import argparse
import asyncio
import json
import math
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import wave
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from voxgate.cli.connection import gateway_unreachable_message, http_url
from voxgate.client import DEFAULT_URL, Audio, ClientError, Session, SpeechError, Unreachable, Words, connect
from voxgate.codecs.pcm import FRAME_SAMPLES, SAMPLE_RATE_HZ, Pcm, decode_s16le
from voxgate.codecs.resample import Resampler
from voxgate.pipeline.alignment.word_timing import WordAligner

VOICES = ("slt", "rms", "awb")
"""Flite's voices that the demo voices of the same names learnt from."""
PAUSE = "pau"
HOP_MS = 10
_WINDOW_MS = 25
_BANDS = 40
_STEP_COST = 0.02
"""Of staying in one recording while the other goes on; keeps silences from wandering."""


@dataclass(frozen=True, slots=True)
class FliteReading:
    """A text read by flite: float32 [n] at 24 kHz, and where each word begins and ends in it."""

    pcm: Pcm
    spans_ms: list[tuple[float, float]]


def read(text: str, voice: str) -> FliteReading:
    """Raises FileNotFoundError without flite, CalledProcessError when it fails."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "speech.wav"
        timed = [item.split(":") for item in _flite(voice, "-psdur", "-t", text, "-o", str(path)).split()]
        with wave.open(str(path)) as recording:
            rate_hz = recording.getframerate()
            samples = np.frombuffer(recording.readframes(recording.getnframes()), "<i2")
    resampler = Resampler(rate_hz, SAMPLE_RATE_HZ)
    pcm = np.concatenate([resampler.push(samples.astype(np.float32) / np.float32(32768)), resampler.finish()])
    ends_ms = [1000 * float(end) for _, end in timed]
    sounds = [
        (phone, begin, end)
        for (phone, _), begin, end in zip(timed, [0.0, *ends_ms], ends_ms, strict=False)
        if phone != PAUSE
    ]
    owners = _owners([_phones(word, voice) for word in text.split()], [phone for phone, *_ in sounds])
    spans: list[tuple[float, float]] = []
    for word in range(len(text.split())):
        own = [sound for sound, owner in zip(sounds, owners, strict=True) if owner == word]
        spans.append((own[0][1], own[-1][2]) if own else (spans[-1][1],) * 2 if spans else (0.0, 0.0))
    return FliteReading(pcm, spans)


def _warp(reading: Pcm, speech: Pcm) -> tuple[list[int], list[int]]:
    """For each 10 ms of `reading` the first and the last 10 ms of `speech` on the cheapest path over log mel bands."""
    a, b = _features(reading), _features(speech)
    distance = np.sqrt(np.maximum((a**2).sum(1)[:, None] + (b**2).sum(1)[None] - 2 * a @ b.T, 0)) / np.sqrt(_BANDS)
    total = np.full((len(a) + 1, len(b) + 1), np.inf)
    total[0, 0] = 0
    for i, row in enumerate(distance.tolist()):
        above, here = total[i].tolist(), [np.inf]
        for j, cost in enumerate(row):
            here.append(cost + min(above[j], above[j + 1] + _STEP_COST, here[j] + _STEP_COST))
        total[i + 1] = here
    i, j = len(a), len(b)
    first, last = [0] * len(a), [0] * len(a)
    while i and j:
        first[i - 1] = j - 1
        last[i - 1] = max(last[i - 1], j - 1)
        i, j = min(((i - 1, j - 1), (i - 1, j), (i, j - 1)), key=lambda at: total[at])
    return first, last


def spans_ms(reading: FliteReading, speech: Pcm) -> list[tuple[float, float]]:
    """Where each word of the reading is heard in `speech`, float32 [n] at 24 kHz."""
    first, last = _warp(reading.pcm, speech)
    spans = []
    for begin_ms, end_ms in reading.spans_ms:
        # Longer silence around a word clings to its quiet edges: what counts is where the word leaves them.
        begin, end = math.ceil(begin_ms / HOP_MS), min(math.floor(end_ms / HOP_MS), len(first) - 1)
        spans.append((float(last[begin] * HOP_MS), float(max(first[end], last[begin]) * HOP_MS)))
    return spans


@cache
def _phones(word: str, voice: str) -> tuple[str, ...]:
    return tuple(phone for phone in _flite(voice, "-ps", "-t", word, "-o", "none").split() if phone != PAUSE)


def _flite(voice: str, *arguments: str) -> str:
    command = ["flite", "-voice", voice, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout


def _owners(words: list[tuple[str, ...]], phones: list[str]) -> list[int]:
    """Which word each phone belongs to: words sound a little different in company (the cheapest edits align them)."""
    alone = [(phone, word) for word, own in enumerate(words) for phone in own]
    cost = np.zeros((len(alone) + 1, len(phones) + 1), int)
    cost[:, 0], cost[0] = np.arange(len(alone) + 1), np.arange(len(phones) + 1)
    for i, (expected, _) in enumerate(alone, 1):
        for j, heard in enumerate(phones, 1):
            cost[i, j] = min(cost[i - 1, j - 1] + (expected != heard), cost[i - 1, j] + 1, cost[i, j - 1] + 1)
    owners = [0] * len(phones)
    i, j = len(alone), len(phones)
    while j:
        owners[j - 1] = alone[max(i, 1) - 1][1]
        if i and cost[i, j] == cost[i - 1, j - 1] + (alone[i - 1][0] != phones[j - 1]):
            i, j = i - 1, j - 1
        elif i and cost[i, j] == cost[i - 1, j] + 1:
            i -= 1
        else:
            j -= 1
    return owners


def _features(pcm: Pcm) -> NDArray[np.float64]:
    """Log energies in mel bands every 10 ms, without each band's mean; float64 [t, 40]."""
    hop, size = SAMPLE_RATE_HZ * HOP_MS // 1000, SAMPLE_RATE_HZ * _WINDOW_MS // 1000
    padded = np.pad(pcm.astype(np.float64), (size // 2, size))
    count = len(pcm) // hop + 1
    frames = np.stack([padded[n * hop : n * hop + size] for n in range(count)]) * np.hanning(size)
    power = np.abs(np.fft.rfft(frames, 1024)) ** 2
    bands: NDArray[np.float64] = np.log(power @ _mel_bands().T + 1e-4)
    centred: NDArray[np.float64] = bands - bands.mean(0)
    return centred


@cache
def _mel_bands() -> NDArray[np.float64]:
    mel = np.linspace(0, 2595 * np.log10(1 + 7600 / 700), _BANDS + 2)
    edges = 700 * (10 ** (mel / 2595) - 1)
    hz = np.fft.rfftfreq(1024, 1 / SAMPLE_RATE_HZ)
    up = (hz - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    down = (edges[2:, None] - hz) / (edges[2:] - edges[1:-1])[:, None]
    bands: NDArray[np.float64] = np.clip(np.minimum(up, down), 0, None)
    return bands


TEXTS = Path(__file__).with_name("words.txt")
AT_ONCE = 4
TRIES = 20
"""Before a place in the gateway's queue is given up."""
NEAR_MS = 100
TIMEOUT_S = 10
Spans = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class WordTimeErrors:
    """Of the beginnings and ends of words: how far off, whichever way; `late_ms` is the mean with its sign."""

    words: int
    median_ms: float
    mean_ms: float
    p90_ms: float
    p99_ms: float
    most_ms: float
    late_ms: float
    near: float
    """Share within 100 ms."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", default=DEFAULT_URL, help="of the gateway that serves the demo voices")
    parser.add_argument("--voices", nargs="+", choices=VOICES, help="default: those that the gateway offers")
    parser.add_argument("--texts", type=Path, default=TEXTS, help="a file with a text in each line, no digits in it")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(parsed: argparse.Namespace) -> int:
    texts = [line.strip() for line in parsed.texts.read_text("utf-8").splitlines() if line.strip()]
    try:
        voices = parsed.voices or _offered(parsed.url)
        rows = {voice: _measured(parsed.url, texts, voice) for voice in voices}
    except FileNotFoundError:
        return _complain("needs flite (Debian and Ubuntu: apt-get install flite)")
    except (Unreachable, urllib.error.URLError):
        return _complain(gateway_unreachable_message(parsed.url))
    except ClientError as error:
        return _complain(str(error))
    if parsed.json:
        tables = {voice: {name: asdict(row) for name, row in table.items()} for voice, table in rows.items()}
        print(json.dumps(tables, indent=2))
        return 0
    for voice, table in rows.items():
        print(f"{voice}: {len(texts)} texts, {table['word times'].words} words")
        print(shown(table))
    return 0


def _complain(text: str) -> int:
    print(f"voxgate bench words: {text}", file=sys.stderr)
    return 1


def shown(rows: dict[str, WordTimeErrors]) -> str:
    """A table in plain text."""
    lines = [f"{'error in ms':<32} median   mean    p90    p99    max   late   within {NEAR_MS} ms"]
    for name, row in rows.items():
        figures = (row.median_ms, row.mean_ms, row.p90_ms, row.p99_ms, row.most_ms, row.late_ms)
        lines.append(f"{name:<32}" + "".join(f"{figure:7.0f}" for figure in figures) + f"{row.near:14.1%}")
    return "\n".join(lines)


def errors(told: list[Spans], known: list[Spans]) -> WordTimeErrors:
    """Compare times word by word; both tell of the same words."""
    off = np.concatenate([np.subtract(one, two) for one, two in zip(told, known, strict=True)])
    far = np.abs(off)
    return WordTimeErrors(
        words=sum(map(len, told)),
        median_ms=float(np.median(far)),
        mean_ms=float(far.mean()),
        p90_ms=float(np.percentile(far, 90)),
        p99_ms=float(np.percentile(far, 99)),
        most_ms=float(far.max()),
        late_ms=float(off.mean()),
        near=float(np.mean(far <= NEAR_MS)),
    )


def _offered(url: str) -> list[str]:
    with urllib.request.urlopen(http_url(url, "/v1/voices"), timeout=TIMEOUT_S) as answer:
        names = {voice["name"] for voice in json.load(answer)["voices"]}
    return [voice for voice in VOICES if voice in names]


def _measured(url: str, texts: list[str], voice: str) -> dict[str, WordTimeErrors]:
    readings = [read(text, voice) for text in texts]
    spoken = asyncio.run(_speak(url, texts, voice))
    known = [spans_ms(reading, pcm) for reading, (pcm, _) in zip(readings, spoken, strict=True)]
    told = {
        "word times": [times for _, times in spoken],
        "followed by sound alone": [_by_sound(text, pcm) for text, (pcm, _) in zip(texts, spoken, strict=True)],
        "shared out by letters": [_share_out(text, pcm) for text, (pcm, _) in zip(texts, spoken, strict=True)],
    }
    return {name: errors(times, known) for name, times in told.items()}


async def _speak(url: str, texts: list[str], voice: str) -> list[tuple[Pcm, Spans]]:
    turn = asyncio.Semaphore(AT_ONCE)
    async with connect(url) as session:
        return await asyncio.gather(*(_one(session, turn, text, voice, seed) for seed, text in enumerate(texts)))


async def _one(session: Session, turn: asyncio.Semaphore, text: str, voice: str, seed: int) -> tuple[Pcm, Spans]:
    async with turn:
        for _ in range(TRIES):
            try:
                return await _spoken(session, text, voice, seed)
            except SpeechError as error:
                if error.code != "at_capacity":
                    raise
                await asyncio.sleep((error.retry_after_ms or 1000) / 1000)  # the gateway has other listeners too
        return await _spoken(session, text, voice, seed)


async def _spoken(session: Session, text: str, voice: str, seed: int) -> tuple[Pcm, Spans]:
    async with session.utterance(voice=voice, words=True, pacing="none", seed=seed) as utterance:
        await utterance.send(text)
        await utterance.end()
        audio: list[bytes] = []
        times: Spans = []
        async for event in utterance.events():
            if isinstance(event, Audio):
                audio.append(event.payload)
            elif isinstance(event, Words):
                times += [(word.start_ms, word.end_ms) for word in event.words]
    return decode_s16le(b"".join(audio)), times


def _by_sound(text: str, pcm: Pcm) -> Spans:
    """What a gateway tells of a voice whose codes it does not know."""
    clock = WordAligner()
    clock.push_text(text, len(text))
    spans: Spans = []
    for at in range(0, len(pcm), FRAME_SAMPLES):
        clock.push_audio(pcm[at : at + FRAME_SAMPLES])
        spans += [(word.start_ms, word.end_ms) for word in clock.take_words()]
    clock.finish()
    return spans + [(word.start_ms, word.end_ms) for word in clock.take_words()]


def _share_out(text: str, pcm: Pcm) -> Spans:
    """What splitting the whole utterance, once its length is known, by the letters of its words would say."""
    ends = np.cumsum([len(word) + 1 for word in text.split()]) / (len(text) + 1) * len(pcm) / 24
    return list(zip([0.0, *ends[:-1].tolist()], ends.tolist(), strict=True))
