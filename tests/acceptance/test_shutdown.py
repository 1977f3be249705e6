"""SIGTERM: speech under way is finished, new requests are refused, and the process exits."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable

import pytest
from fakes.waiting import DEADLINE_S, until

from .testbed.expected_audio import all_ended, mismatches
from .testbed.gateway_process import tone_gateway
from .testbed.listeners import speech_text
from .testbed.measuring import Figures, nightly
from .testbed.raw_websocket import RawClient, connect, connect_many

SERVICE_RESTART = 1012
SPEECH_S = 3.0
REFUSAL_MS = 100
SECOND_SIGNAL_S = 5


@pytest.mark.usefixtures("quiet_machine")
@pytest.mark.parametrize("utterances", [5, nightly(50)])
async def test_sigterm_finishes_active_utterances(
    utterances: int, scaled: Callable[..., int], figures: Figures
) -> None:
    count = scaled(utterances)
    async with tone_gateway(slots=count) as gateway:
        clients, (idle,) = await connect_many(gateway.port, count), await connect_many(gateway.port, 1)
        received = [client.say(speech_text(SPEECH_S, number), codec="opus") for number, client in enumerate(clients)]
        await until(lambda: all(one.playback.arrivals for one in received))
        gateway.signal(signal.SIGTERM)
        await until(lambda: "going_away" in _kinds(clients[0]))
        began_s = idle.now()
        # On a socket that speaks: an idle one is closed soon.
        late = clients[0].say("Too late.", name="late")
        late_client = await connect(gateway.port)
        handshake_ms = 1000 * (idle.now() - began_s)
        await late.ended()
        utterance_ms = 1000 * ((late.over_s or 0.0) - began_s)
        await all_ended(received)
        assert await gateway.exit_status() == 0
        assert [one.outcome for one in received] == ["done"] * count
        assert mismatches(received) == []
        refusal = json.loads(late_client.body or b"{}").get("error")
        assert (late_client.answered.result(), refusal) == (503, "draining")
        assert late.outcome == "draining"
        assert all("going_away" in _kinds(client) for client in [*clients, idle])
        assert {client.close_code for client in [*clients, idle]} == {SERVICE_RESTART}
        assert gateway.log_errors == []
        figures.note("utterances under way", count)
        figures.time_at_most("refusal after ms, max", max(handshake_ms, utterance_ms), REFUSAL_MS)


async def test_shutdown_deadline_ends_utterances_with_draining() -> None:
    async with tone_gateway(shutdown_grace_s=1) as gateway:
        client = await connect(gateway.port)
        received = client.say(speech_text(30))
        await until(lambda: received.playback.arrivals)
        gateway.signal(signal.SIGTERM)
        assert await received.ended() == "draining"
        assert await client.closed == SERVICE_RESTART
        assert await gateway.exit_status() == 0


@pytest.mark.usefixtures("quiet_machine")
async def test_second_sigterm_exits_at_once(figures: Figures) -> None:
    async with tone_gateway(shutdown_grace_s=10 * DEADLINE_S) as gateway:
        client = await connect(gateway.port)
        received = client.say(speech_text(60))
        await until(lambda: received.playback.arrivals)
        gateway.signal(signal.SIGTERM)
        await until(lambda: "going_away" in _kinds(client))
        began_s = client.now()
        gateway.signal(signal.SIGTERM)
        assert await gateway.exit_status() == 0
        figures.time_at_most("exit after s", client.now() - began_s, SECOND_SIGNAL_S)


def _kinds(client: RawClient) -> set[str]:
    return {message["type"] for message in client.messages}
