"""Home Assistant's Wyoming protocol, with the client of its own library."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from fakes.gateway.loopback import gateway
from fakes.gateway.packet_encoder import s16le
from fakes.pipeline.tone_synthesizer import ToneScript, ToneSynthesizer, tone_pcm
from fakes.waiting import DEADLINE_S, until
from pydantic import ValidationError
from voxgate.gateway.server import Gateway
from voxgate.gateway.settings import Settings
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.error import Error
from wyoming.event import Event
from wyoming.info import Describe, Info
from wyoming.ping import Ping, Pong
from wyoming.tts import (
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeStopped,
    SynthesizeVoice,
)

TEXT = "The quick brown fox."
DESCRIBE = Describe().event()


@asynccontextmanager
async def connected(served: Gateway) -> AsyncIterator[AsyncTcpClient]:
    port = served._listener.wyoming.port
    assert port is not None
    async with asyncio.timeout(DEADLINE_S), AsyncTcpClient("127.0.0.1", port) as client:
        yield client


async def read(client: AsyncTcpClient) -> Event:
    event = await client.read_event()
    assert event is not None, "the connection is closed"
    return event


async def read_speech(client: AsyncTcpClient) -> bytes:
    """The audio up to `audio-stop`."""
    start = AudioStart.from_event(await read(client))
    assert (start.rate, start.width, start.channels) == (24_000, 2, 1)
    audio = b""
    while not AudioStop.is_type((event := await read(client)).type):
        chunk = AudioChunk.from_event(event)
        assert chunk.timestamp == len(audio) // 2 * 1000 // 24_000
        audio += chunk.audio
    assert AudioStop.from_event(event).timestamp == len(audio) // 2 * 1000 // 24_000
    return audio


async def test_voices_are_described() -> None:
    async with gateway(wyoming_port=0) as served, connected(served) as client:
        await client.write_event(DESCRIBE)
        (program,) = Info.from_event(await read(client)).tts
        assert program.supports_synthesize_streaming
        assert [(voice.name, voice.languages) for voice in program.voices] == [("ada", ["en"]), ("bob", ["de", "en"])]
        await client.write_event(Ping("x").event())
        assert Pong.from_event(await read(client)).text == "x"


async def test_a_text_is_spoken_and_then_another() -> None:
    synthesizer = ToneSynthesizer()
    async with gateway(synthesizer, wyoming_port=0) as served, connected(served) as client:
        for voice in (None, SynthesizeVoice("bob"), SynthesizeVoice(language="en_US"), SynthesizeVoice("alloy")):
            await client.write_event(Synthesize(TEXT, voice).event())
            assert await read_speech(client) == s16le(tone_pcm(TEXT))
    requests = [(speech.request.voice, speech.request.language) for speech in synthesizer.speeches]
    assert requests == [("ada", "auto"), ("bob", "auto"), ("ada", "english"), ("ada", "auto")]


async def test_text_is_spoken_while_it_arrives() -> None:
    async with gateway(wyoming_port=0) as served, connected(served) as client:
        await client.write_event(SynthesizeStart(SynthesizeVoice("ada")).event())
        await client.write_event(SynthesizeChunk("The quick ").event())
        assert AudioStart.is_type((await read(client)).type)
        assert AudioChunk.is_type((await read(client)).type), "before the text has ended"
        await client.write_event(SynthesizeChunk("brown fox.").event())
        await client.write_event(Synthesize(TEXT).event())  # for servers that do not take text in pieces
        await client.write_event(SynthesizeStop().event())
        while not AudioStop.is_type((event := await read(client)).type):
            assert AudioChunk.is_type(event.type)
        assert SynthesizeStopped.is_type((await read(client)).type)
        await client.write_event(Synthesize(TEXT).event())
        assert await read_speech(client) == s16le(tone_pcm(TEXT))


async def test_no_text_is_no_error() -> None:
    async with gateway(wyoming_port=0) as served, connected(served) as client:
        await client.write_event(SynthesizeStart().event())
        await client.write_event(SynthesizeStop().event())
        assert AudioStop.is_type((await read(client)).type)
        assert SynthesizeStopped.is_type((await read(client)).type)
        await client.write_event(Synthesize(" ").event())
        assert AudioStop.is_type((await read(client)).type)


@pytest.mark.parametrize(
    ("events", "code"),
    [
        ([Synthesize(TEXT, SynthesizeVoice("eve")).event()], "unknown_voice"),
        ([Synthesize(TEXT, SynthesizeVoice(language="tlh")).event()], "unknown_language"),
        ([Synthesize("x" * 5000).event()], "text_too_long"),
        ([Event("synthesize")], "bad_message"),
        ([Event("synthesize", {"text": 5})], "bad_message"),
        ([Event("synthesize", {"text": "a", "voice": 5})], "bad_message"),
        ([SynthesizeChunk("a").event()], "bad_message"),
        ([SynthesizeStop().event()], "bad_message"),
        ([SynthesizeStart().event(), SynthesizeStart().event()], "bad_message"),
    ],
)
async def test_an_error_is_reported_and_ends_the_connection(events: list[Event], code: str) -> None:
    async with gateway(wyoming_port=0) as served, connected(served) as client:
        for event in events:
            await client.write_event(event)
        assert Error.from_event(await read(client)).code == code
        assert await client.read_event() is None


async def test_a_lost_engine_is_reported() -> None:
    failing = ToneSynthesizer(ToneScript(fail_frame=4))
    async with gateway(failing, wyoming_port=0) as served, connected(served) as client:
        await client.write_event(Synthesize(TEXT).event())
        while not Error.is_type((event := await read(client)).type):
            assert not AudioStop.is_type(event.type)
        assert Error.from_event(event).code
        assert await client.read_event() is None


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"5\n",
        b"{}\n",
        b'{"type": 5}\n',
        b'{"type": "describe", "data": 5}\n',
        b'{"type": "describe", "data_length": 999999999}\n',
        b'{"type": "describe", "payload_length": 999999999}\n',
        b'{"type": "describe", "data_length": "x"}\n',
        b"x" * 200_000,
        b"\xff\xfe\n",
        b"[" * 60_000 + b"\n",
        b'{"type": "describe", "data_length": 60000}\n' + b"[" * 60_000,
        b'{"type": "describe", "data": ' + b'{"a": ' * 2000 + b"1" + b"}" * 2002 + b"\n",
    ],
)
async def test_what_is_no_event_ends_the_connection_and_nothing_else(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with gateway(wyoming_port=0) as served, connected(served) as other:
        reader, writer = await asyncio.open_connection("127.0.0.1", served._listener.wyoming.port)
        writer.write(sent)
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        await other.write_event(DESCRIBE)
        assert Info.is_type((await read(other)).type)
        await until(lambda: served._sessions.total_open == 1)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_wrong_field_is_named_in_one_line() -> None:
    async with gateway(wyoming_port=0) as served, connected(served) as client:
        await client.write_event(Event("synthesize", {"text": 5}))
        error = Error.from_event(await read(client))
    expected = "the event 'synthesize' has a missing or wrong field: text: Input should be a valid string, got 5"
    assert error.text == expected


async def test_events_that_are_not_for_a_speech_service_are_ignored() -> None:
    async with gateway(wyoming_port=0) as served, connected(served) as client:
        await client.write_event(Event("transcribe", {"language": "en"}))
        await client.write_event(Event("audio-chunk", {"rate": 1}, b"1234"))
        await client.write_event(DESCRIBE)
        assert Info.is_type((await read(client)).type)


async def test_connections_count_as_sockets() -> None:
    async with gateway(wyoming_port=0, sockets=1) as served:
        async with connected(served) as client:
            await client.write_event(DESCRIBE)
            await read(client)
            async with connected(served) as refused:
                assert Error.from_event(await read(refused)).code == "at_capacity"
                assert await refused.read_event() is None
        await until(lambda: served._sessions.total_open == 0)
        async with connected(served) as client:
            await client.write_event(Synthesize(TEXT).event())
            assert await read_speech(client)


async def test_a_client_that_leaves_frees_its_slot() -> None:
    synthesizer = ToneSynthesizer()
    async with gateway(synthesizer, wyoming_port=0) as served:
        async with connected(served) as client:
            await client.write_event(SynthesizeStart().event())
            await client.write_event(SynthesizeChunk("The quick ").event())
            await read(client)
        await until(lambda: not synthesizer.open_speeches)


async def test_speech_is_finished_in_a_drain() -> None:
    async with gateway(wyoming_port=0) as served, connected(served) as client:
        await client.write_event(SynthesizeStart().event())
        await client.write_event(SynthesizeChunk("The quick ").event())
        await read(client)
        drain = asyncio.create_task(served.drain())
        await until(lambda: served._sessions.draining)
        async with connected(served) as late:
            assert Error.from_event(await read(late)).code == "draining"
        await client.write_event(SynthesizeStop().event())
        while not SynthesizeStopped.is_type((await read(client)).type):
            pass
        await drain


def test_the_port_and_keys_exclude_each_other() -> None:
    key = f"me=sha256:{hashlib.sha256(b'x').hexdigest()}"
    with pytest.raises(ValidationError, match="wyoming_port requires a gateway without keys"):
        Settings(wyoming_port=10_200, keys=(key,))


async def test_there_is_no_port_by_default() -> None:
    async with gateway() as served:
        assert served._listener.wyoming.port is None
