"""Files and pipes that `voxgate say` writes speech to."""

from __future__ import annotations

import struct
from io import FileIO
from pathlib import Path

from voxgate.client import AudioFormat
from voxgate.client.events import Codec

STANDARD_OUTPUT = Path("-")
_STANDARD_OUTPUT_DESCRIPTOR = 1

_CODECS: dict[str, Codec] = {".wav": "pcm", ".mp3": "mp3", ".ogg": "ogg_opus", ".opus": "ogg_opus"}
"""Codec by file suffix. The payloads of all but pcm, joined, are the file."""


def format_for(path: Path) -> AudioFormat:
    """The audio format to request for the file `path`. Raises ValueError for a suffix without one."""
    codec = _CODECS.get(path.suffix.lower())
    if path == STANDARD_OUTPUT or (codec in (None, "pcm") and not _can_seek(path)):
        return AudioFormat("wav")  # its header needs no correction at the end
    if not path.suffix:
        return AudioFormat("pcm")
    if codec is None:
        raise ValueError(f"suffix of the output file must be one of {', '.join(_CODECS)}, got {path}")
    return AudioFormat(codec)


def _can_seek(path: Path) -> bool:
    """Whether `path` is a regular file, or will be one: pipes, sockets and devices cannot seek."""
    return path.is_file() or not path.exists()


_WAV_HEADER = struct.Struct("<4sI4s4sIHHIIHH4sI")
_MAX_WAV_BYTES = 0xFFFF_FFFF
"""The largest size that a header can hold."""


def _wav_header(sample_rate_hz: int, data_bytes: int) -> bytes:
    """The header of a WAV file with `data_bytes` of s16le mono samples."""
    file_bytes = min(_WAV_HEADER.size - 8 + data_bytes, _MAX_WAV_BYTES)
    chunk = (b"fmt ", 16, 1, 1, sample_rate_hz, 2 * sample_rate_hz, 2, 16)
    return _WAV_HEADER.pack(b"RIFF", file_bytes, b"WAVE", *chunk, b"data", min(data_bytes, _MAX_WAV_BYTES))


class SoundFile:
    """Writes the payloads of utterances in the format of `format_for`. Methods raise OSError."""

    def __init__(self, path: Path, format: AudioFormat) -> None:
        # Without a buffer: a program at the other end of a pipe may be playing it, and after an error nothing is left
        # to be written when the interpreter ends.
        if path == STANDARD_OUTPUT:
            self._file = FileIO(_STANDARD_OUTPUT_DESCRIPTOR, "wb", closefd=False)
        else:
            self._file = FileIO(path, "wb")
        self._sample_rate_hz = format.sample_rate if format.codec == "pcm" else None
        """Of a WAV file whose header is written here."""
        self._data_bytes = 0
        if self._sample_rate_hz is not None:
            self._write(_wav_header(self._sample_rate_hz, 0))

    def write(self, payload: bytes) -> None:
        self._write(payload)
        self._data_bytes += len(payload)

    def close(self) -> None:
        try:
            if self._sample_rate_hz is not None:
                self._file.seek(0)
                self._write(_wav_header(self._sample_rate_hz, self._data_bytes))
        finally:
            self._file.close()

    def _write(self, content: bytes) -> None:
        rest = memoryview(content)
        while rest:
            rest = rest[self._file.write(rest) :]
