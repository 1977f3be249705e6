"""Audio of the real talker and codec for a request, compared with that of the reference."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import numpy as np
import pytest
import pytest_asyncio
from family_cases import CASES, HEARD, REFERENCE_TEXT, ReferenceCase
from voxgate.pipeline.cloned_voice import ClonedVoice
from voxgate.pipeline.interface import SamplingOptions, SpeechRequest
from voxgate.pipeline.synthesizer import QwenSynthesizer
from voxgate.pipeline.voice_model import SynthesizerOptions

from .conftest import LocalModel, ReferenceRecording

pytestmark = [pytest.mark.engine, pytest.mark.nightly, pytest.mark.asyncio(loop_scope="module")]

UNGUARDED = """
[text]
trim = false
[limits]
frames_per_token = 0
silent_frames = 0
early_end = true
"""
"""Settings of a voice under which speech equals that of the reference (docs/models.md)."""

TOLERANCE = 2e-5


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def synthesizer(local_model: Callable[[str], LocalModel]) -> AsyncIterator[QwenSynthesizer]:
    folder = local_model("1b7-base").folder
    (folder / "voice.toml").write_text(UNGUARDED)
    synthesizer = QwenSynthesizer(folder, SynthesizerOptions(slots=2, kv_cache_bytes=64 << 20))
    # There is no voice yet to calibrate with.
    await synthesizer.start()
    yield synthesizer
    await synthesizer.close()


def request(case: ReferenceCase, name: str) -> SpeechRequest:
    greedy = SamplingOptions(temperature=0.0, predictor_temperature=0.0, repetition_penalty=case.penalty)
    return SpeechRequest(name, case.language, sampling=greedy, seed=1, max_frames=case.max_new_tokens - 1)


@pytest.mark.parametrize("case", [case for case in CASES if case.name in HEARD], ids=lambda case: case.name)
async def test_voice_in_context_gives_the_audio_of_the_reference(
    recorded: Callable[[str], ReferenceRecording], synthesizer: QwenSynthesizer, case: ReferenceCase
) -> None:
    expected = recorded("audio")[f"{case.name}/audio"]
    name = f"ada-{case.frames}"
    synthesizer.add_voice(ClonedVoice(name, case.speaker_vector, REFERENCE_TEXT, case.reference_codes))
    for paced in (False, True):
        asked = request(case, name)
        speech = synthesizer.open(asked)
        speech.advance(1000)
        for character in case.text:
            speech.push_text(character)
        speech.end()
        audio = np.concatenate([chunk.pcm async for chunk in speech])
        await speech.aclose()
        # The reference cuts at a fraction of the whole, which may round down by one sample.
        assert len(expected) - len(audio) in (0, 1), paced
        assert np.abs(audio - expected[-len(audio) :]).max() < TOLERANCE
    synthesizer.remove_voice(name)
    assert name not in synthesizer.voices
