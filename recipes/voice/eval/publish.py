"""Writes the figures of docs/voice.md between its marks, audio samples and spectrograms, and links in the README."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from voxgate.codecs.encode import PacketEncoder
from voxgate.codecs.format import OutputFormat
from voxgate.codecs.pcm import SAMPLE_RATE_HZ, Pcm

from . import plan as texts
from . import report
from .run import Results, Run
from .session import open_speaker

_WINDOW, _HOP = 600, 240
"""25 ms and 10 ms."""
_UP_TO_HZ, _RANGE_DB = 8000, 70
_HEIGHT, _LABEL, _GAP = 100, 16, 6
_COLOURS = 16
_SCALE = np.array([[252, 252, 250], [250, 208, 150], [226, 110, 90], [140, 44, 110], [44, 18, 84], [8, 6, 28]], float)
"""From silence to loud; dark on light, which is suitable for print."""


def spectrograms(sounds: Sequence[tuple[str, Pcm]], path: Path) -> None:
    """Write a PNG of the named sounds, float32 [n] at 24 kHz each, with 100 columns per second."""
    levels = [_levels_db(pcm) for _, pcm in sounds]
    top, width = max(float(one.max()) for one in levels), max(one.shape[1] for one in levels)
    step = _HEIGHT + _LABEL + _GAP
    image = Image.new("RGB", (width, step * len(sounds) - _GAP), "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(12)
    for number, ((name, _), one) in enumerate(zip(sounds, levels, strict=True)):
        draw.text((2, number * step), name, fill="black", font=font)
        image.paste(_coloured((one - top) / _RANGE_DB + 1), (0, number * step + _LABEL))
    path.parent.mkdir(parents=True, exist_ok=True)
    image.quantize(_COLOURS).save(path, optimize=True)


def _levels_db(pcm: Pcm) -> NDArray[np.float64]:
    """Levels [frequency, time], low frequencies last."""
    padded = np.pad(pcm.astype(np.float64), (0, _WINDOW))
    frames = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW)[: len(pcm) : _HOP] * np.hanning(_WINDOW)
    spectrum = np.abs(np.fft.rfft(frames, 1024))[:, : 1024 * _UP_TO_HZ // SAMPLE_RATE_HZ]
    levels: NDArray[np.float64] = 20 * np.log10(spectrum + 1e-5).T[::-1]
    return levels


def _coloured(loudness: NDArray[np.float64]) -> Image.Image:
    """An image of `loudness`, [frequency, time] from 0 to 1."""
    at = np.clip(loudness, 0, 1) * (len(_SCALE) - 1)
    channels = [np.interp(at, np.arange(len(_SCALE)), _SCALE[:, channel]) for channel in range(3)]
    image = Image.fromarray(np.stack(channels, -1).astype(np.uint8))
    return image.resize((image.width, _HEIGHT), Image.Resampling.BOX)


PAGE = "voice.md"
BEGIN, END = "<!-- figures: scripts/eval-voice --publish -->", "<!-- end of figures -->"
SAMPLES = (
    "Take the second road on the left, and you will see the lake.",
    "That comes to $14.50, and your train leaves at 10:45.",
)
"""Texts of no evaluation set, so that samples are not selected by their figures."""
_FORMAT = OutputFormat("ogg_opus", bitrate=24_000)
README_BEGIN, README_END = "<!-- samples: scripts/eval-voice --publish -->", "<!-- end of samples -->"
_README_SAMPLES = 3


async def publish(run: Run, results: Results, root: Path) -> None:
    """Write figures, samples and spectrograms into `docs`, and links to samples into the README.

    Deletes the samples and spectrograms of the old figures. Raises ValueError if a page lacks its marks.
    """
    docs = root / "docs"
    page, readme = docs / PAGE, root / "README.md"
    names = [voice.voice for voice in results.voices if voice.voice != "all"]
    replaced(readme.read_text("utf-8"), [], README_BEGIN, README_END)
    for name in linked(page.read_text("utf-8")):
        (docs / name).unlink(missing_ok=True)
    rows = []
    async with open_speaker(run.checkpoint) as speaker:
        for number, written in enumerate(SAMPLES):
            cells = []
            for voice in names:
                source = run.sources.read(voice, texts.spoken(written))
                made = (await speaker.speak(voice, written, 0, run.sampling)).pcm
                links = [
                    _sound(docs, f"{voice}_{number}_source", "source", source),
                    _sound(docs, f"{voice}_{number}_voice", "voice", made),
                ]
                cells.append(", ".join(links))
                if number == 0:
                    pictures = [("source", source), ("this voice", made)]
                    spectrograms([(f"{voice}, {name}", pcm) for name, pcm in pictures], picture(docs, voice))
            rows.append((written, *cells))
        paragraph = texts.load(texts.PARAGRAPHS)[0]
        made = (await speaker.speak(names[0], paragraph.written, 0, run.sampling)).pcm
        links = [
            _sound(docs, f"{names[0]}_paragraph_source", "source", run.sources.read(names[0], paragraph.spoken)),
            _sound(docs, f"{names[0]}_paragraph_voice", "voice", made),
        ]
        rows.append(("ten sentences", ", ".join(links), *("" for _ in names[1:])))
    shown = [
        report.tables(results),
        "To listen to:",
        report.table(("", *names), rows),
        "\n\n".join(
            f"![{voice}: the source above, this voice below](images/{picture(docs, voice).name})" for voice in names
        ),
    ]
    page.write_text(replaced(page.read_text("utf-8"), shown), encoding="utf-8")
    readme.write_text(
        replaced(readme.read_text("utf-8"), [samples_line(names)], README_BEGIN, README_END), encoding="utf-8"
    )


def samples_line(names: Sequence[str]) -> str:
    """The README's links to the first sample of the first voices."""
    links = (f"[{name}](docs/sounds/{name}_0_voice.ogg)" for name in names[:_README_SAMPLES])
    return f"The demo voice, generated on a CPU: {', '.join(links)} ([more, beside their sources](docs/voice.md))."


def linked(page: str) -> list[str]:
    """The samples and pictures that the page's figures link to. Raises ValueError if it lacks a mark."""
    replaced(page, [])
    figures = page.partition(BEGIN)[2].partition(END)[0]
    return re.findall(r"\((sounds/\w+\.ogg|images/voice_\w+\.png)\)", figures)


def replaced(page: str, parts: Sequence[str], begin: str = BEGIN, end: str = END) -> str:
    """The page with these parts between its two marks. Raises ValueError if it lacks one."""
    before, begin_found, rest = page.partition(begin)
    _, end_found, after = rest.partition(end)
    if not begin_found or not end_found:
        raise ValueError(f"the page lacks {begin!r} or {end!r}")
    return before + "\n\n".join([begin, *parts, end]) + after


def picture(docs: Path, voice: str) -> Path:
    """File of a voice's spectrograms."""
    return docs / "images" / f"voice_{voice}.png"


def _sound(docs: Path, name: str, label: str, pcm: Pcm) -> str:
    """Write the audio in Ogg Opus; returns a link to it."""
    encoder = PacketEncoder(_FORMAT)
    payloads = [packet.payload for packet in [*encoder.push(pcm), *encoder.finish()]]
    path = docs / "sounds" / f"{name}.ogg"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(payloads))
    return f"[{label}](sounds/{path.name})"
