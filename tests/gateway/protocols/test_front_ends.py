"""Requests as web front ends send them: Open WebUI 0.12, LibreChat, LocalAI's clients, libraries in browsers."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from fakes.gateway.loopback import gateway
from fakes.pipeline.tone_synthesizer import ToneSynthesizer
from voxgate.codecs.encode import PacketEncoder
from voxgate.gateway.server import Gateway
from voxgate.pipeline.interface import VoiceInfo

TEXT = "The quick brown fox."
ORIGIN = "https://chat.example"
KEY = f"web=sha256:{hashlib.sha256(b'secret').hexdigest()}"


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def url(served: Gateway, path: str) -> str:
    return f"http://127.0.0.1:{served.port}{path}"


def named_voices() -> ToneSynthesizer:
    synthesizer = ToneSynthesizer()
    synthesizer.voices = {
        "michael": VoiceInfo("michael", ("auto", "english"), gender="male", accent="american", display="American man"),
        "heart": VoiceInfo("heart", ("auto", "english"), gender="female", accent="american"),
    }
    return synthesizer


async def test_open_webui_lists_voices_and_models(client: aiohttp.ClientSession) -> None:
    async with gateway(named_voices()) as served:
        async with client.get(url(served, "/v1/audio/voices")) as answer:
            voices = {voice["id"]: voice["name"] for voice in (await answer.json())["voices"]}
        async with client.get(url(served, "/v1/audio/models")) as answer:
            models = [model["id"] for model in (await answer.json())["models"]]
        async with client.get(url(served, "/v1/models")) as answer:
            fallback = [model["id"] for model in (await answer.json())["data"]]
    assert voices == {"michael": "American man", "heart": "heart"}
    assert models == fallback == ["qwen3-tts"]


@pytest.mark.parametrize("authorization", ["Bearer ", "Bearer undefined", "undefined", "Bearer sk-1"])
async def test_open_webui_speaks_with_its_default_voice(client: aiohttp.ClientSession, authorization: str) -> None:
    synthesizer = named_voices()
    body = {"input": TEXT, "voice": "alloy", "model": "tts-1"}
    headers = {"Authorization": authorization}
    async with (
        gateway(synthesizer, encoder=PacketEncoder) as served,
        client.post(url(served, "/v1/audio/speech"), json=body, headers=headers) as answer,
    ):
        assert (answer.status, answer.content_type) == (200, "audio/mpeg")
        assert (answer.headers["x-voxgate-voice"], answer.headers["x-sample-rate"]) == ("heart", "24000")
        assert await answer.read()
    assert synthesizer.speeches[0].request.voice == "heart"


async def test_open_webui_speaks_without_a_key_for_the_lists(client: aiohttp.ClientSession) -> None:
    """It asks for the lists without its key; refused, it offers OpenAI's names, which speak."""
    async with gateway(named_voices(), keys=(KEY,)) as served:
        async with client.get(url(served, "/v1/audio/voices")) as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (401, "invalid_api_key")
        body, headers = {"input": TEXT, "voice": "shimmer", "model": "tts-1"}, {"Authorization": "Bearer secret"}
        async with client.post(url(served, "/v1/audio/speech"), json=body, headers=headers) as answer:
            assert (answer.status, answer.headers["x-voxgate-voice"]) == (200, "heart")


async def test_librechat_speaks_in_each_of_its_protocols(client: aiohttp.ClientSession) -> None:
    settings = {"similarity_boost": 0.5, "stability": 0.5, "use_speaker_boost": True}
    requests: list[tuple[str, dict[str, Any], dict[str, str], str]] = [
        (
            "/v1/audio/speech",
            {"input": TEXT, "model": "tts-1", "voice": "onyx", "backend": "piper"},
            {"Authorization": "Bearer x"},
            "michael",
        ),
        ("/v1/audio/speech", {"input": TEXT, "model": "heart", "backend": "piper"}, {}, "heart"),
        (
            "/v1/text-to-speech/21m00Tcm4TlvDq8ikWAM/stream",
            {"model_id": "eleven_multilingual_v2", "text": TEXT, "voice_settings": settings},
            {"xi-api-key": "x", "Accept": "audio/mpeg"},
            "heart",
        ),
    ]
    async with gateway(named_voices(), encoder=PacketEncoder) as served:
        for path, body, headers, voice in requests:
            async with client.post(url(served, path), json=body, headers=headers) as answer:
                assert (answer.status, answer.content_type) == (200, "audio/mpeg")
                assert answer.headers["x-voxgate-voice"] == voice
                assert await answer.read()


