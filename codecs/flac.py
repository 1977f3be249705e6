"""FLAC by libFLAC; the only file that writes with the library `soundfile`."""

from __future__ import annotations

import io
from typing import Any

from .packet import Packet
from .pcm import Pcm, quantize_s16

_COMPRESSION = 0.0
"""libFLAC's level 0, the only one with short blocks: 48 ms at 24 kHz. Level 5 would send audio 170 ms later."""
_BLOCK_SAMPLES = 1152
"""Samples of a FLAC frame at that level."""


class FlacCoder:
    """A mono stream of 16-bit samples; its payloads joined are a whole `.flac` file.

    Length and checksum in its header are zero, which means unknown: a stream cannot be corrected at its end. libFLAC
    encodes a block when the first sample after it is known, so a call of `encode` may return no packet.
    """

    pre_skip = 0

    def __init__(self, sample_rate_hz: int) -> None:
        import soundfile  # loaded only when a client asks for FLAC

        self._output = _StreamOutput()
        self._file: Any = soundfile.SoundFile(
            self._output,
            "w",
            samplerate=sample_rate_hz,
            channels=1,
            format="FLAC",
            subtype="PCM_16",
            compression_level=_COMPRESSION,
        )
        self._received = 0
        self._sent = 0

    def encode(self, pcm: Pcm) -> list[Packet]:
        self._write(pcm)
        return self._packets(max(0, self._received - 1) // _BLOCK_SAMPLES * _BLOCK_SAMPLES)

    def finish(self, pcm: Pcm, true_samples: int) -> list[Packet]:
        self._write(pcm)
        self._file.close()
        return self._packets(true_samples)

    def _write(self, pcm: Pcm) -> None:
        if len(pcm):
            self._file.write(quantize_s16(pcm))
            self._received += len(pcm)

    def _packets(self, encoded_samples: int) -> list[Packet]:
        if encoded_samples == self._sent:
            return []  # also for the header alone, which then precedes the first block
        samples, self._sent = encoded_samples - self._sent, encoded_samples
        return [Packet(self._output.take(), samples)]


class _StreamOutput(io.RawIOBase):
    """A file of which only the newest bytes are kept; what libFLAC rewrites at the end was sent and is dropped."""

    def __init__(self) -> None:
        self._new = bytearray()
        self._taken = 0
        self._position = 0

    def take(self) -> bytes:
        """Returns the bytes written since the last call."""
        new, self._new = bytes(self._new), bytearray()
        self._taken += len(new)
        return new

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        chunk = bytes(data)
        if self._position == self._end:
            self._new += chunk
        self._position += len(chunk)
        return len(chunk)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._end}[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    @property
    def _end(self) -> int:
        return self._taken + len(self._new)
