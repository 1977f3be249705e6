"""How far the word times of a running gateway are from those that flite knows of the same text.

For the demo voices, which learnt from flite's: other voices do not speak enough like them for the comparison.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..client import DEFAULT_URL, Audio, ClientError, Session, SpeechError, Unreachable, Words, connect
from ..codecs.pcm import decode_s16le
from ..pipeline.speech import FRAME_SAMPLES
from ..pipeline.words import SpokenClock
from .flite_times import VOICES, read, spans_ms
from .reach import http_url, nobody_at

TEXTS = Path(__file__).with_name("bench_words.txt")
AT_ONCE = 4
TRIES = 20
"""Before a place in the gateway's queue is given up."""
NEAR_MS = 100
TIMEOUT_S = 10

Pcm = NDArray[np.float32]
Spans = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Errors:
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
        return _complain(nobody_at(parsed.url))
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


def shown(rows: dict[str, Errors]) -> str:
    """A table in plain text."""
    lines = [f"{'error in ms':<32} median   mean    p90    p99    max   late   within {NEAR_MS} ms"]
    for name, row in rows.items():
        figures = (row.median_ms, row.mean_ms, row.p90_ms, row.p99_ms, row.most_ms, row.late_ms)
        lines.append(f"{name:<32}" + "".join(f"{figure:7.0f}" for figure in figures) + f"{row.near:14.1%}")
    return "\n".join(lines)


def errors(told: list[Spans], known: list[Spans]) -> Errors:
    """Compare times word by word; both tell of the same words."""
    off = np.concatenate([np.subtract(one, two) for one, two in zip(told, known, strict=True)])
    far = np.abs(off)
    return Errors(
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


def _measured(url: str, texts: list[str], voice: str) -> dict[str, Errors]:
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
    clock = SpokenClock()
    clock.text(text, len(text))
    spans: Spans = []
    for at in range(0, len(pcm), FRAME_SAMPLES):
        clock.audio(pcm[at : at + FRAME_SAMPLES])
        spans += [(word.start_ms, word.end_ms) for word in clock.take_words()]
    clock.finish()
    return spans + [(word.start_ms, word.end_ms) for word in clock.take_words()]


def _share_out(text: str, pcm: Pcm) -> Spans:
    """What splitting the whole utterance, once its length is known, by the letters of its words would say."""
    ends = np.cumsum([len(word) + 1 for word in text.split()]) / (len(text) + 1) * len(pcm) / 24
    return list(zip([0.0, *ends[:-1].tolist()], ends.tolist(), strict=True))
