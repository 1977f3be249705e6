"""Markup that a client has recognised, and warnings of what the speech does not do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes.gateway.in_process import PCM, InProcessGateway
from fakes.pipeline.tone_synthesizer import ToneSpeech, ToneSynthesizer
from fakes.virtual_time import run
from voxgate.gateway.messages.start_fields import DEFAULT_MARKUP
from voxgate.pipeline.interface import MarkupDialect, SpeechChunk, SpeechRequest

ELEVENLABS = "/v1/text-to-speech/ada/stream-input?output_format=pcm_24000"
DEEPGRAM = "/v2/speak?model=ada&encoding=linear16&sample_rate=24000"


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[SpeechRequest]:
    """Requests of the speeches that were opened."""
    opened: list[SpeechRequest] = []
    open_speech = ToneSynthesizer.open

    def note(self: ToneSynthesizer, request: SpeechRequest) -> ToneSpeech:
        opened.append(request)
        return open_speech(self, request)

    monkeypatch.setattr(ToneSynthesizer, "open", note)
    return opened


@pytest.fixture
def noticing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the first chunk of each speech carry a notice."""
    make = ToneSpeech._make

    def with_notice(self: ToneSpeech, frames: int) -> SpeechChunk:
        chunk = make(self, frames)
        return chunk if chunk.first_frame else replace(chunk, notices=("<speed> is not supported and was ignored",))

    monkeypatch.setattr(ToneSpeech, "_make", with_notice)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, DEFAULT_MARKUP),
        ({"markup": []}, ()),
        ({"markup": ["rime", "html"]}, (MarkupDialect.RIME, MarkupDialect.HTML)),
    ],
)
def test_start_selects_the_markup(
    fields: dict[str, list[str]], expected: tuple[MarkupDialect, ...], requests: list[SpeechRequest]
) -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            socket.put(type="start", utterance="a", format=PCM, **fields)
            socket.put(type="text", utterance="a", text="Hello.")
            socket.put(type="end", utterance="a")
            await socket.until("done")
            assert [request.markup for request in requests] == [expected]

    run(scene())


@pytest.mark.parametrize("markup", [["wiki"], "html", ["html"] * 9])
def test_unknown_markup_is_refused(markup: object) -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            socket.put(type="start", utterance="a", format=PCM, markup=markup)
            error = await socket.until("error")
            assert error["code"] == "bad_message"
            assert error["param"].startswith("markup")

    run(scene())


def test_elevenlabs_reads_no_audio_tags(requests: list[SpeechRequest]) -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.dial(ELEVENLABS)
            for text in ("Hello. ", ""):
                socket.put(text=text)
            await socket.hung_up()
            (request,) = requests
            assert request.markup == (*DEFAULT_MARKUP, MarkupDialect.ELEVENLABS)

    run(scene())


@pytest.mark.usefixtures("noticing")
def test_native_client_is_warned_once() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            socket.put(type="start", utterance="a", format=PCM)
            socket.put(type="text", utterance="a", text="Hello there, all of you.")
            socket.put(type="end", utterance="a")
            await socket.until("done")
            (warning,) = socket.of("warning")
            assert (warning["code"], warning["utterance"]) == ("markup_ignored", "a")
            assert "<speed>" in warning["message"]

    run(scene())


@pytest.mark.usefixtures("noticing")
def test_deepgram_client_is_warned() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.dial(DEEPGRAM)
            socket.put(type="Speak", text="Hello. ")
            socket.put(type="Flush")
            await socket.until("Flushed")
            (warning,) = socket.of("Warning")
            assert warning["code"] == "MARKUP_IGNORED"
            assert "<speed>" in warning["description"]

    run(scene())


def test_reasoning_takes_no_slot() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            socket.put(type="start", utterance="a", format=PCM)
            socket.put(type="text", utterance="a", text="<think>How many are there? 4.")
            socket.put(type="ping", id="p")
            await socket.until("pong")
            assert not gateway.synthesizer.speeches
            socket.put(type="text", utterance="a", text="</think>Four.")
            await socket.until("started")

    run(scene())
