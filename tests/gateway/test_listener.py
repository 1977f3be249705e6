"""The listener on a port of the loopback: handshakes, HTTP, malformed frames, floods, drain, TLS."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import weakref
from typing import Any

import pytest
from fakes.gateway.loopback import ask, dial, gateway, next_of
from fakes.gateway.packet_encoder import s16le
from fakes.pipeline.tone_synthesizer import ToneScript, ToneSynthesizer, tone_pcm
from fakes.waiting import DEADLINE_S, until
from voxgate.gateway import listener
from voxgate.gateway.audio_header import AudioHeader
from voxgate.gateway.server import Gateway
from voxgate.gateway.session import timers
from voxgate.gateway.transport.connection_pool import PROBE_RESERVE
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

TEXT = "Well."
UPGRADE = (
    b"GET /v1/speech HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


async def get(port: int, path: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    """Sends a plain HTTP request; returns status, headers in lower case, body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
    async with asyncio.timeout(DEADLINE_S):
        answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return int(status.split()[1]), headers, body


async def test_utterance_is_sent_complete_and_in_order() -> None:
    async with gateway() as served, dial(served) as socket:
        session = json.loads(await socket.recv())
        assert (session["type"], session["protocol"], session["default_voice"]) == ("session", 1, "ada")
        await ask(socket, type="start", utterance="a", format={"codec": "pcm"})
        await ask(socket, type="text", utterance="a", text=TEXT)
        await ask(socket, type="end", utterance="a")
        assert json.loads(await socket.recv())["type"] == "started"
        audio = b""
        while isinstance(message := await socket.recv(), bytes):
            audio += AudioHeader.unpack(message)[1]
        assert audio == s16le(tone_pcm(TEXT))
        assert json.loads(message)["type"] == "done"


async def test_metrics_count_utterances_sockets_and_refusals() -> None:
    async with gateway(sockets=1) as served, dial(served) as socket:
        await ask(socket, type="start", utterance="a", format={"codec": "pcm"})
        await ask(socket, type="text", utterance="a", text=TEXT)
        await ask(socket, type="end", utterance="a")
        await next_of(socket, "done")
        with pytest.raises(InvalidStatus):
            await dial(served).__aenter__()
        status, headers, body = await get(served.port, "/metrics")
    assert status == 200
    assert headers["content-type"].startswith("text/plain; version=")
    lines = body.decode().splitlines()
    assert 'voxgate_utterances_total{outcome="done",protocol="native"} 1.0' in lines
    assert 'voxgate_handshakes_refused_total{reason="at_capacity"} 1.0' in lines
    assert 'voxgate_limits_reached_total{limit="sockets"} 1.0' in lines
    assert 'voxgate_sockets{protocol="native"} 1.0' in lines
    assert "voxgate_load 1.0" in lines
    assert 'voxgate_ttfa_seconds_count{protocol="native"} 1.0' in lines


async def test_health_voices_and_limits_are_served() -> None:
    async with gateway() as served:
        status, headers, body = await get(served.port, "/healthz")
        assert (status, headers["content-type"]) == (200, "application/json")
        assert json.loads(body) == {"status": "ok"}
        assert (await get(served.port, "/readyz"))[0] == 200
        voices = json.loads((await get(served.port, "/v1/voices"))[2])
        assert voices["default"] == "ada"
        assert voices["voices"][1] == {
            "voice_id": "bob",
            "name": "bob",
            "display": "",
            "category": "premade",
            "labels": {},
            "languages": ["auto", "english", "german"],
            "description": "another tone",
            "instructions": True,
            "visemes": False,
            "cloned": False,
            "is_owner": False,
            "shared": False,
        }
        async with dial(served):
            limits = json.loads((await get(served.port, "/v1/limits?x=1"))[2])
            assert limits["accepting"] is True
            assert limits["sockets"] == {"open": 1, "limit": 4000}
            assert limits["utterances"] == {"active": 0, "limit": 4}
            assert limits["session"]["lead_ms"] == 400


@pytest.mark.parametrize(
    "path",
    ["/nothing", "/__init__.py", "/../pyproject.toml", "/%2e%2e/server.py", "//etc/passwd", "/v1/speech/x"],
)
async def test_unknown_path_is_not_found(path: str) -> None:
    async with gateway() as served:
        status, _, body = await get(served.port, path)
        assert status == 404
        assert json.loads(body)["error"] == "not_found"