async def test_stock_voices_are_refused_by_option(client: aiohttp.ClientSession) -> None:
    body = {"input": TEXT, "voice": "alloy"}
    async with (
        gateway(named_voices(), stock_voices=False) as served,
        client.post(url(served, "/v1/audio/speech"), json=body) as answer,
    ):
        assert (answer.status, (await answer.json())["error"]["code"]) == (400, "unknown_voice")


@pytest.mark.parametrize("alias", ["alloy=michael", "*=michael"])
async def test_an_alias_comes_before_a_fitting_voice(client: aiohttp.ClientSession, alias: str) -> None:
    body = {"input": TEXT, "voice": "alloy"}
    async with (
        gateway(named_voices(), voice_aliases=(alias,)) as served,
        client.post(url(served, "/v1/audio/speech"), json=body) as answer,
    ):
        assert answer.headers["x-voxgate-voice"] == "michael"


async def test_sockets_name_the_voice_in_the_handshake(client: aiohttp.ClientSession) -> None:
    async with gateway(named_voices()) as served:
        for path in ("/v1/speak?model=aura-2-thalia-en", "/v1/text-to-speech/pNInz6obpgDQGcFmaJgB/stream-input"):
            async with client.ws_connect(url(served, path)) as socket:
                voice = "heart" if "thalia" in path else "michael"
                assert socket._response.headers["x-voxgate-voice"] == voice
        async with client.ws_connect(url(served, "/v1/speech")) as socket:
            assert "x-voxgate-voice" not in socket._response.headers


async def test_instructions_that_the_voice_does_not_follow_are_dropped_with_a_warning(
    client: aiohttp.ClientSession,
) -> None:
    synthesizer = ToneSynthesizer()
    async with gateway(synthesizer) as served:
        for voice, warned in (("ada", True), ("bob", False)):
            body = {"input": TEXT, "voice": voice, "instructions": "Sing."}
            async with client.post(url(served, "/v1/audio/speech"), json=body) as answer:
                assert answer.status == 200
                assert ("x-voxgate-warning" in answer.headers) is warned
    assert [speech.request.instructions for speech in synthesizer.speeches] == [None, "Sing."]


@pytest.mark.parametrize(("name", "status"), [("qwen3-tts", 200), ("tts-1", 200), ("gpt-4o-mini-tts", 200), ("x", 404)])
async def test_models_can_be_looked_up(client: aiohttp.ClientSession, name: str, status: int) -> None:
    async with gateway() as served, client.get(url(served, f"/v1/models/{name}")) as answer:
        document = await answer.json()
        assert answer.status == status
        assert document["id"] == name if status == 200 else document["error"]["code"] == "model_not_found"


async def test_health_follows_readiness(client: aiohttp.ClientSession) -> None:
    async with gateway(start=False) as served, client.get(url(served, "/health")) as answer:
        assert answer.status == 503
    async with gateway() as served, client.get(url(served, "/health")) as answer:
        assert answer.status == 200


async def test_a_listed_page_may_post_with_the_headers_of_openais_library(client: aiohttp.ClientSession) -> None:
    asked = "authorization,content-type,x-stainless-arch,x-stainless-lang,x-stainless-retry-count"
    preflight = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": asked}
    async with gateway(named_voices(), allowed_origins=(ORIGIN,), keys=(KEY,)) as served:
        target = url(served, "/v1/audio/speech")
        async with client.options(target, headers={"Origin": ORIGIN, **preflight}) as answer:
            assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (204, ORIGIN)
            assert answer.headers["Access-Control-Allow-Headers"] == asked
            assert answer.headers["Access-Control-Allow-Methods"] == "POST"
        headers = {"Origin": ORIGIN, "Authorization": "Bearer secret", "X-Stainless-Lang": "js"}
        async with client.post(target, json={"input": TEXT, "voice": "nova"}, headers=headers) as answer:
            assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (200, ORIGIN)
            assert "x-voxgate-voice" in answer.headers["Access-Control-Expose-Headers"]
        async with client.options(target, headers={"Origin": "https://evil.example", **preflight}) as answer:
            assert "Access-Control-Allow-Origin" not in answer.headers
        odd = {**preflight, "Access-Control-Request-Headers": "a: b"}
        async with client.options(target, headers={"Origin": ORIGIN, **odd}) as answer:
            assert answer.headers["Access-Control-Allow-Headers"] == ""
