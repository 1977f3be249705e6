"""Writes what docs/voice.md shows: the figures between its marks, sounds to listen to, and spectrograms."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from voxgate.codecs.encode import PacketEncoder
from voxgate.codecs.format import AudioFormat

from . import report, sources, texts
from .picture import spectrograms
from .run import Results, Run
from .speaker import speaker

PAGE = "voice.md"
BEGIN, END = "<!-- figures: scripts/eval-voice --publish -->", "<!-- end of figures -->"
SAMPLES = (
    "Take the second road on the left, and you will see the lake.",
    "That comes to $14.50, and your train leaves at 10:45.",
)
"""Of no set: what is shown must not be what was picked by its figures."""
_FORMAT = AudioFormat("ogg_opus", bitrate=20_000)

Pcm = NDArray[np.float32]


async def publish(run: Run, results: Results, docs: Path) -> None:
    """Raises ValueError when the page has no place for the figures."""
    names = [voice.voice for voice in results.voices if voice.voice != "all"]
    rows = []
    async with speaker(run.checkpoint) as speaking:
        for number, written in enumerate(SAMPLES):
            cells = []
            for voice in names:
                said = sources.read(voice, texts.spoken(written))
                made = (await speaking.speak(voice, written, 0, run.sampling)).pcm
                links = [
                    _sound(docs, f"{voice}_{number}_source", "source", said),
                    _sound(docs, f"{voice}_{number}_voice", "voice", made),
                ]
                cells.append(", ".join(links))
                if number == 0:
                    pictures = [("flite", said), ("this voice", made)]
                    spectrograms([(f"{voice}, {name}", pcm) for name, pcm in pictures], picture(docs, voice))
            rows.append((written, *cells))
        paragraph = texts.load(texts.PARAGRAPHS)[0]
        made = (await speaking.speak(names[0], paragraph.written, 0, run.sampling)).pcm
        rows.append(("ten sentences", _sound(docs, f"{names[0]}_paragraph", "voice", made), *("" for _ in names[1:])))
    shown = [
        report.tables(results),
        "To listen to:",
        report.table(("", *names), rows),
        "\n\n".join(
            f"![{voice}: flite above, this voice below](images/{picture(docs, voice).name})" for voice in names
        ),
    ]
    page = docs / PAGE
    page.write_text(replaced(page.read_text("utf-8"), shown), encoding="utf-8")


def replaced(page: str, parts: Sequence[str]) -> str:
    """The page with these parts between its two marks. ValueError when it lacks one."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks {BEGIN!r} or {END!r}")
    return before + "\n\n".join([begin, *parts, end]) + after


def picture(docs: Path, voice: str) -> Path:
    return docs / "images" / f"voice_{voice}.png"


def _sound(docs: Path, name: str, label: str, pcm: Pcm) -> str:
    """Writes it in Ogg Opus; returns the link."""
    encoder = PacketEncoder(_FORMAT)
    payloads = [packet.payload for packet in [*encoder.push(pcm), *encoder.finish()]]
    path = docs / "sounds" / f"{name}.ogg"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(payloads))
    return f"[{label}](sounds/{path.name})"
