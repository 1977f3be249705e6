"""The routes of the gateway itself: probes, limits, tokens, the page."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from fakes.gateway.packet_encoder import FakeEncoder
from fakes.pipeline.tone_synthesizer import ToneSynthesizer
from fakes.waiting import DEADLINE_S
from voxgate.gateway.access.keys import hash_key
from voxgate.gateway.http import application as body
from voxgate.gateway.http.routes import page_routes, web_files
from voxgate.gateway.server import Gateway
from voxgate.gateway.settings import Settings
from websockets.asyncio.client import connect

PAGE = "https://voice.example"


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[tuple[Gateway, aiohttp.ClientSession]]:
    settings = Settings(port=0, keys=(f"ada={hash_key('k')}",), allowed_origins=(PAGE,))
    served = Gateway(settings, synthesizer := ToneSynthesizer(), FakeEncoder)
    await served.open()
    await synthesizer.start()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{served.port}") as client, asyncio.timeout(DEADLINE_S):
            yield served, client
    finally:
        await served.close()


async def ask(client: aiohttp.ClientSession, text: str = "", **headers: str) -> tuple[int, dict[str, Any]]:
    async with client.post("/v1/tokens", data=text, headers=headers) as response:
        if response.status == 201:
            assert response.headers["Cache-Control"] == "no-store"
        return response.status, json.loads(await response.read())


async def test_a_token_opens_a_socket_and_nothing_more_than_its_key() -> None:
    async with serving() as (served, client):
        status, document = await ask(client, '{"ttl_s": 5}', Authorization="Bearer k")
        assert status == 201
        token = document["token"]
        url = f"ws://127.0.0.1:{served.port}/v1/speech?token={token}&token=other"
        async with connect(url, origin=PAGE) as socket:  # type: ignore[arg-type]  # a plain text works
            assert json.loads(await socket.recv())["type"] == "session"
        assert (await ask(client, Authorization=f"Bearer {token}"))[0] == 403


@pytest.mark.parametrize(
    ("text", "param"), [("{", None), ('{"ttl_s": 0}', "ttl_s"), ('{"ttl_s": 1e9}', "ttl_s"), ('{"ttl": 5}', "ttl")]
)
async def test_a_bad_body_is_refused(text: str, param: str | None) -> None:
    async with serving() as (_, client):
        status, document = await ask(client, text, Authorization="Bearer k")
        assert (status, document["error"]) == (400, "bad_message")
        assert document["message"].startswith(param or "Invalid JSON")


async def test_late_body_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "_BODY_TIMEOUT_S", 0.05)
    async with serving() as (served, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(b"POST /v1/tokens HTTP/1.1\r\nHost: a\r\nxi-api-key: k\r\nContent-Length: 9\r\n\r\n{")
        assert (await reader.readline()).startswith(b"HTTP/1.1 400")
        writer.close()


async def test_without_a_key_there_are_no_tokens_and_no_voices() -> None:
    async with serving() as (_, client):
        assert (await ask(client))[0] == 401
        assert (await ask(client, Authorization="Bearer other"))[1]["error"] == "unauthorized"
        status, _ = await ask(client, Authorization="Bearer k", Origin="https://evil.example")
        assert status == 403
        async with client.get("/v1/voices") as refused:
            assert (refused.status, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
        async with client.get("/v1/voices", headers={"xi-api-key": "k"}) as voices:
            assert voices.status == 200


async def test_probes_limits_and_the_page_need_no_key() -> None:
    async with serving() as (_, client):
        for path in ("/healthz", "/readyz", "/v1/limits", "/", "/index.html"):
            async with client.get(path) as answer:
                assert answer.status == 200, path


def test_only_known_kinds_of_files_are_served() -> None:
    for path, reply in web_files().items():
        assert path == "/" or path.rpartition(".")[2] in ("html", "css", "js", "svg")
        assert reply.body


async def test_page_and_its_files_may_not_be_framed_or_extended() -> None:
    async with serving() as (_, client):
        for path in web_files():
            async with client.get(path) as answer:
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert answer.headers["X-Frame-Options"] == "DENY"
                assert answer.headers["Referrer-Policy"] == "no-referrer"
                policy = answer.headers["Content-Security-Policy"]
                assert "default-src 'none'" in policy
                assert "frame-ancestors 'none'" in policy
                assert "unsafe" not in policy


def test_every_file_has_a_route() -> None:
    assert {route.path for route in page_routes()} == set(web_files())