async def test_probes_are_answered_during_a_flood_of_idle_connections() -> None:
    async with gateway(sockets=1) as served, dial(served):
        flood = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(100)]
        for path in ("/healthz", "/readyz"):
            assert (await get(served.port, path))[0] == 200
        assert served._listener._pool.open <= 2 + PROBE_RESERVE
        for _, writer in flood:
            writer.close()


async def test_full_gateway_answers_probes_and_refuses_other_requests() -> None:
    async with gateway(sockets=2, caller_share=1.0) as served:
        served._listener._pool._limit = 2
        async with dial(served), dial(served):
            assert (await get(served.port, "/v1/limits"))[0] == 503
            for path in ("/healthz", "/readyz"):
                assert (await get(served.port, path))[0] == 200
        await until(lambda: not served._listener._pool.open)
        metrics = (await get(served.port, "/metrics"))[2]
        assert b'voxgate_limits_reached_total{limit="connections"} 1.0' in metrics
        assert b'voxgate_handshakes_refused_total{reason="at_capacity"} 1.0' in metrics


@pytest.mark.parametrize("abort", [False, True])
async def test_ended_sessions_are_freed_without_a_collection(abort: bool) -> None:
    """Their number would make collections of garbage frequent, and those stop every socket."""
    gc.disable()
    try:
        async with gateway() as served:
            async with dial(served) as socket:
                await ask(socket, type="start", utterance="a", format={"codec": "pcm"})
                await ask(socket, type="text", utterance="a", text=20 * TEXT)
                await next_of(socket, "started")
                ended = [weakref.ref(session) for session in served._listener.sessions]
                assert len(ended) == 1
                if abort:
                    socket.transport.abort()
            await until(lambda: ended[0]() is None)
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "path",
    [
        "/v1/speak?model=ada&encoding=linear16&sample_rate=24000",
        "/v2/speak?model=ada&encoding=linear16&sample_rate=24000&mip_opt_out=false",
        "/v1/text-to-speech/ada/stream-input?output_format=pcm_24000",
        "/v1/text-to-speech/ada/multi-stream-input?output_format=pcm_24000",
        "/tts/websocket?cartesia_version=2025-04-16",
    ],
)
async def test_protocols_of_closed_sockets_are_freed_without_a_collection(path: str) -> None:
    gc.disable()
    try:
        async with gateway() as served:
            async with connect(f"ws://127.0.0.1:{served.port}{path}"):
                await until(lambda: served._listener.sessions)
                (session,) = served._listener.sessions
                ended = weakref.ref(session._protocol)
                del session
            await until(lambda: ended() is None)
    finally:
        gc.enable()


async def test_refused_handshake_takes_no_place() -> None:
    """Its client may keep the connection for a second, which others need not wait for."""
    async with gateway(sockets=1) as served:
        limit = served._listener._pool._limit = 1
        clients = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(2 * limit)]
        for reader, writer in clients:
            writer.write(UPGRADE.replace(b"/v1/speech", b"/v1/nothing"))
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 404")
            assert served._listener._pool.serving == 0
        assert served._listener._pool.open == len(clients)
        assert (await get(served.port, "/v1/limits"))[0] == 200
        for _, writer in clients:
            writer.close()


async def test_close_cuts_connections_without_a_request() -> None:
    async with gateway() as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        await until(lambda: served._listener._pool.open)
    async with asyncio.timeout(DEADLINE_S):
        assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize("start", [b"", b"\r\n\r\n", b"GET /healthz HTTP/1.1\r\n"])
async def test_connection_without_a_request_is_cut(start: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "HANDSHAKE_TIMEOUT_S", 0.05)
    async with gateway() as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(start)
        async with asyncio.timeout(DEADLINE_S):
            assert await reader.read() == b""
        writer.close()


async def test_plain_http_on_speech_path_is_answered_with_upgrade_required() -> None:
    async with gateway() as served:
        assert (await get(served.port, "/v1/speech"))[0] == 426


async def test_upgrade_on_unknown_path_is_not_found() -> None:
    async with gateway() as served:
        with pytest.raises(InvalidStatus) as refusal:
            async with connect(f"ws://127.0.0.1:{served.port}/v1/nothing"):
                pass
        assert refusal.value.response.status_code == 404


