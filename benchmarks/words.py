"""`voxgate bench words`: how far the word times of a running gateway are from flite's for the same text.

flite (Debian package `flite`) knows when each phone of its own speech sounds. The demo voices were trained on its
voices, so that one recording can be warped onto the other, and flite's word boundaries with it. Other voices differ too
much for the comparison.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import subprocess
import tempfile
import urllib.error
import urllib.request
import wave
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from voxgate.cli.connection import gateway_unreachable_message
from voxgate.cli.failure import fail
from voxgate.client import DEFAULT_URL, Audio, ClientError, Session, SpeechError, Unreachable, Words, connect
from voxgate.client.address import ServerAddress
from voxgate.codecs.pcm import FRAME_SAMPLES, SAMPLE_RATE_HZ, Pcm, decode_s16le
from voxgate.codecs.resample import Resampler
from voxgate.pipeline.alignment.word_timing import WordAligner

VOICES = ("slt", "rms", "awb")
"""Voices of flite on which the demo voices of the same names were trained."""
TEXTS = Path(__file__).with_name("words.txt")
MAX_CONCURRENT = 4
MAX_ATTEMPTS = 20
"""Attempts to start an utterance while the gateway is at capacity."""
NEAR_MS = 100
TIMEOUT_S = 10
Spans = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class WordTimeErrors:
    """Absolute errors of the beginnings and ends of words; `late_ms` is the mean of the signed errors."""

    words: int
    median_ms: float
    mean_ms: float
    p90_ms: float
    p99_ms: float
    most_ms: float
    late_ms: float
    near: float
    """Share of the errors up to NEAR_MS."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", default=DEFAULT_URL, help="gateway that serves the demo voices (default: %(default)s)")
    parser.add_argument(
        "--voices", nargs="+", choices=VOICES, help="voices to measure (default: all the gateway offers)"
    )
    parser.add_argument("--texts", type=Path, default=TEXTS, help="file with one text per line, without digits")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


def run(parsed: argparse.Namespace) -> int:
    texts = [line.strip() for line in parsed.texts.read_text("utf-8").splitlines() if line.strip()]
    try:
        voices = parsed.voices or _offered_voices(parsed.url)
        rows = {voice: _measure(parsed.url, texts, voice) for voice in voices}
    except FileNotFoundError:
        return fail("bench words", "flite is not installed: apt-get install flite (Debian and Ubuntu)")
    except (Unreachable, urllib.error.URLError):
        return fail("bench words", gateway_unreachable_message(parsed.url))
    except ClientError as error:
        return fail("bench words", str(error))
    if parsed.json:
        tables = {voice: {name: asdict(row) for name, row in table.items()} for voice, table in rows.items()}
        print(json.dumps(tables, indent=2))
        return 0
    for voice, table in rows.items():
        print(f"{voice}: {len(texts)} texts, {table['word times'].words} words")
        print(errors_table(table))
    return 0


def errors_table(rows: dict[str, WordTimeErrors]) -> str:
    """Formats the figures as a table in plain text."""
    lines = [f"{'error in ms':<32} median   mean    p90    p99    max   late   within {NEAR_MS} ms"]
    for name, row in rows.items():
        figures = (row.median_ms, row.mean_ms, row.p90_ms, row.p99_ms, row.most_ms, row.late_ms)
        lines.append(f"{name:<32}" + "".join(f"{figure:7.0f}" for figure in figures) + f"{row.near:14.1%}")
    return "\n".join(lines)


def word_time_errors(reported: list[Spans], reference: list[Spans]) -> WordTimeErrors:
    """Compares the spans of the same words, text by text."""
    signed = np.concatenate([np.subtract(one, two) for one, two in zip(reported, reference, strict=True)])
    absolute = np.abs(signed)
    return WordTimeErrors(
        words=sum(map(len, reported)),
        median_ms=float(np.median(absolute)),
        mean_ms=float(absolute.mean()),
        p90_ms=float(np.percentile(absolute, 90)),
        p99_ms=float(np.percentile(absolute, 99)),
        most_ms=float(absolute.max()),
        late_ms=float(signed.mean()),
        near=float(np.mean(absolute <= NEAR_MS)),
    )


def _offered_voices(url: str) -> list[str]:
    with urllib.request.urlopen(ServerAddress.parse(url).http_url("/v1/voices"), timeout=TIMEOUT_S) as answer:
        names = {voice["name"] for voice in json.load(answer)["voices"]}
    return [voice for voice in VOICES if voice in names]


def _measure(url: str, texts: list[str], voice: str) -> dict[str, WordTimeErrors]:
    readings = [read_with_flite(text, voice) for text in texts]
    spoken = asyncio.run(_speak(url, texts, voice))
    reference = [spans_ms(reading, pcm) for reading, (pcm, _) in zip(readings, spoken, strict=True)]
    reported = {
        "word times": [times for _, times in spoken],
        "aligned from audio alone": [
            _spans_from_audio(text, pcm) for text, (pcm, _) in zip(texts, spoken, strict=True)
        ],
        "divided by letters": [_spans_by_letters(text, pcm) for text, (pcm, _) in zip(texts, spoken, strict=True)],
    }
    return {name: word_time_errors(times, reference) for name, times in reported.items()}


async def _speak(url: str, texts: list[str], voice: str) -> list[tuple[Pcm, Spans]]:
    limit = asyncio.Semaphore(MAX_CONCURRENT)
    async with connect(url) as session:
        return await asyncio.gather(
            *(_speak_when_free(session, limit, text, voice, seed) for seed, text in enumerate(texts))
        )


