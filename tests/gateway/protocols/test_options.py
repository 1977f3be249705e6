"""What an address asks for, in ElevenLabs' and in Deepgram's words, and how it is refused before there is a socket."""

from __future__ import annotations

import json

import pytest
from fakes.gateway.in_process import InProcessGateway
from fakes.virtual_time import run
from voxgate.gateway.protocols.deepgram import v1 as deepgram_options
from voxgate.gateway.protocols.elevenlabs import websocket as elevenlabs_options
from voxgate.pipeline.errors import AtCapacity, EngineNotReady, RequestError, UnknownVoice, VoxgateError


@pytest.mark.parametrize(
    ("url", "param"),
    [
        ("/v1/text-to-speech/eve/multi-stream-input", "voice"),
        ("/v1/text-to-speech/ada/stream-input?output_format=flac", "output_format"),
        ("/v1/text-to-speech/ada/multi-stream-input?language_code=xx", "language_code"),
        ("/v1/text-to-speech/ada/multi-stream-input?inactivity_timeout=soon", "inactivity_timeout"),
        ("/v1/speak?model=eve", "voice"),
        ("/v1/speak?encoding=flac", "encoding"),
        ("/v2/speak?sample_rate=12345", "sample_rate"),
        ("/v2/speak?sample_rate=many", "sample_rate"),
        ("/v1/speak?encoding=mulaw&sample_rate=24000", "sample_rate"),
    ],
)
def test_unsupported_options_are_refused_at_the_handshake(url: str, param: str) -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            with pytest.raises(RequestError) as refused:
                bench.dial(url)
            assert refused.value.param == param
            if param == "output_format":
                assert all(name in refused.value.message for name in elevenlabs_options.FORMATS)

    run(scene())


def test_voices_match_in_any_case_and_by_alias() -> None:
    async def scene() -> None:
        async with InProcessGateway(voice_aliases=("Rachel=bob",)) as bench:
            for name in ("ADA", "rachel", "RACHEL"):
                bench.dial(f"/v1/text-to-speech/{name}/multi-stream-input?output_format=pcm_24000")
            with pytest.raises(UnknownVoice, match="ada, bob"):
                bench.dial("/v1/text-to-speech/other/multi-stream-input")
        async with InProcessGateway(voice_aliases=("*=ada",)) as bench:
            bench.dial("/v1/text-to-speech/21m00Tcm4TlvDq8ikWAM/multi-stream-input?language_code=en-US")

    run(scene())


def test_unknown_voice_is_not_refused_before_the_model_has_loaded() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            bench.synthesizer.lose()
            with pytest.raises(EngineNotReady):
                bench.dial("/v1/text-to-speech/eve/multi-stream-input")

    run(scene())


@pytest.mark.parametrize(
    ("error", "status", "slug"),
    [
        (UnknownVoice("no"), 404, "voice_not_found"),
        (AtCapacity("full", retry_after_ms=900), 503, "too_many_concurrent_requests"),
    ],
)
def test_elevenlabs_refusals_have_elevenlabs_shape(error: VoxgateError, status: int, slug: str) -> None:
    reply = elevenlabs_options.refuse(error)
    assert reply.status == status
    assert f'"status": "{slug}"'.encode() in reply.body
    assert ("Retry-After" in reply.headers) == (error.retry_after_ms is not None)


def test_deepgram_refusals_have_the_reason_in_headers() -> None:
    reply = deepgram_options.refuse(AtCapacity("every socket\nis taken — now", retry_after_ms=1500))
    assert reply.status == 503
    assert reply.headers["dg-error"] == "every socket is taken ? now"
    assert reply.headers["Retry-After"] == "2"
    document = json.loads(reply.body)
    assert (document["err_code"], document["request_id"]) == ("AT_CAPACITY", reply.headers["dg-request-id"])
