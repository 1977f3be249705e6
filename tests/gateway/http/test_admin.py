"""The admin port: probes and metrics apart from the clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from fakes.gateway.loopback import gateway
from fakes.gateway.worker_processes import gateway as worker_gateway
from fakes.pipeline.tone_synthesizer import ToneSynthesizer
from fakes.waiting import DEADLINE_S
from voxgate.gateway.access.keys import hash_key
from voxgate.gateway.http.admin import ADMIN_CONNECTIONS
from voxgate.gateway.settings import SettingsError
from voxgate.gateway.transport.connection_pool import PROBE_RESERVE

KEYS = (f"ada={hash_key('k')}",)


async def fetch(port: int | None, path: str, **options: object) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(DEADLINE_S)) as client,
        client.get(f"http://127.0.0.1:{port}{path}", **options) as answer,  # type: ignore[arg-type]  # headers
    ):
        return answer.status, await answer.text()


async def test_probes_and_metrics_need_no_key_on_the_admin_port() -> None:
    async with gateway(admin_port=0, keys=KEYS) as served:
        assert served.admin_port != served.port
        for path, content in (("/healthz", "ok"), ("/readyz", '"ready": true'), ("/metrics", "voxgate_slots")):
            status, text = await fetch(served.admin_port, path)
            assert status == 200, path
            assert content in text


async def test_admin_port_serves_nothing_else() -> None:
    async with gateway(admin_port=0) as served:
        for path in ("/", "/v1/voices", "/v1/limits", "/v1/speech"):
            upgrade = {"Upgrade": "websocket", "Connection": "upgrade"}
            assert (await fetch(served.admin_port, path))[0] == 404
            assert (await fetch(served.admin_port, path, headers=upgrade))[0] == 404


async def test_metrics_are_refused_to_pages_of_foreign_names() -> None:
    evil = {"Host": "evil.example"}
    async with gateway(admin_port=0, keys=KEYS) as served:
        assert (await fetch(served.admin_port, "/metrics", headers=evil))[0] == 421
        assert (await fetch(served.admin_port, "/readyz", headers=evil))[0] == 200
    async with gateway(admin_port=0, allowed_hosts=("gateway",)) as served:
        assert (await fetch(served.admin_port, "/metrics", headers={"Host": "gateway:8002"}))[0] == 200


async def test_public_port_has_probes_and_no_metrics_beside_an_admin_port() -> None:
    async with gateway(admin_port=0, keys=(f"metrics={hash_key('k')}",)) as served:
        assert (await fetch(served.port, "/metrics", headers={"xi-api-key": "k"}))[0] == 404
        assert (await fetch(served.port, "/healthz"))[0] == 200
        assert (await fetch(served.port, "/readyz"))[0] == 200


async def test_clients_that_hold_every_connection_leave_the_admin_port_alone() -> None:
    async with gateway(admin_port=0, sockets=2) as served:
        held = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(4)]
        for reader, writer in held[:2]:
            writer.write(b"GET /v1/limits HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
        for path in ("/healthz", "/readyz", "/metrics"):
            assert (await fetch(served.admin_port, path))[0] == 200
        for _, writer in held:
            writer.close()


async def test_idle_connections_of_the_admin_port_make_room() -> None:
    async with gateway(admin_port=0) as served:
        held = [
            await asyncio.open_connection("127.0.0.1", served.admin_port)
            for _ in range(ADMIN_CONNECTIONS + PROBE_RESERVE)
        ]
        assert (await fetch(served.admin_port, "/healthz"))[0] == 200
        async with asyncio.timeout(DEADLINE_S):
            assert await held[0][0].read() == b""
        for _, writer in held:
            writer.close()


async def test_readiness_follows_engine_and_shutdown() -> None:
    synthesizer = ToneSynthesizer()
    async with gateway(synthesizer, start=False, admin_port=0) as served:
        status, text = await fetch(served.admin_port, "/readyz")
        assert (status, "loading" in text) == (503, True)
        assert (await fetch(served.admin_port, "/healthz"))[0] == 200
        await synthesizer.start()
        assert (await fetch(served.admin_port, "/readyz"))[0] == 200
        await served.drain()
        status, text = await fetch(served.admin_port, "/readyz")
        assert (status, "shutting down" in text) == (503, True)


@pytest.mark.parametrize("option", ["admin_port", "wyoming_port", "haproxy_agent_port"])
@pytest.mark.parametrize("starts", [gateway, worker_gateway])
async def test_address_in_use_is_reported_with_the_option(starts: Callable[..., Any], option: str) -> None:
    async with gateway(admin_port=0) as served:
        with pytest.raises(SettingsError, match=f"{option}: cannot listen on 127.0.0.1:{served.admin_port}"):
            async with starts(**{option: served.admin_port}):
                pytest.fail("the port is in use")


async def test_speech_process_answers_for_all_workers(tmp_path: Path) -> None:
    async with worker_gateway(admin_port=0, voices_dir=tmp_path) as served:
        assert (await fetch(served.admin_port, "/readyz"))[0] == 200
        status, text = await fetch(served.admin_port, "/metrics")
        assert status == 200
        assert "voxgate_sockets{" in text
        assert (await fetch(served.port, "/metrics"))[0] == 404
        assert (await fetch(served.port, "/readyz"))[0] == 200
