"""Which `start` messages are accepted, before the queue."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from fakes.pipeline.tone_synthesizer import ToneSynthesizer
from fakes.virtual_time import run
from voxgate.codecs import opus
from voxgate.codecs.encode import Packet, PacketEncoder
from voxgate.codecs.pcm import FRAME_SAMPLES, Pcm
from voxgate.gateway.messages.client import Start
from voxgate.gateway.session.utterance_factory import UtteranceFactory, check_configured_voices
from voxgate.gateway.settings import Settings, SettingsError
from voxgate.pipeline.errors import UnknownLanguage, UnknownVoice, UnsupportedFormat, UnsupportedOption, VoxgateError
from voxgate.pipeline.interface import EngineState, VoiceInfo, VoiceOwnership

NAMED = VoiceInfo("ada", ("auto", "english"))
DESIGNED = VoiceInfo("designed", ("auto",), instructions=True, needs_instructions=True)


def factory(*voices: VoiceInfo) -> UtteranceFactory:
    model = SimpleNamespace(
        state=EngineState.READY,
        voices={voice.name: voice for voice in voices},
        default_voice=voices[0].name if voices else "",
        max_characters=1000,
        expect_utterance=lambda: None,
    )
    return UtteranceFactory(Settings(), model, PacketEncoder)  # type: ignore[arg-type]  # only the attributes used here


def start(**fields: Any) -> Start:
    return Start(type="start", utterance="u", **fields)


def test_a_rehearsal_is_for_an_utterance_without_options() -> None:
    model, encoded = ToneSynthesizer(), []

    class Encoder(PacketEncoder):
        def push(self, pcm: Pcm) -> list[Packet]:
            encoded.append((self.format, len(pcm)))
            return super().push(pcm)

    opening = UtteranceFactory(Settings(), model, Encoder)
    opening.rehearse()
    run(model.start())
    plain = opening.utterance(start(), 1)
    assert model.rehearsed == [plain.request]
    assert encoded == [(plain.audio_format, FRAME_SAMPLES)]
    assert not model.speeches


def test_names_are_case_insensitive() -> None:
    assert factory(NAMED).utterance(start(voice="Ada", language="English"), 1).number == 1


def test_request_names_the_cloned_voice_that_the_utterance_keeps() -> None:
    cloned = VoiceInfo("eve", ("auto",), cloned=True, digest="of a recording")
    opening = factory(NAMED, cloned)
    assert opening.utterance(start(voice="Eve"), 1).request.voice_digest == "of a recording"
    assert opening.utterance(start(), 2).request.voice_digest == ""


def test_designed_voice_requires_instructions() -> None:
    assert factory(DESIGNED).utterance(start(instructions="An old man, out of breath."), 1)
    for missing in (None, "", "  "):
        with pytest.raises(UnsupportedOption, match="requires instructions"):
            factory(DESIGNED).utterance(start(instructions=missing), 1)


@pytest.mark.parametrize(
    ("fields", "error", "param"),
    [
        ({"voice": "bob"}, UnknownVoice, "voice"),
        ({"language": "german"}, UnknownLanguage, "language"),
        ({"instructions": "Whisper."}, UnsupportedOption, "instructions"),
        ({"visemes": True}, UnsupportedOption, "visemes"),
    ],
)
def test_refusal_names_the_parameter(fields: dict[str, Any], error: type[VoxgateError], param: str) -> None:
    with pytest.raises(error) as caught:
        factory(NAMED).utterance(start(**fields), 1)
    assert caught.value.param == param


def test_refusal_of_a_model_without_voices_says_so() -> None:
    with pytest.raises(UnknownVoice, match="none yet"):
        factory().utterance(start(), 1)


def test_default_voice_is_one_that_the_key_may_use() -> None:
    private = VoiceInfo("eve", ("auto",), cloned=True, ownership=VoiceOwnership("ada"))
    shared = VoiceInfo("max", ("auto",), cloned=True, ownership=VoiceOwnership("ada", shared=True))
    model = factory(private, shared)
    assert [model.for_key(key).default_voice for key in (None, "ada", "bob")] == ["eve", "eve", "max"]
    assert factory(private).for_key("bob").default_voice == ""
    with pytest.raises(UnknownVoice, match="none yet"):
        factory(private).for_key("bob").utterance(start(), 1)


def test_opus_without_its_library_is_refused_as_unsupported_format(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise opus.OpusUnavailable("Opus needs libopus", param="codec")

    monkeypatch.setattr(opus, "_library", missing)
    with pytest.raises(UnsupportedFormat, match="libopus") as caught:
        factory(NAMED).utterance(start(), 1)
    assert caught.value.param == "format.codec"
    assert factory(NAMED).utterance(start(format={"codec": "pcm"}), 1)


VOICES = {name: VoiceInfo(name, ("auto",)) for name in ("heart", "michael")}


@pytest.mark.parametrize("voice", [None, "heart", "MICHAEL"])
def test_configured_voice_may_be_any_voice_of_the_model_in_any_case(voice: str | None) -> None:
    check_configured_voices(Settings(voice=voice), VOICES)


def test_configured_voice_that_does_not_exist_is_refused() -> None:
    with pytest.raises(SettingsError, match="voice must be one of heart, michael, got 'ada'"):
        check_configured_voices(Settings(voice="ada"), VOICES)


def test_alias_of_an_unknown_voice_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    check_configured_voices(Settings(voice_aliases=("alloy=heart", "echo=ada")), VOICES)
    (record,) = caplog.records
    assert "echo stands for the unknown voice ada" in record.getMessage()
