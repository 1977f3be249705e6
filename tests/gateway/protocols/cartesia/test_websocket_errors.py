"""What Cartesia's clients are told when something is refused or fails."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fakes.gateway.in_process import InProcessGateway
from fakes.gateway.packet_encoder import s16le
from fakes.pipeline.tone_synthesizer import ToneScript, tone_pcm
from fakes.virtual_time import run
from voxgate.gateway.protocols.cartesia.websocket import MAX_CONTEXTS

from .cartesia_client import FORMAT, TEXT, URL, heard, of, request


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"voice": {"mode": "id", "id": "eve"}}, 404, "voice_not_found"),
        ({"voice": {"mode": "embedding", "embedding": [0.1] * 192}}, 400, "unsupported_option"),
        ({"language": "xx"}, 400, "unknown_language"),
        ({"output_format": None}, 400, "bad_message"),
        ({"output_format": {**FORMAT, "container": "wav"}}, 400, "unsupported_format"),
        ({"output_format": {**FORMAT, "encoding": "pcm_s24le"}}, 400, "unsupported_format"),
        ({"output_format": {**FORMAT, "sample_rate": 11_025}}, 400, "unsupported_format"),
        ({"output_format": {**FORMAT, "encoding": "pcm_mulaw"}}, 400, "unsupported_format"),
        ({"transcript": 5}, 400, "bad_message"),
        ({"continue": "perhaps"}, 400, "bad_message"),
        ({"transcript": "x" * 5000}, 400, "text_too_long"),
    ],
)
def test_refused_message_names_its_context(fields: dict[str, Any], status: int, code: str) -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(URL)
            socket.put(**request("a", TEXT) | fields)
            error = await socket.until("error")
            assert (error["context_id"], error["status_code"], error["error_code"]) == ("a", status, code)
            assert error["done"] is True
            assert error["title"]
            assert error["message"]
            assert error["request_id"]
            socket.put(**request("a", TEXT, **{"continue": False}))
            await socket.when(of("done", "a"))
            assert heard(socket, "a") == s16le(tone_pcm(TEXT)), "the id is free again"

    run(scene())


def test_error_ends_its_context_alone() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(URL)
            socket.put(**request("a", TEXT * 5))
            socket.put(**request("b", TEXT * 5, **{"continue": False}))
            await socket.when(of("chunk", "a"))
            socket.put(**request("a", "x" * 5000))
            await socket.when(of("error", "a"))
            await asyncio.sleep(0.5)
            assert bench.admission.active == 1, "what was refused is not spoken on"
            await socket.when(of("done", "b"))
            assert heard(socket, "b") == s16le(tone_pcm(TEXT * 5))
            assert not [m for m in socket.messages if of("done", "a")(m)]

    run(scene())


def test_failure_during_speech_is_the_last_message() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(fail_frame=8, frame_s=0.05)) as bench:
            socket = bench.dial(URL)
            socket.put(**request("a", TEXT, flush=True))
            socket.put(**request("a", TEXT, **{"continue": False}))
            error = await socket.when(of("error", "a"))
            assert (error["status_code"], error["error_code"]) == (500, "generation_failed")
            await asyncio.sleep(5)
            assert socket.messages[-1] == error

    run(scene())


def test_busy_talkers_are_told_as_too_many_requests() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1, queue_length=0) as bench:
            socket = bench.dial(URL)
            socket.put(**request("a", TEXT))
            await socket.when(of("chunk", "a"))
            socket.put(**request("b", TEXT))
            socket.put(**request("b", "", **{"continue": False}))
            error = await socket.when(of("error", "b"))
            assert (error["status_code"], error["error_code"]) == (503, "concurrency_limited")
            socket.put(context_id="a", cancel=True)

    run(scene())


def test_contexts_are_bounded() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=100, utterances_per_session=100, starts_per_s=1000) as bench:
            socket = bench.dial(URL)
            socket.put(**request("flushed", "Hi.", flush=True))
            await socket.when(of("flush_done", "flushed"))
            for n in range(MAX_CONTEXTS):
                socket.put(**request(f"c{n}", "Wait"))
            await asyncio.sleep(1)
            assert not socket.of("error"), "a context that waits behind a flush makes room"
            socket.put(**request("one more", "Wait"))
            error = await socket.when(of("error", "one more"))
            assert (error["status_code"], error["error_code"]) == (429, "concurrency_limited")
            for n in range(MAX_CONTEXTS):
                socket.put(context_id=f"c{n}", cancel=True)
                await asyncio.sleep(0.2)

    run(scene())


def test_thousands_of_contexts_keep_nothing() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(URL)
            for n in range(2000):
                socket.put(**request(f"c{n}", "Hi.", **{"continue": n % 2 == 0}))
                if n % 100 == 0:
                    await asyncio.sleep(1)
            await socket.hung_up()
            assert len(socket.messages) < 3000

    run(scene())


def test_message_without_a_readable_context_is_refused() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(URL)
            socket.put_raw("{")
            error = await socket.until("error")
            assert error["context_id"] is None
            socket.put(context_id="x" * 200, transcript="Hi.")
            error = await socket.until("error", 2)
            assert error["error_code"] == "bad_message"

    run(scene())