async def refused(served: Gateway, **options: Any) -> InvalidStatus:
    with pytest.raises(InvalidStatus) as refusal:
        async with dial(served, **options):
            pass
    return refusal.value


async def test_unlisted_origin_is_forbidden() -> None:
    async with gateway(allowed_origins=("https://voice.example",)) as served:
        refusal = await refused(served, origin="https://evil.example")
        assert refusal.response.status_code == 403
        for origin in ("https://voice.example", f"http://127.0.0.1:{served.port}", None):
            async with dial(served, origin=origin) as socket:
                await next_of(socket, "session")


async def test_socket_above_limit_is_refused_with_retry_time() -> None:
    async with gateway(sockets=1) as served, dial(served) as socket:
        await next_of(socket, "session")
        refusal = await refused(served)
        assert refusal.response.status_code == 503
        assert refusal.response.headers["Retry-After"] == "2"
        body = json.loads(refusal.response.body)
        assert (body["error"], body["reached"]) == ("at_capacity", "sockets")


async def test_probes_and_sockets_are_served_while_the_model_loads() -> None:
    synthesizer = ToneSynthesizer(ToneScript(start_s=0.05))
    async with gateway(synthesizer, start=False) as served, dial(served) as socket:
        status, _, body = await get(served.port, "/readyz")
        assert (status, json.loads(body)["reason"]) == (503, "the voice model is loading")
        assert (await get(served.port, "/healthz"))[0] == 200
        await ask(socket, type="start", utterance="a", format={"codec": "pcm"})
        assert (await next_of(socket, "error"))["code"] == "engine_not_ready"
        await synthesizer.start()
        assert (await get(served.port, "/readyz"))[0] == 200
        await ask(socket, type="start", utterance="a", format={"codec": "pcm"})
        await ask(socket, type="text", utterance="a", text=TEXT)
        await next_of(socket, "started")


@pytest.mark.parametrize(
    ("message", "code"),
    [(b"\x00\x01", 1003), ("x" * 70_000, 1009)],
)
async def test_binary_or_oversized_message_closes_with_its_code(message: str | bytes, code: int) -> None:
    async with gateway() as served, dial(served) as socket:
        await next_of(socket, "session")
        await socket.send(message)
        with pytest.raises(ConnectionClosed):
            await next_of(socket, "none")
        assert socket.close_code == code


async def raw(served: Gateway) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Opens a WebSocket without a library; returns its streams after the handshake."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(UPGRADE)
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\x81\xff" + (2**63 - 1).to_bytes(8, "big") + bytes(4), 1009),
        (b"\x81\x82" + bytes(4) + b"\xff\xfe", 1007),
    ],
    ids=["a length of 2^63 - 1", "invalid UTF-8"],
)
async def test_invalid_frame_closes_with_its_code(frame: bytes, code: int) -> None:
    async with gateway() as served:
        reader, writer = await raw(served)
        writer.write(frame)
        async with asyncio.timeout(DEADLINE_S):
            answer = await reader.read()
        assert code.to_bytes(2, "big") in answer[-125:]
        writer.close()


@pytest.mark.nightly  # fills the socket buffers of the kernel; test_ping_flood_is_bounded runs with every commit
async def test_ping_flood_of_a_client_that_does_not_read_is_aborted() -> None:
    async with gateway() as served:
        _, writer = await raw(served)
        pings = (b"\x89\xfd" + bytes(4) + bytes(125)) * 500
        sent_bytes = 0
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(DEADLINE_S):
                while True:
                    writer.write(pings)
                    await writer.drain()
                    sent_bytes += len(pings)
        # At most what the kernel buffers of both ends hold, plus ABORT_ABOVE_BYTES.
        assert sent_bytes < 16 * 2**20
        writer.close()


