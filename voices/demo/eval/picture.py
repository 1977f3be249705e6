"""Spectrograms, one above the other on one scale of time and level."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from .sound import RATE_HZ

Pcm = NDArray[np.float32]
_WINDOW, _HOP = 600, 240
"""25 ms and 10 ms."""
_UP_TO_HZ, _RANGE_DB = 8000, 70
_HEIGHT, _LABEL, _GAP = 100, 16, 6
_COLOURS = 48
_SCALE = np.array([[252, 252, 250], [250, 208, 150], [226, 110, 90], [140, 44, 110], [44, 18, 84], [8, 6, 28]], float)
"""From silence to loud; dark on light, so that a page may be read in print too."""


def spectrograms(sounds: Sequence[tuple[str, Pcm]], path: Path) -> None:
    """Write a PNG of named sounds, float32 [n] at 24 kHz each, 100 columns a second."""
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
    """[frequency, time], low frequencies last."""
    padded = np.pad(pcm.astype(np.float64), (0, _WINDOW))
    frames = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW)[: len(pcm) : _HOP] * np.hanning(_WINDOW)
    spectrum = np.abs(np.fft.rfft(frames, 1024))[:, : 1024 * _UP_TO_HZ // RATE_HZ]
    levels: NDArray[np.float64] = 20 * np.log10(spectrum + 1e-5).T[::-1]
    return levels


def _coloured(loudness: NDArray[np.float64]) -> Image.Image:
    """`loudness`: [frequency, time], 0 silent to 1 loudest."""
    at = np.clip(loudness, 0, 1) * (len(_SCALE) - 1)
    channels = [np.interp(at, np.arange(len(_SCALE)), _SCALE[:, channel]) for channel in range(3)]
    image = Image.fromarray(np.stack(channels, -1).astype(np.uint8))
    return image.resize((image.width, _HEIGHT), Image.Resampling.BOX)
