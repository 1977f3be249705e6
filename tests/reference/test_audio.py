"""The audio of the codec, and how the part of a reference recording is cut off (docs/qwen3_tts.md)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from family_cases import CASES, DECODED_FRAMES, HEARD, decoded_codes
from voxgate.codecs.neural.decoder import CodecDecoder

from .conftest import LocalModel, ReferenceRecording

TOLERANCE = 2e-5


@pytest.fixture(scope="module")
def decoder(local_model: Callable[[str], LocalModel]) -> CodecDecoder:
    return CodecDecoder.from_checkpoint(local_model("0b6-base").checkpoint.codec_folder)


@torch.inference_mode()
def decode(decoder: CodecDecoder, codes: np.ndarray, chunks: list[int]) -> np.ndarray:
    """float32 [frames * 1920], decoded in chunks of these sizes; the last size repeats."""
    state, audio, at = decoder.initial_state(1), [], 0
    rows = torch.from_numpy(codes.astype(np.int64))[None]
    while at < len(codes):
        size = chunks[min(len(audio), len(chunks) - 1)]
        pcm, state = decoder.decode(rows[:, at : at + size], state)
        audio.append(pcm[0].numpy())
        at += size
    return np.concatenate(audio)


@pytest.mark.parametrize("frames", DECODED_FRAMES)
@pytest.mark.parametrize("chunks", [[100], [1], [1, 2, 4]])
def test_audio_equals_the_reference(
    recorded: Callable[[str], ReferenceRecording], decoder: CodecDecoder, frames: int, chunks: list[int]
) -> None:
    expected = recorded("audio")[f"codes/{frames}"]
    made = decode(decoder, decoded_codes(frames), chunks)
    assert made.shape == expected.shape
    assert np.abs(made - expected).max() < TOLERANCE


@pytest.mark.parametrize("case", [case for case in CASES if case.name in HEARD], ids=lambda case: case.name)
def test_frames_of_the_reference_audio_are_cut_off(
    recorded: Callable[[str], ReferenceRecording], decoder: CodecDecoder, case: str
) -> None:
    audio, codes = (recorded("audio")[f"{case.name}/{part}"] for part in ("audio", "codes"))
    made = decode(decoder, np.concatenate([case.reference_codes, codes]), [8])[-1920 * len(codes) :]
    # The reference cuts at a fraction of the whole, which may round down by one sample.
    assert len(audio) - len(made) in (0, 1)
    assert np.abs(made - audio[-len(made) :]).max() < TOLERANCE
    unwarmed = decode(decoder, codes, [8])
    assert np.abs(unwarmed - made).max() > 100 * TOLERANCE
