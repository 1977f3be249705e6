"""Where speech is written to: a sound file of the kind that its name says, or standard output."""

from __future__ import annotations

import wave
from pathlib import Path
from typing import BinaryIO

from ..client import AudioFormat
from ..client.events import Codec

STANDARD_OUTPUT = Path("-")
_ITS_DESCRIPTOR = 1

_CODECS: dict[str, Codec] = {".wav": "pcm", ".mp3": "mp3", ".ogg": "ogg_opus", ".opus": "ogg_opus"}
"""By suffix. What is no WAV comes from the gateway as the file it is to be."""


def format_for(path: Path) -> AudioFormat:
    """What to ask the gateway for. Raises ValueError for a suffix that stands for nothing it speaks."""
    if path == STANDARD_OUTPUT:
        return AudioFormat("wav")  # its header need not know the length, which comes too late for a pipe
    if not path.suffix:
        return AudioFormat("pcm")
    try:
        return AudioFormat(_CODECS[path.suffix.lower()])
    except KeyError:
        raise ValueError(f"{path} is to be of a kind that is not written here: take {', '.join(_CODECS)}") from None


class SoundFile:
    """Takes the payloads of one utterance in the format of `format_for`. Raises OSError when they cannot be kept."""

    def __init__(self, path: Path, format: AudioFormat) -> None:
        to_pipe = path == STANDARD_OUTPUT
        self._file: BinaryIO = open(_ITS_DESCRIPTOR, "wb", closefd=False) if to_pipe else path.open("wb")  # noqa: SIM115
        self._wav: wave.Wave_write | None = None
        if format.codec == "pcm":
            self._wav = wave.open(self._file, "wb")  # noqa: SIM115 - lives until close()
            self._wav.setnchannels(1)
            self._wav.setsampwidth(2)
            self._wav.setframerate(format.sample_rate)

    def write(self, payload: bytes) -> None:
        if self._wav is not None:
            self._wav.writeframes(payload)
        else:
            self._file.write(payload)
            self._file.flush()  # whoever reads a pipe may be playing it

    def close(self) -> None:
        if self._wav is not None:
            self._wav.close()
        self._file.close()
