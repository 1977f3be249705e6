from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest
from numpy.typing import NDArray
from voxgate.codecs.g711 import decode_alaw, decode_mulaw, encode_alaw, encode_mulaw

EVERY_SAMPLE = np.arange(-32767, 32768, dtype=np.int16)
EVERY_CODE = bytes(range(256))


def coded(encode, samples) -> list[int]:
    return list(encode(np.asarray(samples, np.float32) / np.float32(32767)))


def decoded(decode, codes: bytes) -> NDArray[np.int32]:
    return np.rint(decode(codes) * 32767).astype(np.int32)


def test_mulaw_matches_values_of_the_standard() -> None:
    # G.711 table 2: the largest values, the ends of segments, both zeros.
    samples = [32767, 32635, 16764, 16763, 132, 4, 3, 0, -1, -4, -5, -32767]
    # Negative zero, 0x7F in the standard, is coded as positive zero.
    assert coded(encode_mulaw, samples) == [0x80, 0x80, 0x8F, 0x8F, 0xEF, 0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0x7E, 0x00]
    assert decoded(decode_mulaw, bytes([0x80, 0x8F, 0xEF, 0xFF, 0x7F, 0x00])).tolist() == [
        32124,
        16764,
        132,
        0,
        0,
        -32124,
    ]


def test_alaw_matches_values_of_the_standard() -> None:
    samples = [32767, 16384, 16383, 512, 511, 256, 15, 0, -1, -32767]
    assert coded(encode_alaw, samples) == [0xAA, 0xA5, 0xBA, 0xF5, 0xCA, 0xC5, 0xD5, 0xD5, 0x55, 0x2A]
    assert decoded(decode_alaw, bytes([0xAA, 0xD5, 0x55, 0x2A])).tolist() == [32256, 8, -8, -32256]


@pytest.mark.parametrize(("encode", "decode"), [(encode_mulaw, decode_mulaw), (encode_alaw, decode_alaw)])
def test_coding_error_is_at_most_half_a_step(encode, decode) -> None:
    samples = EVERY_SAMPLE.astype(np.int32)
    back = decoded(decode, bytes(coded(encode, samples)))
    # Half a step: 1/32 of the magnitude plus the smallest half step, and what mu-law clips at the top.
    clipped = np.minimum(np.abs(samples), 32635)
    assert (np.abs(np.abs(back) - clipped) <= clipped / 32 + 9).all()
    assert (np.diff(back) >= 0).all()


@pytest.mark.parametrize(("encode", "decode"), [(encode_mulaw, decode_mulaw), (encode_alaw, decode_alaw)])
def test_decoded_samples_encode_to_the_same_codes(encode, decode) -> None:
    again = encode(decode(EVERY_CODE))
    # mu-law's negative zero decodes to a zero without sign.
    assert [code for code, back in zip(EVERY_CODE, again, strict=True) if code != back] in ([], [0x7F])


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="compares with ffmpeg")
@pytest.mark.parametrize(("name", "decode"), [("mulaw", decode_mulaw), ("alaw", decode_alaw)])
def test_every_code_decodes_as_by_ffmpeg(name: str, decode) -> None:
    command = ["ffmpeg", "-v", "error", "-f", name, "-ar", "8000", "-i", "-", "-f", "s16le", "-"]
    run = subprocess.run(command, input=EVERY_CODE, capture_output=True, check=True, timeout=30)
    assert decoded(decode, EVERY_CODE).tolist() == np.frombuffer(run.stdout, "<i2").tolist()
