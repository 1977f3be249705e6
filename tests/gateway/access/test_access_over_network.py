"""Keys, origins and TLS at a real port: accepted sockets and refusals."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from fakes.certificates import self_signed
from fakes.gateway.loopback import gateway, next_of
from fakes.gateway.packet_encoder import FakeEncoder
from fakes.pipeline.tone_synthesizer import ToneSynthesizer
from voxgate.gateway.access.keys import hash_key
from voxgate.gateway.observability.events import Observer, UtteranceRecord
from voxgate.gateway.server import Gateway
from voxgate.gateway.settings import Settings, SettingsError
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

KEYS = (f"ada={hash_key('key-of-ada')}", f"bob={hash_key('key-of-bob')}")
ADA = {"Authorization": "Bearer key-of-ada"}
BOB = {"Authorization": "Bearer key-of-bob"}
PAGE = "https://voice.example"


class Recorder(Observer):
    """Keeps the records of utterances, from which logs, metrics and traces are made."""

    def __init__(self) -> None:
        self.records: list[UtteranceRecord] = []

    def utterance_ended(self, record: UtteranceRecord) -> None:
        self.records.append(record)


def dial(served: Gateway, headers: dict[str, str] | None = None, query: str = "", **options: Any) -> connect:
    scheme = "wss" if "ssl" in options else "ws"
    url = f"{scheme}://127.0.0.1:{served.port}/v1/speech{query}"
    return connect(url, additional_headers=headers, **options)


async def refusal(served: Gateway, headers: dict[str, str] | None = None, query: str = "") -> tuple[int, str]:
    with pytest.raises(InvalidStatus) as refused:
        async with dial(served, headers, query):
            pass
    response = refused.value.response
    if response.status_code == 401:
        assert response.headers["WWW-Authenticate"] == "Bearer"
    if response.status_code == 429:
        assert int(response.headers["Retry-After"]) > 0
    return response.status_code, json.loads(response.body)["error"]


async def test_only_a_key_opens_a_socket() -> None:
    async with gateway(keys=KEYS) as served:
        async with dial(served, ADA) as socket:
            await next_of(socket, "session")
        async with dial(served, BOB) as socket:
            await next_of(socket, "session")
        assert await refusal(served) == (401, "unauthorized")
        for credential in ("", "key-of-eve", "key-of-ada ".upper(), hash_key("key-of-ada"), "k" * 4000):
            assert await refusal(served, {"Authorization": f"Bearer {credential}"}) == (401, "unauthorized")
        assert await refusal(served, {"Authorization": "Basic key-of-ada"}) == (401, "unauthorized")
        assert await refusal(served, query="?Token=key-of-ada") == (401, "unauthorized")
        assert await refusal(served, query="?token=key-of-ada") == (401, "unauthorized")
        async with dial(served, subprotocols=["token", "key-of-ada"]) as socket:  # type: ignore[list-item]  # plain texts work
            assert socket.subprotocol == "token"
            await next_of(socket, "session")


async def test_a_page_needs_a_listed_origin_and_a_key() -> None:
    async with gateway(keys=KEYS, allowed_origins=(PAGE,)) as served:
        async with dial(served, ADA, origin=PAGE) as socket:  # type: ignore[arg-type]  # a plain text works
            await next_of(socket, "session")
        assert await refusal(served, {**ADA, "Origin": PAGE + ".evil.example"}) == (403, "forbidden")
        assert await refusal(served, {"Origin": PAGE}) == (401, "unauthorized")


async def speak(socket: ClientConnection) -> None:
    await socket.send(json.dumps({"type": "start", "utterance": "u"}))
    await socket.send(json.dumps({"type": "text", "utterance": "u", "text": "Hm."}))


async def test_limits_of_a_key_do_not_affect_another() -> None:
    async with gateway(keys=KEYS, key_sockets=2, key_utterances=1) as served:
        async with dial(served, ADA) as first, dial(served, ADA) as second:
            await next_of(first, "session")
            await next_of(second, "session")
            assert await refusal(served, ADA) == (429, "key_limit")
            await speak(first)
            await next_of(first, "started")
            await speak(second)
            error = await next_of(second, "error")
            assert (error["code"], error["retryable"], error["utterance"]) == ("key_limit", True, "u")
            async with dial(served, BOB) as other:
                await speak(other)
                await next_of(other, "started")
            await first.send(json.dumps({"type": "interrupt", "utterance": "u"}))
            await next_of(first, "interrupted")
            while served._admission.active:
                await asyncio.sleep(0)
            await speak(second)
            await next_of(second, "started")
        while served._sessions:
            await asyncio.sleep(0)
        async with dial(served, ADA) as socket:
            await next_of(socket, "session")


async def test_text_over_the_minute_is_refused_and_the_utterance_continues() -> None:
    async with gateway(key_characters_per_minute=12) as served, dial(served) as socket:
        await socket.send(json.dumps({"type": "start", "utterance": "u"}))
        await socket.send(json.dumps({"type": "text", "utterance": "u", "text": "Hello there."}))
        await socket.send(json.dumps({"type": "text", "utterance": "u", "text": "Once more."}))
        error = await next_of(socket, "error")
        assert error["code"] == "rate_limited"
        assert error["retry_after_ms"] > 0
        await socket.send(json.dumps({"type": "end", "utterance": "u"}))
        assert (await next_of(socket, "done"))["characters"] == 12


async def test_keys_are_reloaded_and_a_broken_file_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(f'[keys.ada]\nhash = "{hash_key("key-of-ada")}"\n')
    async with gateway(keys_file=file) as served:
        file.write_text("[keys.")
        served.reload()
        async with dial(served, ADA) as kept:
            await next_of(kept, "session")
            file.write_text(f'[keys.ada]\nhash = "{hash_key("key-of-ada")}"\nutterances = 7\n')
            served.reload()
            await kept.send(json.dumps({"type": "limits"}))
            assert (await next_of(kept, "limits"))["quota"]["utterances"] == 7
            file.write_text(f'[keys.bob]\nhash = "{hash_key("key-of-bob")}"\n')
            served.reload()
            await kept.wait_closed()
            assert kept.close_code == 1008
            assert await refusal(served, ADA) == (401, "unauthorized")
            async with dial(served, BOB) as socket:
                await next_of(socket, "session")


UPGRADE = b"Host: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
MALFORMED = (
    b"GET /v1/speech?token=key-of-ada x HTTP/1.1\r\n" + UPGRADE,
    b"GET /v1/speech?token=key-of-ada HTTP/9.9\r\n" + UPGRADE,
    b"GET //[?token=key-of-ada HTTP/1.1\r\n" + UPGRADE,
    b"GET /v1/speech HTTP/1.1\r\nAuthorization Bearer key-of-ada\r\n" + UPGRADE,
    b"GET /v1/speech HTTP/1.1\r\nAuthorization: Bearer key-of-ada\x01\r\n" + UPGRADE,
    b"GET /v1/speech HTTP/1.1\r\nSec-WebSocket-Extensions: key-of-ada; ;=\r\n" + UPGRADE,
    b"GET /v1/speech HTTP/1.1\r\nSec-WebSocket-Key: key-of-ada\r\n" + UPGRADE,
    b"GET /v1/voices?token=key-of-ada x HTTP/1.1\r\nHost: 127.0.0.1\r\n",
    b"POST /v1/tokens HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization Bearer key-of-ada\r\n",
    b"POST /v1/tokens HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer key-of-ada\r\nContent-Length: 1\r\n\r\n{",
)


async def test_no_credential_reaches_a_log_or_a_record(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="websockets")  # as `log.configure` sets it
    caplog.set_level(logging.DEBUG)
    recorder = Recorder()
    synthesizer = ToneSynthesizer()
    served = Gateway(Settings(port=0, keys=KEYS), synthesizer, FakeEncoder, [recorder])
    await served.open()
    await synthesizer.start()
    try:
        async with dial(served, ADA) as socket:
            for message in ({"type": "start"}, {"type": "text", "text": "Hm."}, {"type": "end"}):
                await socket.send(json.dumps({"utterance": "u", **message}))
            await next_of(socket, "done")
        for name in ("ada", "eve"):
            await refusal(served, query=f"?token=key-of-{name}")
        await refusal(served, {"Authorization": "Bearer key-of-eve"})
        for head in MALFORMED:
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(head + b"\r\n")
            with contextlib.suppress(ConnectionError):
                await reader.read(1)
            writer.close()
    finally:
        await served.close()
    formatter = logging.Formatter()
    logged = [formatter.format(record) + str(record.__dict__) for record in caplog.records]
    assert any("'key': 'ada'" in line for line in logged)
    assert [record.key for record in recorder.records] == ["ada"]
    assert not [text for text in (*logged, *map(repr, recorder.records)) if "key-of-" in text]


def test_empty_key_file_does_not_disable_authentication(tmp_path: Path) -> None:
    (tmp_path / "keys.toml").write_text("")
    with pytest.raises(SettingsError, match="holds no key"):
        Gateway(Settings(keys_file=tmp_path / "keys.toml"), ToneSynthesizer(), FakeEncoder)


async def test_tls_and_a_renewed_certificate(tmp_path: Path) -> None:
    first, key = self_signed(tmp_path, "first")
    second, second_key = self_signed(tmp_path, "second")
    async with gateway(tls_certificate=first, tls_key=key) as served:
        async with dial(served, ssl=ssl.create_default_context(cafile=str(first))) as socket:
            await next_of(socket, "session")
        key.write_text("nonsense")
        served.reload()
        async with dial(served, ssl=ssl.create_default_context(cafile=str(first))) as socket:
            await next_of(socket, "session")
        key.write_bytes(second_key.read_bytes())
        first.write_bytes(second.read_bytes())
        served.reload()
        async with dial(served, ssl=ssl.create_default_context(cafile=str(second))) as socket:
            await next_of(socket, "session")


async def test_broken_key_file_does_not_stop_the_certificate_reload(tmp_path: Path) -> None:
    first, key = self_signed(tmp_path, "first")
    second, second_key = self_signed(tmp_path, "second")
    file = tmp_path / "keys.toml"
    file.write_text(f'[keys.ada]\nhash = "{hash_key("key-of-ada")}"\n')
    async with gateway(tls_certificate=first, tls_key=key, keys_file=file) as served:
        file.write_text("[keys.")
        key.write_bytes(second_key.read_bytes())
        first.write_bytes(second.read_bytes())
        served.reload()
        async with dial(served, ADA, ssl=ssl.create_default_context(cafile=str(second))) as socket:
            await next_of(socket, "session")


def test_certificates_that_cannot_be_used_are_explained(tmp_path: Path) -> None:
    good, _ = self_signed(tmp_path, "good")
    _, other_key = self_signed(tmp_path, "other")
    (tmp_path / "bad.pem").write_text("nonsense")
    for name, key in ((tmp_path / "none.pem", None), (tmp_path / "bad.pem", None), (good, None), (good, other_key)):
        with pytest.raises(SettingsError, match="tls_certificate"):
            Gateway(Settings(tls_certificate=name, tls_key=key), ToneSynthesizer(), FakeEncoder)


async def test_metrics_require_the_right_and_count_by_key() -> None:
    keys = (*KEYS, f"prometheus={hash_key('key-of-prometheus')}:metrics")
    async with gateway(keys=keys) as served, aiohttp.ClientSession() as http:
        async with dial(served, ADA) as socket:
            for message in ({"type": "start"}, {"type": "text", "text": "Hm."}, {"type": "end"}):
                await socket.send(json.dumps({"utterance": "u", **message}))
            await next_of(socket, "done")
        url = f"http://127.0.0.1:{served.port}/metrics"
        assert [(await http.get(url, headers=headers)).status for headers in ({}, ADA)] == [401, 403]
        with pytest.raises(InvalidStatus):
            await dial(served).__aenter__()
        answer = await http.get(url, headers={"Authorization": "Bearer key-of-prometheus"})
        lines = (await answer.text()).splitlines()
    assert 'voxgate_key_utterances_total{key="ada"} 1.0' in lines
    assert 'voxgate_handshakes_refused_total{reason="unauthorized"} 1.0' in lines
