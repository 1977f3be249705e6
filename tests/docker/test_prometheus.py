"""The real Prometheus with the shipped configuration scrapes a gateway that speaks."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from acceptance.testbed.gateway_process import tone_gateway
from acceptance.testbed.listeners import UNLIMITED, speech_text
from fakes.waiting import DEADLINE_S, until
from voxgate.benchmarks.fleet import free_port
from voxgate.client import connect

from .checkers import DOCKER, tool
from .test_configuration import RANGE, expressions

pytestmark = pytest.mark.nightly

EMPTY = {
    "Step time of the talker, p90",
    "Step time of the codec, p90",
    "VoxgateDown",
    "VoxgateEngineNotReady",
    "VoxgateLate",
    "VoxgateEngineLost",
    "VoxgateGaps",
    "VoxgateSlowToStart",
    "VoxgateTurnsAway",
    "VoxgateBusyLoop",
}
"""Panels and alerts without data in a healthy gateway without a model."""


@asynccontextmanager
async def prometheus(port: int, folder: Path) -> AsyncIterator[str]:
    """Prometheus scraping the gateway at `port`, with the shipped configuration except for addresses and intervals."""
    configuration = yaml.safe_load((DOCKER / "prometheus.yml").read_text("utf-8"))
    configuration["global"]["scrape_interval"] = "1s"
    job = configuration["scrape_configs"][0]
    del job["dns_sd_configs"]
    job["static_configs"] = [{"targets": [f"127.0.0.1:{port}"]}]
    configuration["scrape_configs"] = [job]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration), encoding="utf-8")
    (folder / "alerts.yml").write_bytes((DOCKER / "alerts.yml").read_bytes())
    address = f"127.0.0.1:{free_port()}"
    flags = [
        "--config.file=prometheus.yml",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    command = [tool("prometheus"), *flags]
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, stdout=DEVNULL, stderr=PIPE)
    try:
        yield f"http://{address}"
    finally:
        process.terminate()
        async with asyncio.timeout(DEADLINE_S):
            await process.communicate()


async def query(http: aiohttp.ClientSession, url: str, expression: str) -> list[Any]:
    async with http.get(f"{url}/api/v1/query", params={"query": expression}) as answer:
        document = await answer.json()
    assert document["status"] == "success", document
    return list(document["data"]["result"])


async def scrapes(http: aiohttp.ClientSession, url: str) -> int:
    """Number of scrapes of the gateway so far."""
    try:
        seen = await query(http, url, 'count_over_time(up{job="voxgate"}[5m]) * up{job="voxgate"}')
    except aiohttp.ClientError:
        return 0
    return int(seen[0]["value"][1]) if seen else 0


async def until_scraped(http: aiohttp.ClientSession, url: str, more: int) -> None:
    """Wait for `more` further scrapes of the gateway. Raises TimeoutError."""
    goal = await scrapes(http, url) + more

    async def reached() -> bool:
        return await scrapes(http, url) >= goal

    await until(reached)


async def speak(url: str) -> None:
    async with connect(url) as session, session.utterance() as utterance:
        await utterance.send(speech_text(4.0))
        await utterance.end()
        async for _ in utterance.events():
            pass


async def test_every_panel_has_data(tmp_path: Path) -> None:
    async with (
        tone_gateway(**UNLIMITED) as gateway,
        prometheus(gateway.port, tmp_path) as url,
        aiohttp.ClientSession() as http,
    ):
        await until_scraped(http, url, 2)
        await asyncio.gather(*(speak(f"http://127.0.0.1:{gateway.port}") for _ in range(4)))
        await until_scraped(http, url, 3)
        for where, expression in expressions():
            asked = expression.replace(RANGE, "20s").replace("$instance", ".*")
            found = await query(http, url, asked)
            assert bool(found) == (where not in EMPTY), where
        (playing,) = await query(http, url, 'max_over_time(voxgate_lead_utterances{le="+Inf"}[1m])')
        assert float(playing["value"][1]) == 4
        async with http.get(f"{url}/api/v1/rules") as answer:
            groups = (await answer.json())["data"]["groups"]
        assert {rule["health"] for group in groups for rule in group["rules"]} <= {"ok", "unknown"}