async def test_speaking_and_queued_utterances_outlive_the_loss_of_the_engine() -> None:
    synthesizer = ToneSynthesizer(ToneScript(start_s=0.0), slots=1)
    async with gateway(synthesizer, start=False, queue_wait_ms=60_000) as served, dial(served) as socket:
        supervised = asyncio.create_task(served.run_engine())
        await until(lambda: synthesizer.state.speaks)
        for name in "ab":
            await ask(socket, type="start", utterance=name, format={"codec": "pcm"})
            await ask(socket, type="text", utterance=name, text=TEXT)
        await next_of(socket, "queued")
        synthesizer.lose()
        warning = await next_of(socket, "warning")
        assert (warning["utterance"], warning["code"]) == ("a", "engine_restarts")
        await ask(socket, type="interrupt", utterance="a")
        assert (await next_of(socket, "started"))["utterance"] == "b"
        assert synthesizer.starts == 2
        supervised.cancel()


async def test_admission_follows_the_capacity_of_the_engine() -> None:
    synthesizer = ToneSynthesizer(slots=8)
    synthesizer.capacity = 2
    async with gateway(synthesizer, start=False) as served, dial(served) as socket:
        supervising = asyncio.create_task(served.run_engine())

        async def ready() -> bool:
            return (await get(served.port, "/readyz"))[0] == 200

        await until(ready)
        for name in "abc":
            await ask(socket, type="start", utterance=name, format={"codec": "pcm"})
            await ask(socket, type="text", utterance=name, text=TEXT)
        assert (await next_of(socket, "queued"))["utterance"] == "c"
        limits = json.loads((await get(served.port, "/v1/limits"))[2])
        assert limits["utterances"] == {"active": 2, "limit": 2}
        synthesizer.capacity = 3  # EngineSupervisor polls it
        assert (await next_of(socket, "started"))["utterance"] == "c"
        supervising.cancel()


async def test_connection_reset_during_speech_frees_the_slot() -> None:
    synthesizer = ToneSynthesizer(slots=1)
    async with gateway(synthesizer) as served:
        for _ in range(3):
            async with dial(served) as socket:
                await ask(socket, type="start", utterance="a", format={"codec": "pcm"})
                await ask(socket, type="text", utterance="a", text=TEXT * 50)
                await next_of(socket, "started")
                socket.transport.abort()
            await until(lambda: not synthesizer.open_speeches)


async def test_drain_finishes_active_utterances_and_refuses_sockets() -> None:
    async with gateway(shutdown_grace_s=20) as served, dial(served) as speaking, dial(served) as idle:
        await ask(speaking, type="start", utterance="a", format={"codec": "pcm"})
        await ask(speaking, type="text", utterance="a", text=TEXT * 3)
        await next_of(speaking, "started")
        drain = asyncio.create_task(served.drain())
        assert 0 < (await next_of(idle, "going_away"))["deadline_ms"] <= 20_000
        refusal = await refused(served)
        assert (refusal.response.status_code, json.loads(refusal.response.body)["error"]) == (503, "draining")
        assert (await get(served.port, "/readyz"))[0] == 503
        await ask(speaking, type="end", utterance="a")
        assert (await next_of(speaking, "done"))["characters"] == len(TEXT * 3)
        await drain
        assert (speaking.close_code, idle.close_code) == (1012, 1012)


async def test_drain_deadline_closes_remaining_sockets() -> None:
    async with gateway(shutdown_grace_s=0.1) as served, dial(served) as socket:
        await ask(socket, type="start", utterance="a", format={"codec": "pcm"})
        await ask(socket, type="text", utterance="a", text=TEXT)
        await next_of(socket, "started")
        await served.drain()
        assert (await next_of(socket, "error"))["code"] == "draining"
        with pytest.raises(ConnectionClosed):
            await next_of(socket, "none")
        assert socket.close_code == 1012


async def test_client_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers, "UNPACED_TIMEOUT_FACTOR", 1)
    synthesizer = ToneSynthesizer(max_characters=60_000)
    async with gateway(synthesizer, slow_consumer_timeout_ms=1000, max_characters=60_000) as served:
        reader, writer = await raw(served)
        reader._transport.pause_reading()
        start = {"type": "start", "utterance": "a", "format": {"codec": "pcm"}, "pacing": "none"}
        for fields in (start, {"type": "text", "utterance": "a", "text": "x" * 60_000}):
            payload = json.dumps(fields).encode()
            writer.write(b"\x81\xfe" + len(payload).to_bytes(2, "big") + bytes(4) + payload)
        await until(lambda: synthesizer.speeches and not synthesizer.open_speeches)
        # Audio that the kernel buffers did not accept was never generated.
        assert synthesizer.speeches[0].made < 30_000
        writer.close()
