"""How far the word times of a running gateway are from those that flite knows of the same text.

For the demo voice, which learnt from flite: other voices do not speak enough like it for the comparison.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..client import DEFAULT_URL, Audio, Session, Words, connect
from ..codecs.pcm import decode_s16le
from .flite_times import read, spans_ms

TEXTS = Path(__file__).with_name("bench_words.txt")
AT_ONCE = 4
NEAR_MS = 100

Pcm = NDArray[np.float32]
Spans = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Errors:
    """Of the beginnings and ends of words: how far off, whichever way; `late_ms` is the mean with its sign."""

    words: int
    median_ms: float
    mean_ms: float
    p90_ms: float
    most_ms: float
    late_ms: float
    near: float
    """Share within 100 ms."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", default=DEFAULT_URL, help="of the gateway that serves the demo voice")
    parser.add_argument("--texts", type=Path, default=TEXTS, help="a file with a text in each line")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(parsed: argparse.Namespace) -> int:
    texts = [line.strip() for line in parsed.texts.read_text("utf-8").splitlines() if line.strip()]
    try:
        read("flite")
    except FileNotFoundError:
        print("voxgate bench words needs flite (Debian and Ubuntu: apt-get install flite)")
        return 1
    spoken = asyncio.run(_speak(parsed.url, texts))
    known = [spans_ms(read(text), pcm) for text, (pcm, _) in zip(texts, spoken, strict=True)]
    told = [times for _, times in spoken]
    shared = [_share_out(text, pcm) for text, (pcm, _) in zip(texts, spoken, strict=True)]
    rows = {"word times": errors(told, known), "shared out by letters": errors(shared, known)}
    if parsed.json:
        print(json.dumps({name: asdict(row) for name, row in rows.items()}, indent=2))
        return 0
    print(f"{'error in ms':<32} median   mean    p90    max   late   within {NEAR_MS} ms")
    for name, row in rows.items():
        figures = (row.median_ms, row.mean_ms, row.p90_ms, row.most_ms, row.late_ms)
        print(f"{name:<32}" + "".join(f"{figure:7.0f}" for figure in figures) + f"{row.near:14.0%}")
    print(f"{len(texts)} texts, {rows['word times'].words} words")
    return 0


def errors(told: list[Spans], known: list[Spans]) -> Errors:
    """Compare times word by word; both tell of the same words."""
    off = np.concatenate([np.subtract(one, two) for one, two in zip(told, known, strict=True)])
    far = np.abs(off)
    return Errors(
        words=sum(map(len, told)),
        median_ms=float(np.median(far)),
        mean_ms=float(far.mean()),
        p90_ms=float(np.percentile(far, 90)),
        most_ms=float(far.max()),
        late_ms=float(off.mean()),
        near=float(np.mean(far <= NEAR_MS)),
    )


async def _speak(url: str, texts: list[str]) -> list[tuple[Pcm, Spans]]:
    turn = asyncio.Semaphore(AT_ONCE)
    async with connect(url) as session:
        return await asyncio.gather(*(_one(session, turn, text, seed) for seed, text in enumerate(texts)))


async def _one(session: Session, turn: asyncio.Semaphore, text: str, seed: int) -> tuple[Pcm, Spans]:
    async with turn, session.utterance(words=True, pacing="none", seed=seed) as utterance:
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


def _share_out(text: str, pcm: Pcm) -> Spans:
    """What splitting the whole utterance, once its length is known, by the letters of its words would say."""
    ends = np.cumsum([len(word) + 1 for word in text.split()]) / (len(text) + 1) * len(pcm) / 24
    return list(zip([0.0, *ends[:-1].tolist()], ends.tolist(), strict=True))
