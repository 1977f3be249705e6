"""The pages are read by a parser that shares no code with the writer, and by opus-tools where installed."""

from __future__ import annotations

import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from voxgate.codecs.encode import PacketEncoder
from voxgate.codecs.format import OutputFormat
from voxgate.codecs.opus import OpusDecoder

FIRST, LAST = 2, 4


@dataclass
class Page:
    flags: int
    granule: int
    serial: int
    number: int
    body: bytes


def checksum(page: bytes) -> int:
    """Computes the checksum bit by bit, as RFC 3533 defines it."""
    remainder = 0
    for byte in page[:22] + bytes(4) + page[26:]:
        remainder ^= byte << 24
        for _ in range(8):
            remainder = (remainder << 1) & 0xFFFFFFFF ^ (0x04C11DB7 if remainder & 0x80000000 else 0)
    return remainder


def read_pages(stream: bytes) -> list[Page]:
    pages = []
    while stream:
        magic, version, flags, granule, serial, number, crc, segments = struct.unpack_from("<4sBBqIIIB", stream)
        assert (magic, version) == (b"OggS", 0)
        lacing = stream[27 : 27 + segments]
        assert lacing[-1] < 255  # the packet ends on its page
        assert all(value == 255 for value in lacing[:-1])  # and is alone on it
        end = 27 + segments + sum(lacing)
        assert crc == checksum(stream[:end])
        pages.append(Page(flags, granule, serial, number, stream[27 + segments : end]))
        stream = stream[end:]
    return pages


def tone(samples: int) -> np.ndarray:
    return (0.3 * np.sin(2 * np.pi * 330 * np.arange(samples) / 24_000)).astype(np.float32)


def encoded(samples: int, rate: int = 24_000, packet_ms: int = 80, bitrate: int = 64_000) -> list[bytes]:
    encoder = PacketEncoder(OutputFormat("ogg_opus", rate, bitrate, packet_ms))
    packets = [p for at in range(0, samples, 1920) for p in encoder.push(tone(samples)[at : at + 1920])]
    return [packet.payload for packet in packets + encoder.finish()]


@pytest.mark.parametrize("rate", [8000, 24_000, 48_000])
@pytest.mark.parametrize("samples", [2, 1764, 1920, 24_001])
def test_last_page_gives_exact_length(samples: int, rate: int) -> None:
    pages = read_pages(b"".join(encoded(samples, rate)))
    assert [page.number for page in pages] == list(range(len(pages)))
    assert len({page.serial for page in pages}) == 1
    assert [page.flags for page in pages] == [FIRST, *[0] * (len(pages) - 2), LAST]
    assert pages[0].body == struct.pack("<8sBBHIhB", b"OpusHead", 1, 1, 312, rate, 0, 0)
    assert pages[1].body.startswith(b"OpusTags")
    granules = [page.granule for page in pages[2:]]
    assert granules[:-1] == [3840 * (n + 1) for n in range(len(granules) - 1)]
    at_rate = (2 * samples * rate + 24_000) // 48_000
    assert granules[-1] == 312 + at_rate * 48_000 // rate
    assert 3840 * (len(granules) - 1) < granules[-1] <= 3840 * len(granules)


def test_every_packet_is_whole_pages_and_first_has_headers() -> None:
    first, *rest = (read_pages(payload) for payload in encoded(24_000, packet_ms=20))
    assert len(first) == 3
    assert {len(pages) for pages in rest} == {1}


def test_long_packet_is_laced() -> None:
    pages = read_pages(b"".join(encoded(48_000, bitrate=256_000)))
    decoder = OpusDecoder(24_000)
    assert max(len(page.body) for page in pages) > 510
    assert sum(len(decoder.decode(page.body)) for page in pages[2:]) == 2 * pages[-1].granule // 4 // 1920 * 1920 + 1920


def test_streams_have_different_serials() -> None:
    assert read_pages(encoded(1920)[0])[0].serial != read_pages(encoded(1920)[0])[0].serial


@pytest.mark.skipif(shutil.which("opusdec") is None, reason="Debian's opus-tools read the stream")
def test_opus_tools_accept_the_stream(tmp_path: Path) -> None:
    path = tmp_path / "speech.opus"
    path.write_bytes(b"".join(encoded(36_000)))
    info = subprocess.run(["opusinfo", path], capture_output=True, text=True, check=True, timeout=30)
    assert "WARNING" not in info.stdout + info.stderr
    assert "Playback length: 0m:01.500s" in info.stdout
    decode = ["opusdec", "--quiet", "--rate", "24000", "--force-wav", str(path), "-"]
    run = subprocess.run(decode, capture_output=True, check=True, timeout=30)
    at = run.stdout.index(b"data") + 8
    pcm = np.frombuffer(run.stdout[at:], "<i2") / 32767
    assert len(pcm) == 36_000
    want = tone(36_000)
    assert 10 * np.log10(np.mean(want**2) / np.mean((pcm - want) ** 2)) > 15
