"""Several gateways behind a real HAProxy: distribution, drain and loss of sessions."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from acceptance.testbed.gateway_process import GatewayProcess, tone_gateway
from acceptance.testbed.listeners import UNLIMITED, speech_text
from fakes.waiting import DEADLINE_S
from voxgate.benchmarks.fleet import Balancer, balancer
from voxgate.client import ClientError, connect
from voxgate.client.events import Audio, Done, Queued

HAPROXY = shutil.which("haproxy") or ""
FRAME = {"frame_s": 0.03}
"""A frame takes less than the 80 ms of its audio, and long enough for slots to stay in use."""

pytestmark = [pytest.mark.nightly, pytest.mark.skipif(not HAPROXY, reason="haproxy is not installed")]


@dataclass
class ListenerOutcome:
    """What one listener received."""

    gateway: str
    """The prefix of the session's name: the run of its gateway."""
    samples: int = 0
    queued: bool = False
    done: Done | None = None
    lost: ClientError | None = None
    speaking: asyncio.Event = field(default_factory=asyncio.Event)


@asynccontextmanager
async def fleet(folder: Path, *slots: int, **settings: Any) -> AsyncIterator[tuple[Balancer, list[GatewayProcess]]]:
    """Tone gateways with these numbers of slots, behind HAProxy."""
    async with AsyncExitStack() as stack:
        served = await asyncio.gather(
            *(
                stack.enter_async_context(
                    tone_gateway(slots=count, talker=FRAME, haproxy_agent_port=0, **UNLIMITED, **settings)
                )
                for count in slots
            )
        )
        replicas = [each.ready for each in served]
        yield await stack.enter_async_context(balancer(HAPROXY, replicas, folder)), list(served)


async def listen(url: str, seconds: float, heard: list[ListenerOutcome]) -> ListenerOutcome:
    """One session with one utterance; its outcome is in `heard` from the handshake on."""
    async with connect(url) as session:
        mine = ListenerOutcome(session.info.session.partition("-")[0])
        heard.append(mine)
        try:
            async with session.utterance() as utterance:
                await utterance.send(speech_text(seconds))
                await utterance.end()
                async for event in utterance.events():
                    match event:
                        case Queued():
                            mine.queued = True
                        case Audio():
                            mine.samples += event.samples
                            mine.speaking.set()
                        case Done():
                            mine.done = event
        except ClientError as error:
            mine.lost = error
    return mine


async def arrive(
    url: str, count: int, seconds: float, pause_s: float
) -> tuple[list[asyncio.Task[ListenerOutcome]], list[ListenerOutcome]]:
    """Start `count` listeners one after another. Returns when each has received audio or lost its session."""
    heard: list[ListenerOutcome] = []
    tasks = []
    for _ in range(count):
        tasks.append(asyncio.create_task(listen(url, seconds, heard)))
        await asyncio.sleep(pause_s)
    async with asyncio.timeout(DEADLINE_S):
        while len(heard) < count:
            await asyncio.sleep(0.02)
        for each in heard:
            await each.speaking.wait()
    return tasks, heard


async def test_sessions_go_to_gateways_with_free_slots(tmp_path: Path) -> None:
    async with fleet(tmp_path, 3, 9) as (front, served):
        tasks, heard = await arrive(front.url, 11, 12.0, pause_s=0.45)
        by_gateway = Counter(each.gateway for each in heard)
        states = [await each.ask("state") for each in served]
        assert [state["most_speeches"] for state in states] == sorted(by_gateway.values())
        assert not any(each.queued for each in heard), "an utterance was queued while another gateway had a free slot"
        await asyncio.gather(*tasks)
        assert all(each.done is not None for each in heard)


async def test_drained_replica_loses_no_session(tmp_path: Path) -> None:
    async with fleet(tmp_path, 16, 16, shutdown_grace_s=30) as (front, served):
        tasks, heard = await arrive(front.url, 10, 6.0, pause_s=0.02)
        assert len({each.gateway for each in heard}) == 2
        served[0].signal(signal.SIGTERM)
        newcomers: list[ListenerOutcome] = []
        later = []
        for _ in range(6):
            later.append(asyncio.create_task(listen(front.url, 1.0, newcomers)))
            await asyncio.sleep(0.1)
        await asyncio.gather(*tasks, *later)
        assert await served[0].exit_status() == 0
        everyone = heard + newcomers
        assert [each.lost for each in everyone] == [None] * len(everyone)
        assert all(each.done is not None and each.samples == each.done.samples for each in everyone)
        assert len({each.gateway for each in newcomers}) == 1, "a new session went to the gateway that drains"


async def test_killed_replica_loses_no_speech(tmp_path: Path) -> None:
    async with fleet(tmp_path, 16, 16) as (front, served):
        tasks, heard = await arrive(front.url, 10, 5.0, pause_s=0.02)
        served[0].signal(signal.SIGKILL)
        # The balancer does not know yet; it retries a failed connection at the other gateway.
        after: list[ListenerOutcome] = []
        await asyncio.gather(*(listen(front.url, 0.5, after) for _ in range(6)))
        await asyncio.gather(*tasks)
        assert all(each.lost is None and each.done is not None for each in heard)
        assert len({each.gateway for each in after}) == 1, "a new session went to the gateway that was killed"
        assert all(each.done is not None for each in after)


async def test_handshake_refused_by_one_replica_is_retried_at_another(tmp_path: Path) -> None:
    async with fleet(tmp_path, 8, 8, sockets=3) as (front, _), AsyncExitStack() as sessions:
        opened = [await sessions.enter_async_context(connect(front.url)) for _ in range(6)]
        assert Counter(Counter(each.info.session.partition("-")[0] for each in opened).values()) == {3: 2}
        with pytest.raises(ClientError) as refused:
            await sessions.enter_async_context(connect(front.url))
        assert refused.value.retryable


async def test_throughput_grows_with_replicas(tmp_path: Path) -> None:
    carried = []
    for replicas in (1, 2, 3):
        folder = tmp_path / str(replicas)
        folder.mkdir()
        async with fleet(folder, *[4] * replicas, queue_wait_ms=300) as (front, _):
            heard: list[ListenerOutcome] = []
            listeners = []
            for _ in range(12):
                listeners.append(asyncio.create_task(listen(front.url, 12.0, heard)))
                await asyncio.sleep(0.25)
            await asyncio.gather(*listeners)
            carried.append(sum(each.done is not None for each in heard))
            assert all(each.done is not None or each.lost is not None for each in heard)
    assert carried == [4, 8, 12]


async def test_metrics_are_not_public(tmp_path: Path) -> None:
    import aiohttp

    async with fleet(tmp_path, 2) as (front, served), aiohttp.ClientSession() as http:
        assert (await http.get(f"{front.url}/metrics")).status == 404
        assert (await http.get(f"{front.url}/readyz")).status == 200
        inside = await http.get(f"http://127.0.0.1:{served[0].port}/metrics")
        assert "voxgate_load" in await inside.text()
        of_the_balancer = await http.get(f"{front.statistics_url}/metrics")
        assert "haproxy_server_weight" in await of_the_balancer.text()
