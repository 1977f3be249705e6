"""Opus packets in an Ogg stream (RFC 3533, RFC 7845), one page per packet so that no packet waits for another."""

from __future__ import annotations

import itertools
import secrets
import struct
from functools import cache

from .opus import OpusCoder
from .packet import Packet
from .pcm import Pcm

GRANULE_RATE_HZ = 48_000
"""Rate of granule positions and of the pre-skip in the header, whatever rate was encoded."""

_PLAIN_PAGE, _FIRST_PAGE, _LAST_PAGE = 0, 2, 4
_VENDOR = b"voxgate"


class OggOpusCoder:
    """A `PacketCoder` for an Ogg stream of one mono Opus track; its payloads joined are a whole `.opus` file."""

    def __init__(self, opus: OpusCoder, sample_rate_hz: int, serial: int | None = None) -> None:
        """`serial`: identifies the stream in its file; random unless given."""
        self.pre_skip = opus.pre_skip
        self._opus = opus
        self._granules_per_sample = GRANULE_RATE_HZ // sample_rate_hz
        self._serial = secrets.randbits(32) if serial is None else serial
        self._pages = itertools.count()
        self._decoded_samples = 0
        self._header = self._page(self._head(sample_rate_hz), 0, _FIRST_PAGE) + self._page(_tags(), 0)

    def encode(self, pcm: Pcm) -> list[Packet]:
        return [self._in_page(packet) for packet in self._opus.encode(pcm)]

    def finish(self, pcm: Pcm, true_samples: int) -> list[Packet]:
        """Ends the stream; the granule position of the last page tells where in its packet the audio ends."""
        *packets, last = self._opus.finish(pcm, true_samples)
        end = (self.pre_skip + true_samples) * self._granules_per_sample
        return [*(self._in_page(packet) for packet in packets), self._in_page(last, end)]

    def _in_page(self, packet: Packet, end_granule: int | None = None) -> Packet:
        self._decoded_samples += packet.samples
        granule = self._decoded_samples * self._granules_per_sample
        header, self._header = self._header, b""
        if end_granule is None:
            page = self._page(packet.payload, granule)
        else:
            page = self._page(packet.payload, end_granule, _LAST_PAGE)
        return Packet(header + page, packet.samples)

    def _page(self, body: bytes, granule: int, flags: int = _PLAIN_PAGE) -> bytes:
        """Returns a page that holds one packet of less than 65,025 bytes."""
        lacing = bytes([255] * (len(body) // 255) + [len(body) % 255])
        fields = struct.pack("<4sBBqII", b"OggS", 0, flags, granule, self._serial, next(self._pages))
        segments = bytes([len(lacing)]) + lacing
        checksum = _crc(fields + bytes(4) + segments + body)
        return fields + struct.pack("<I", checksum) + segments + body

    def _head(self, sample_rate_hz: int) -> bytes:
        """Returns the packet OpusHead: version 1, mono, no gain, channel mapping family 0."""
        pre_skip = self.pre_skip * self._granules_per_sample
        return struct.pack("<8sBBHIhB", b"OpusHead", 1, 1, pre_skip, sample_rate_hz, 0, 0)


def _tags() -> bytes:
    return struct.pack("<8sI", b"OpusTags", len(_VENDOR)) + _VENDOR + struct.pack("<I", 0)


def _crc(data: bytes) -> int:
    """Returns Ogg's checksum: polynomial 0x04C11DB7, most significant bit first, neither inverted nor reflected."""
    table = _crc_table()
    checksum = 0
    for byte in data:
        checksum = (checksum << 8) & 0xFFFFFFFF ^ table[checksum >> 24 ^ byte]
    return checksum


@cache
def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        remainder = byte << 24
        for _ in range(8):
            remainder = (remainder << 1) ^ (0x104C11DB7 if remainder >> 31 else 0)
        table.append(remainder)
    return tuple(table)
