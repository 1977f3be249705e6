"""The real HAProxy with the shipped configuration in front of gateways: what it denies, logs and sends twice."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from acceptance.testbed.gateway_process import GatewayProcess, tone_gateway
from acceptance.testbed.listeners import UNLIMITED, speech_text
from fakes.waiting import until
from voxgate.benchmarks.fleet import Balancer, balancer
from voxgate.client import ClientError, connect
from voxgate.client.events import Audio

HAPROXY = shutil.which("haproxy") or ""
METRICS = (
    "/metrics",
    "/metrics?all",
    "/%6detrics",
    "/%6Detric%73",
    "//metrics",
    "/./metrics",
    "/%2e/metrics",
    "/v1/../metrics",
    "/v1/%2e%2e/metrics",
    "/v1//..//../metrics",
    "http://localhost/%6detrics",
)
"""Ways to write the path of the metrics that a gateway or a browser understands."""
SECRET = "vg_" + "S" * 40

pytestmark = pytest.mark.skipif(not HAPROXY, reason="haproxy is not installed")


@asynccontextmanager
async def fleet(folder: Path, count: int = 1, **settings: Any) -> AsyncIterator[tuple[Balancer, list[GatewayProcess]]]:
    """Tone gateways without an admin port, behind HAProxy."""
    async with AsyncExitStack() as stack:
        gateways = [
            await stack.enter_async_context(tone_gateway(haproxy_agent_port=0, **UNLIMITED, **settings))
            for _ in range(count)
        ]
        yield await stack.enter_async_context(balancer(HAPROXY, [each.ready for each in gateways], folder)), gateways


async def send(url: str, request: str) -> str:
    """The answer to bytes that no HTTP library would send."""
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"{request}\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer.decode(errors="replace")


async def test_metrics_are_denied_however_their_path_is_written(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (front, (gateway,)):
        assert "voxgate_slots" in await send(f"http://127.0.0.1:{gateway.port}", "GET /%6detrics HTTP/1.1")
        for path in METRICS:
            answer = await send(front.url, f"GET {path} HTTP/1.1")
            assert answer.startswith("HTTP/1.1 404"), path
            assert "voxgate_" not in answer, path
        assert (await send(front.url, "GET /%zzmetrics HTTP/1.1")).startswith("HTTP/1.1 400")
        assert (await send(front.url, "GET //%72eadyz HTTP/1.1")).startswith("HTTP/1.1 200")


async def test_log_has_no_query(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (front, _):
        requests = (
            f"GET /v1/limits?token={SECRET} HTTP/1.1",
            f"GET /metrics?token={SECRET} HTTP/1.1",
            f"GET /v1/%6cimits?token={SECRET} HTTP/1.1",
            f"GET /v1/limits?token={SECRET} HTTP/7.7",
            f"GET /v1/limits?token={SECRET}\0 HTTP/1.1",
        )
        for request in requests:
            await send(front.url, request)
        async with connect(f"{front.url}?token={SECRET}"):
            pass
        await until(lambda: front.log.read_text("utf-8").count(" speech ") >= len(requests) + 1)
        log = front.log.read_text("utf-8")
        assert "GET /v1/limits HTTP/1.1" in log
        assert "GET /v1/speech HTTP/1.1" in log
        assert SECRET not in log
        assert "?" not in log


async def test_request_that_waited_for_a_slot_is_sent_once(tmp_path: Path) -> None:
    full = {"slots": 1, "queue_wait_ms": 200, "talker": {"frame_s": 0.05}}
    async with fleet(tmp_path, count=2, **full) as (front, gateways), AsyncExitStack() as speaking:
        for gateway in gateways:
            session = await speaking.enter_async_context(connect(gateway.ready.url))
            utterance = await speaking.enter_async_context(session.utterance())
            await utterance.send(speech_text(60.0))
            await anext(event async for event in utterance.events() if isinstance(event, Audio))
        async with aiohttp.ClientSession() as http:
            body = {"input": "Hello.", "voice": "ada", "response_format": "pcm"}
            answer = await http.post(f"{front.url}/v1/audio/speech", json=body)
            assert answer.status in (429, 503), await answer.text()
        servers = await front.servers()
        assert sum(int(server["stot"]) for server in servers.values()) == 1
        assert sum(int(server["wretr"]) + int(server["wredis"]) for server in servers.values()) == 0


async def test_refused_handshake_is_sent_to_another_gateway(tmp_path: Path) -> None:
    async with fleet(tmp_path, count=2, sockets=1) as (front, _), AsyncExitStack() as sessions:
        opened = [await sessions.enter_async_context(connect(front.url)) for _ in range(2)]
        assert len({each.info.session.partition("-")[0] for each in opened}) == 2
        with pytest.raises(ClientError) as refused:
            await sessions.enter_async_context(connect(front.url))
        assert refused.value.retryable
        assert sum(int(server["wretr"]) for server in (await front.servers()).values()) > 0
