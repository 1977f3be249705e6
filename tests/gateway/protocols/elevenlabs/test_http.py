"""ElevenLabs over plain HTTP on a real port: audio, times, lists, and how requests are refused."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest
from fakes.gateway.loopback import gateway
from fakes.gateway.packet_encoder import s16le
from fakes.pipeline.tone_synthesizer import ToneScript, ToneSynthesizer, tone_pcm
from fakes.waiting import DEADLINE_S, until
from voxgate.codecs.encode import PacketEncoder
from voxgate.gateway.audio_header import AudioHeader
from voxgate.gateway.messages.server import DoneMessage, WordFields
from voxgate.gateway.protocols.elevenlabs import http as elevenlabs_http
from voxgate.gateway.server import Gateway
from voxgate.gateway.session import timers as patience
from voxgate.gateway.session.outbox import AudioPacket

TEXT = "The quick brown fox."
PCM = {"output_format": "pcm_24000"}
TIMED = "/v1/text-to-speech/ada/with-timestamps"
DONE = DoneMessage(utterance="speech", reason="end", characters=3, frames=1, samples=1920, audio_ms=80, ttfa_ms=1)


def audio_packet(payload: bytes) -> AudioPacket:
    return AudioPacket(AudioHeader(0, 0, 0, samples=len(payload)), payload)


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def url(served: Gateway, path: str) -> str:
    return f"http://127.0.0.1:{served.port}{path}"


@pytest.mark.parametrize("path", ["/v1/text-to-speech/ada", "/v1/text-to-speech/ADA/stream"])
async def test_text_is_spoken(client: aiohttp.ClientSession, path: str) -> None:
    async with gateway() as served:
        wanted = {"text": TEXT, "model_id": "eleven_flash_v2_5", "voice_settings": {"speed": 1.0, "style": 0.5}}
        async with client.post(url(served, path), params=PCM, json=wanted) as answer:
            assert (answer.status, answer.content_type) == (200, "audio/pcm")
            assert await answer.read() == s16le(tone_pcm(TEXT))


async def test_mp3_is_the_default(client: aiohttp.ClientSession) -> None:
    async with (
        gateway(encoder=PacketEncoder) as served,
        client.post(url(served, "/v1/text-to-speech/ada"), json={"text": TEXT}) as answer,
    ):
        assert answer.content_type == "audio/mpeg"
        assert len(await answer.read()) > 1000


async def test_stream_with_timestamps_answers_lines(client: aiohttp.ClientSession) -> None:
    async with gateway() as served:
        path = "/v1/text-to-speech/ada/stream/with-timestamps"
        async with client.post(url(served, path), params=PCM, json={"text": TEXT}) as answer:
            lines = [json.loads(line) async for line in answer.content]
        assert b"".join(base64.b64decode(line["audio_base64"]) for line in lines) == s16le(tone_pcm(TEXT))
        runs = [line["alignment"] for line in lines if line["alignment"]]
        assert "".join("".join(each["characters"]) for each in runs) == TEXT + " "
        ends = [end for each in runs for end in each["character_end_times_seconds"]]
        assert ends == sorted(ends)
        assert 0.5 < ends[-1] < 1.0


@pytest.mark.parametrize(("text", "chunk_frames"), [(TEXT, 1), (TEXT * 8, 25)])
async def test_with_timestamps_answers_one_document(
    client: aiohttp.ClientSession, text: str, chunk_frames: int
) -> None:
    async with (
        gateway(ToneSynthesizer(ToneScript(chunk_frames=chunk_frames))) as served,
        asyncio.timeout(DEADLINE_S),
        client.post(url(served, TIMED), params=PCM, json={"text": text}) as answer,
    ):
        whole = await answer.read()
    document = json.loads(whole)
    assert base64.b64decode(document["audio_base64"]) == s16le(tone_pcm(text))
    assert "".join(document["alignment"]["characters"]) == text + " "
    assert list(document) == ["audio_base64", "alignment", "normalized_alignment"]
    assert whole == json.dumps(document).encode()


async def test_with_timestamps_is_sent_while_it_is_made(client: aiohttp.ClientSession) -> None:
    """The talker stops for want of reading long before the end: what waits is bounded by the lookahead."""
    synthesizer = ToneSynthesizer(max_characters=60_000)
    async with (
        gateway(synthesizer, max_characters=60_000) as served,
        asyncio.timeout(DEADLINE_S),
        client.post(url(served, TIMED), params=PCM, json={"text": "x" * 60_000}) as answer,
    ):
        assert await answer.content.readexactly(18) == b'{"audio_base64": "'
        assert synthesizer.open_speeches
        assert synthesizer.speeches[0].made < 30_000


async def test_failure_after_the_first_byte_cuts_the_document(client: aiohttp.ClientSession) -> None:
    async with (
        gateway(ToneSynthesizer(ToneScript(fail_frame=8, frame_s=0.01))) as served,
        client.post(url(served, TIMED), params=PCM, json={"text": TEXT}) as answer,
    ):
        assert answer.status == 200
        with pytest.raises(aiohttp.ClientError):
            await answer.read()


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (3, 3), (2, 5, 0, 7), (4, 4, 4), (0,), ()])
def test_packets_of_any_size_make_one_base64_text(sizes: tuple[int, ...]) -> None:
    body = elevenlabs_http._TimedDocument("Hi.", 24_000)
    body.add_words([WordFields(text="Hi.", start=0, end=3, start_ms=0, end_ms=80)])
    payloads = [bytes(range(size)) for size in sizes]
    parts = [body.encode_audio(audio_packet(payload)) for payload in payloads]
    longest = max((len(part) for part in parts if part), default=0)
    assert longest <= len(b'{"audio_base64": "') + 4 * (max(sizes, default=0) + 2) // 3
    document = json.loads(b"".join(part or b"" for part in parts) + (body.encode_end(DONE) or b""))
    assert base64.b64decode(document["audio_base64"], validate=True) == b"".join(payloads)
    assert document["alignment"]["characters"] == [*"Hi. "]


@pytest.mark.parametrize(
    ("path", "wanted", "status", "code"),
    [
        ("/v1/text-to-speech/eve", {"text": TEXT}, 404, "unknown_voice"),
        ("/v1/text-to-speech/ada?output_format=flac", {"text": TEXT}, 400, "unsupported_format"),
        ("/v1/text-to-speech/ada", {"text": TEXT, "language_code": "xx"}, 400, "unknown_language"),
        ("/v1/text-to-speech/ada", {}, 400, "bad_message"),
        ("/v1/text-to-speech/ada", {"text": TEXT, "voice_settings": {"speed": 2.1}}, 400, "unsupported_option"),
        ("/v1/text-to-speech/ada?output_format=pcm_24000", {"text": "  "}, 400, "empty_text"),
        ("/v1/text-to-speech/ada?output_format=pcm_24000", {"text": "x" * 5000}, 400, "text_too_long"),
    ],
)
async def test_foreign_or_malformed_origins_are_refused(
    client: aiohttp.ClientSession, path: str, wanted: object, status: int, code: str
) -> None:
    async with gateway() as served, client.post(url(served, path), json=wanted) as answer:
        assert answer.status == status
        assert (await answer.json())["detail"]["code"] == code


async def test_elapsed_queue_wait_gives_a_retry_time(client: aiohttp.ClientSession) -> None:
    async with gateway(ToneSynthesizer(slots=1), queue_wait_ms=100) as served:
        path = url(served, "/v1/text-to-speech/ada")
        async with client.ws_connect(url(served, "/v1/speech")) as socket:
            await socket.send_json({"type": "start", "utterance": "a", "format": {"codec": "pcm"}})
            await socket.send_json({"type": "text", "utterance": "a", "text": TEXT})
            async with client.post(path, params=PCM, json={"text": TEXT}) as answer:
                assert (answer.status, (await answer.json())["detail"]["code"]) == (503, "at_capacity")
                assert int(answer.headers["Retry-After"]) >= 1


async def test_disconnect_releases_the_slot(client: aiohttp.ClientSession) -> None:
    synthesizer = ToneSynthesizer(ToneScript(frame_s=0.02), slots=1)
    async with gateway(synthesizer) as served:
        answer = await client.post(url(served, "/v1/text-to-speech/ada"), params=PCM, json={"text": TEXT * 50})
        await answer.content.readexactly(4000)
        assert synthesizer.open_speeches
        answer.close()
        await until(lambda: not synthesizer.open_speeches)


async def test_client_that_does_not_read_affects_no_other(
    client: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "UNPACED_TIMEOUT_FACTOR", 1)
    synthesizer = ToneSynthesizer(max_characters=60_000)
    async with gateway(synthesizer, slow_consumer_timeout_ms=1000, max_characters=60_000) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        reader._transport.pause_reading()
        body = json.dumps({"text": "x" * 60_000}).encode()
        head = "POST /v1/text-to-speech/ada?output_format=pcm_24000 HTTP/1.1\r\nHost: a\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        async with asyncio.timeout(DEADLINE_S):
            while not synthesizer.speeches or synthesizer.open_speeches:
                async with client.get(url(served, "/healthz")) as answer:
                    assert answer.status == 200
                await asyncio.sleep(0.02)
        # Most of it was never made.
        assert synthesizer.speeches[0].made < 30_000
        writer.close()


async def test_failure_during_speech_cuts_the_body(client: aiohttp.ClientSession) -> None:
    async with (
        gateway(ToneSynthesizer(ToneScript(fail_frame=8, frame_s=0.01))) as served,
        client.post(url(served, "/v1/text-to-speech/ada"), params=PCM, json={"text": TEXT}) as answer,
    ):
        assert answer.status == 200
        with pytest.raises(aiohttp.ClientError):
            await answer.read()


async def test_a_failure_before_the_first_byte_is_a_status(client: aiohttp.ClientSession) -> None:
    async with (
        gateway(ToneSynthesizer(ToneScript(fail_frame=0))) as served,
        client.post(url(served, "/v1/text-to-speech/ada"), params=PCM, json={"text": TEXT}) as answer,
    ):
        assert (answer.status, (await answer.json())["detail"]["code"]) == (500, "generation_failed")


async def test_drain_finishes_current_speech_and_refuses_the_rest(client: aiohttp.ClientSession) -> None:
    async with gateway(ToneSynthesizer(ToneScript(frame_s=0.02)), shutdown_grace_s=20) as served:
        path = url(served, "/v1/text-to-speech/ada")
        async with client.post(path, params=PCM, json={"text": TEXT * 5}) as speaking:
            drain = asyncio.create_task(served.drain())
            await asyncio.sleep(0)
            async with client.post(path, params=PCM, json={"text": TEXT}) as refused:
                assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
            assert await speaking.read() == s16le(tone_pcm(TEXT * 5))
            await drain


async def test_lists_voices_and_models(client: aiohttp.ClientSession) -> None:
    async with gateway() as served:
        async with client.get(url(served, "/v1/voices")) as answer:
            voices = await answer.json()
            assert voices["default"] == "ada"
            assert [voice["voice_id"] for voice in voices["voices"]] == ["ada", "bob"]
        async with client.get(url(served, "/v2/voices")) as answer:
            listed = await answer.json()
            assert (listed["total_count"], listed["voices"]) == (2, voices["voices"])
        async with client.get(url(served, "/v1/voices/BOB")) as answer:
            assert await answer.json() == voices["voices"][1]
        async with client.get(url(served, "/v1/voices/eve")) as answer:
            assert answer.status == 404
        async with client.get(url(served, "/v1/models"), headers={"xi-api-key": "k"}) as answer:
            (model,) = await answer.json()
            assert (model["model_id"], model["can_do_text_to_speech"]) == ("qwen3-tts", True)
            assert {"language_id": "de", "name": "german"} in model["languages"]
        async with client.get(url(served, "/v1/models")) as answer:
            assert [model["id"] for model in (await answer.json())["data"]] == ["qwen3-tts"]