async def _speak_when_free(
    session: Session, limit: asyncio.Semaphore, text: str, voice: str, seed: int
) -> tuple[Pcm, Spans]:
    async with limit:
        for _ in range(MAX_ATTEMPTS):
            try:
                return await _speak_text(session, text, voice, seed)
            except SpeechError as error:
                if error.code != "at_capacity":
                    raise
                await asyncio.sleep((error.retry_after_ms or 1000) / 1000)
        return await _speak_text(session, text, voice, seed)


async def _speak_text(session: Session, text: str, voice: str, seed: int) -> tuple[Pcm, Spans]:
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


def _spans_from_audio(text: str, pcm: Pcm) -> Spans:
    """The word times that a gateway reports for a voice without a table of codes."""
    aligner = WordAligner()
    aligner.push_text(text, len(text))
    spans: Spans = []
    for start in range(0, len(pcm), FRAME_SAMPLES):
        aligner.push_audio(pcm[start : start + FRAME_SAMPLES])
        spans += [(word.start_ms, word.end_ms) for word in aligner.take_words()]
    aligner.finish()
    return spans + [(word.start_ms, word.end_ms) for word in aligner.take_words()]


def _spans_by_letters(text: str, pcm: Pcm) -> Spans:
    """Divides the whole utterance among its words by their numbers of letters, as a baseline."""
    ends = np.cumsum([len(word) + 1 for word in text.split()]) / (len(text) + 1) * len(pcm) / 24
    return list(zip([0.0, *ends[:-1].tolist()], ends.tolist(), strict=True))


# The reference: flite's reading of the same text, warped onto the gateway's

PAUSE = "pau"
HOP_MS = 10
_WINDOW_MS = 25
_BANDS = 40
_STEP_COST = 0.02
"""Cost of a path step that advances in one recording only; it keeps silences aligned."""


@dataclass(frozen=True, slots=True)
class ReferenceReading:
    """A text read by flite: float32 [n] at 24 kHz, and the span of each word in it."""

    pcm: Pcm
    spans_ms: list[tuple[float, float]]


def read_with_flite(text: str, voice: str) -> ReferenceReading:
    """Reads `text` with flite. Raises FileNotFoundError without flite, CalledProcessError when it fails."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "speech.wav"
        timed = [item.split(":") for item in _flite(voice, "-psdur", "-t", text, "-o", str(path)).split()]
        with wave.open(str(path)) as recording:
            rate_hz = recording.getframerate()
            samples = np.frombuffer(recording.readframes(recording.getnframes()), "<i2")
    resampler = Resampler(rate_hz, SAMPLE_RATE_HZ)
    pcm = np.concatenate([resampler.push(samples.astype(np.float32) / np.float32(32768)), resampler.finish()])
    ends_ms = [1000 * float(end) for _, end in timed]
    phones = [
        (phone, begin, end)
        for (phone, _), begin, end in zip(timed, [0.0, *ends_ms], ends_ms, strict=False)
        if phone != PAUSE
    ]
    owners = _owners([_phones(word, voice) for word in text.split()], [phone for phone, *_ in phones])
    spans: list[tuple[float, float]] = []
    for word in range(len(text.split())):
        own = [span for span, owner in zip(phones, owners, strict=True) if owner == word]
        spans.append((own[0][1], own[-1][2]) if own else (spans[-1][1],) * 2 if spans else (0.0, 0.0))
    return ReferenceReading(pcm, spans)


def _warp(reading: Pcm, speech: Pcm) -> tuple[list[int], list[int]]:
    """Warps `reading` onto `speech` by dynamic programming over log mel bands.

    Returns, for each hop of `reading`, the first and the last hop of `speech` on the cheapest path.
    """
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


def spans_ms(reading: ReferenceReading, speech: Pcm) -> list[tuple[float, float]]:
    """The span of each word of the reading in `speech`, float32 [n] at 24 kHz."""
    first, last = _warp(reading.pcm, speech)
    spans = []
    for begin_ms, end_ms in reading.spans_ms:
        # Silence around a word is warped onto the word's quiet edges, so the inner ends of those hops count.
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
    """The index of the word of each phone: aligns, by edit distance, the phones of words spoken alone with those of
    the text, where words sound a little different.
    """
    isolated = [(phone, word) for word, own in enumerate(words) for phone in own]
    cost = np.zeros((len(isolated) + 1, len(phones) + 1), int)
    cost[:, 0], cost[0] = np.arange(len(isolated) + 1), np.arange(len(phones) + 1)
    for i, (expected, _) in enumerate(isolated, 1):
        for j, phone in enumerate(phones, 1):
            cost[i, j] = min(cost[i - 1, j - 1] + (expected != phone), cost[i - 1, j] + 1, cost[i, j - 1] + 1)
    owners = [0] * len(phones)
    i, j = len(isolated), len(phones)
    while j:
        owners[j - 1] = isolated[max(i, 1) - 1][1]
        if i and cost[i, j] == cost[i - 1, j - 1] + (isolated[i - 1][0] != phones[j - 1]):
            i, j = i - 1, j - 1
        elif i and cost[i, j] == cost[i - 1, j] + 1:
            i -= 1
        else:
            j -= 1
    return owners


def _features(pcm: Pcm) -> NDArray[np.float64]:
    """Log energies in mel bands every HOP_MS, less each band's mean: float64 [hops, _BANDS]."""
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
