"""HAProxy agent check: the line for each state of the gateway, and its port."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from fakes.gateway.packet_encoder import FakeEncoder
from fakes.gateway.records import STATE
from fakes.pipeline.tone_synthesizer import ToneSynthesizer
from fakes.waiting import DEADLINE_S
from voxgate.gateway.server import Gateway
from voxgate.gateway.settings import Settings
from voxgate.gateway.transport.haproxy_agent import agent_line
from voxgate.pipeline.interface import EngineState


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"active": 0, "queued": 0}, "ready up 97%"),
        ({"active": 6, "queued": 0}, "ready up 25%"),
        ({"active": 8, "queued": 0}, "ready up 1%"),
        ({"active": 8, "queued": 30}, "ready up 1%"),
        ({"active": 0, "queued": 0, "sockets": {"native": 90}}, "ready up 10%"),
        ({"engine": EngineState.STARTING}, "down #voice model starting"),
        ({"engine": EngineState.DEAD}, "down #voice model dead"),
        ({"draining": True, "engine": EngineState.DEAD}, "drain"),
    ],
)
def test_line_reports_state_and_free_capacity(change: dict[str, object], line: str) -> None:
    assert agent_line(replace(STATE, **change)) == line + "\n"  # type: ignore[arg-type]  # fields by name


async def ask(port: int) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(DEADLINE_S):
        answer = await reader.read()
    writer.close()
    return answer.decode()


async def test_agent_port_answers_with_one_line_until_close() -> None:
    synthesizer = ToneSynthesizer()
    served = Gateway(Settings(port=0, haproxy_agent_port=0), synthesizer, FakeEncoder)
    await served.open()
    port = served.haproxy_agent_port
    assert port is not None
    try:
        assert await ask(port) == "down #voice model starting\n"
        await synthesizer.start()
        assert await ask(port) == "ready up 100%\n"
        draining = asyncio.create_task(served.drain())
        await asyncio.sleep(0)
        assert await ask(port) == "drain\n"
        await draining
    finally:
        await served.close()
    with pytest.raises(ConnectionRefusedError):
        await ask(port)


async def test_agent_port_is_closed_by_default() -> None:
    served = Gateway(Settings(port=0), ToneSynthesizer(), FakeEncoder)
    await served.open()
    assert served.haproxy_agent_port is None
    await served.close()
