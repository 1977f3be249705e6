"""What the native protocol has beyond its first edition."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fakes.gateway.in_process import PCM, InProcessGateway, say
from fakes.gateway.packet_encoder import s16le
from fakes.pipeline.tone_synthesizer import tone_pcm
from fakes.virtual_time import run
from voxgate.gateway.messages.connection import CAPABILITIES
from voxgate.gateway.observability.events import Observer, UtteranceRecord
from voxgate.gateway.protocols.native import NativeProtocol, find_key

TEXT = "Say it once more, and then again. "
INVALID_TRACES = (
    f"00-{'0' * 32}-00f067aa0ba902b7-01",
    f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01",
    "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
)
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_defaults_fill_in_what_a_start_leaves_out() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            socket.put(type="defaults", voice="bob", format=PCM, words=True)
            for name, more in (("a", {}), ("b", {"voice": "ada"})):
                socket.put(type="start", utterance=name, **more)
                socket.put(type="text", utterance=name, text=TEXT)
                socket.put(type="end", utterance=name)
            await socket.until("done", 2)
            started = {m["utterance"]: m for m in socket.of("started")}
            assert [started[name]["voice"] for name in "ab"] == ["bob", "ada"]
            assert {m["format"]["codec"] for m in started.values()} == {"pcm"}
            assert {m["utterance"] for m in socket.of("words")} == {"a", "b"}
            socket.put(type="defaults")
            socket.put(type="start", utterance="c")
            socket.put(type="text", utterance="c", text=TEXT)
            assert (await socket.until("started", 3))["voice"] == "ada", "an empty message removes them"

    run(scene())


def test_invalid_defaults_are_refused_and_change_nothing() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            socket.put(type="defaults", voice="bob", format=PCM)
            socket.put(type="defaults", id="d2", voice=3)
            error = await socket.until("error")
            assert (error["code"], error["param"], error["id"]) == ("bad_message", "voice", "d2")
            socket.put(type="defaults", id="d3", utterance="a")
            assert (await socket.until("error", 2))["param"] == "utterance"
            say(socket, "a", TEXT)
            assert (await socket.until("started"))["voice"] == "bob"

    run(scene())


@pytest.mark.parametrize("extended", [False, True])
def test_length_is_told_when_all_is_generated_to_a_client_that_ignores_the_unknown(extended: bool) -> None:
    async def scene() -> None:
        async with InProcessGateway(lookahead_ms=8000) as gateway:
            socket = gateway.connect(protocol=NativeProtocol(extended=extended))
            say(socket, "a", TEXT)
            begun_s = asyncio.get_running_loop().time()
            if extended:
                generated = await socket.until("generated")
                assert asyncio.get_running_loop().time() - begun_s < 0.5, "long before it is played"
            done = await socket.until("done")
            if extended:
                assert {name: generated[name] for name in ("samples", "audio_ms")} == {
                    name: done[name] for name in ("samples", "audio_ms")
                }
            assert len(socket.of("generated")) == extended

    run(scene())


@pytest.mark.parametrize("options", [{"pacing": "none"}, {"lead_ms": 1840}])
def test_length_is_not_told_where_the_end_follows_at_once(options: dict[str, Any]) -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect(protocol=NativeProtocol(extended=True))
            say(socket, "a", "A short one.", **options)
            await socket.until("done")
            assert not socket.of("generated")

    run(scene())


def test_limits_are_told_on_request() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            session = await socket.until("session")
            assert session["capabilities"] == list(CAPABILITIES)
            gateway.sessions[0]._caller.set_limits(
                gateway.sessions[0]._caller.limits.__class__(characters_per_minute=600)
            )
            say(socket, "a", TEXT)
            socket.put(type="limits", id="l1")
            answer = await socket.until("limits")
            assert (answer["id"], answer["limits"]) == ("l1", session["limits"])
            assert answer["quota"] == {"characters_per_minute": 600, "characters_left": 600 - len(TEXT)}

    run(scene())


def test_offsets_count_utf16_units_on_request() -> None:
    text = "\N{GRINNING FACE} ha ha, \N{GRINNING FACE} ho. "

    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            say(socket, "a", text, words=True, offsets="utf16")
            say(socket, "b", text, words=True)
            await socket.until("done", 2)
            counted = {m["utterance"]: m["characters"] for m in socket.of("done")}
            assert counted == {"a": len(text) + 2, "b": len(text)}
            utf16 = text.encode("utf-16-le")
            for message in socket.of("words"):
                for word in message["words"]:
                    if message["utterance"] == "a":
                        heard = utf16[2 * word["start"] : 2 * word["end"]].decode("utf-16-le")
                    else:
                        heard = text[word["start"] : word["end"]]
                    assert heard == word["text"]
            socket.put(type="start", utterance="c", format=PCM, offsets="utf16")
            socket.put(type="text", utterance="c", text=text)
            socket.put(type="text", utterance="c", text="x" * 5000)
            assert (await socket.until("error"))["characters"] == len(text) + 2

    run(scene())


def test_raw_audio_has_no_header_and_the_socket_to_itself() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT, framing="raw", format={**PCM, "packet_ms": 20})
            say(socket, "b", TEXT)
            refused = await socket.until("error")
            assert (refused["code"], refused["utterance"]) == ("too_many_utterances", "b")
            await socket.until("done")
            binary = [message for message in socket.sent if isinstance(message, bytes)]
            assert b"".join(binary) == s16le(tone_pcm(TEXT))
            assert all(binary)
            say(socket, "b", TEXT)
            await socket.until("done", 2)
            say(socket, "c", TEXT)
            say(socket, "d", TEXT, framing="raw")
            assert (await socket.when(lambda m: m["type"] == "error" and m["utterance"] == "d"))["code"] == (
                "too_many_utterances"
            )
            await socket.until("done", 3)

    run(scene())


def test_trace_of_the_client_is_in_the_record() -> None:
    records: list[UtteranceRecord] = []

    class Recorder(Observer):
        def utterance_ended(self, record: UtteranceRecord) -> None:
            records.append(record)

    async def scene() -> None:
        async with InProcessGateway(observer=Recorder()) as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT, traceparent=TRACE)
            say(socket, "b", TEXT)
            await socket.until("done", 2)
            for name, invalid in enumerate(INVALID_TRACES):
                say(socket, str(name), TEXT, traceparent=invalid)
                await socket.until("done", 3 + name)
            say(socket, "c", TEXT, traceparent="00-no-trace-01")
            assert (await socket.until("error"))["param"] == "traceparent"

    run(scene())
    assert [record.traceparent for record in records] == [TRACE, None, *len(INVALID_TRACES) * [None]]


def test_auth_message_holds_the_key_and_is_ignored_elsewhere() -> None:
    assert find_key('{"type": "auth", "key": "abc"}') == "abc"
    for payload in ('{"type": "auth"}', '{"type": "ping"}', "[]", "{", '{"type": "auth", "key": ""}'):
        assert find_key(payload) is None

    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            socket.put(type="auth", key="abc")
            say(socket, "a", TEXT)
            await socket.until("done")
            assert not socket.of("error")

    run(scene())
