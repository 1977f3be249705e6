"""The header of audio packets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from voxgate.gateway.audio_header import AUDIO_HEADER_BYTES, AudioHeader


def test_audio_header_has_the_documented_bytes() -> None:
    packed = AudioHeader(0x01020304, 0x0A0B0C0D, 0x1122334455667788, 0x0780, first=True, last=True).pack()
    assert packed == bytes.fromhex("01 03 8007 04030201 0d0c0b0a 8877665544332211")
    assert len(packed) == AUDIO_HEADER_BYTES


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.integers(0, 65535),
       st.booleans(), st.booleans(), st.binary(max_size=8))  # fmt: skip
def test_audio_header_round_trip(
    number: int, seq: int, pts: int, samples: int, first: bool, last: bool, payload: bytes
) -> None:
    header = AudioHeader(number, seq, pts, samples, first, last)
    assert AudioHeader.unpack(header.pack() + payload) == (header, payload)


@pytest.mark.parametrize("message", [b"", bytes(19), b"\x02" + bytes(19)])
def test_invalid_audio_header_is_refused(message: bytes) -> None:
    with pytest.raises(ValueError, match="audio"):
        AudioHeader.unpack(message)
