"""Callers with a key: rights, rotated keys, acks that are not true, refused messages, rates over many sockets."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import suppress
from pathlib import Path

from fakes.waiting import until
from voxgate.client import connect as client_connect
from voxgate.client.errors import SpeechError
from voxgate.client.events import AudioFormat
from voxgate.client.utterance import Utterance

from ..testbed.gateway_process import GatewayProcess, tone_gateway
from ..testbed.keys import bearer, key_entry, new_key, write_keys_file
from ..testbed.listeners import UNLIMITED, speech_text
from ..testbed.measuring import Figures
from ..testbed.raw_http import ask
from ..testbed.raw_websocket import TEXT, RawClient, RawWebSocket, connect_as, frame

OK, CREATED, UNAUTHORIZED, FORBIDDEN, NOT_FOUND = 200, 201, 401, 403, 404

# Rights


async def test_key_does_only_what_it_may(tmp_path: Path) -> None:
    """A key for metrics neither speaks nor manages voices, and one for speech does not manage voices."""
    keys = {"metrics": new_key(), "speaker": new_key(), "owner": new_key()}
    path = tmp_path / "keys.toml"
    write_keys_file(path, keys, metrics=["metrics"], speaker=["speak"], owner=["speak", "voices"])
    async with tone_gateway(keys_file=path) as gateway:
        assert await _allowed(gateway, keys["metrics"]) == {"speak": False, "voices": False, "metrics": True}
        assert await _allowed(gateway, keys["speaker"]) == {"speak": True, "voices": False, "metrics": False}
        assert await _allowed(gateway, keys["owner"]) == {"speak": True, "voices": True, "metrics": False}


async def _allowed(gateway: GatewayProcess, key: str) -> dict[str, bool]:
    socket = await connect_as(RawWebSocket, gateway.port, (bearer(key),))
    socket.abort()
    body = json.dumps({"input": "Hello.", "voice": "ada", "response_format": "pcm"}).encode()
    spoken = await ask(
        gateway.port, "POST", "/v1/audio/speech", bearer(key), "Content-Type: application/json", body=body
    )
    assert (socket.answered.result() == 101) == (spoken.status == OK), "WebSocket and HTTP differ"
    removed = await ask(gateway.port, "DELETE", "/v1/voices/nobody", bearer(key))
    metrics = await ask(gateway.port, "GET", "/metrics", bearer(key))
    return {"speak": spoken.status == OK, "voices": removed.status == NOT_FOUND, "metrics": metrics.status == OK}


# A rotated key


async def test_rotated_key_takes_its_tokens_and_sockets_with_it(tmp_path: Path) -> None:
    """A key that leaked is replaced under the same name."""
    leaked, renewed, other = new_key(), new_key(), new_key()
    path = tmp_path / "keys.toml"
    write_keys_file(path, {"alice": leaked, "bob": other})
    async with tone_gateway(keys_file=path) as gateway:
        issued = await ask(gateway.port, "POST", "/v1/tokens", bearer(leaked), body=b'{"ttl_s": 3600}')
        token = issued.document["token"]
        opened = [await connect_as(RawClient, gateway.port, (bearer(each),)) for each in (leaked, token)]
        bob = await connect_as(RawClient, gateway.port, (bearer(other),))
        assert [client.answered.result() for client in opened] == [101, 101]
        write_keys_file(path, {"alice": renewed, "bob": other})
        gateway.signal(signal.SIGHUP)
        await until(lambda: _accepts(gateway, renewed))
        assert not await _accepts(gateway, leaked)
        assert not await _accepts(gateway, token)
        for client in opened:
            await until(client.closed.done)
        assert await bob.say("Another key's socket goes on.").ended() == "done"


async def _accepts(gateway: GatewayProcess, credential: str) -> bool:
    socket = await connect_as(RawWebSocket, gateway.port, (bearer(credential),))
    socket.abort()
    return socket.answered.result() == 101


# Acks

SPEECH_S = 6.0
SEND_AHEAD_S = 0.4
"""Default of the gateway."""


class EagerClient(RawClient):
    """Acknowledges more than it was sent, as soon as anything comes."""

    def take_audio(self, payload: bytes) -> None:
        super().take_audio(payload)
        self.send(type="ack", utterance="a", played_samples=2**53 - 1)


async def test_false_acks_do_not_hurry_the_audio(figures: Figures) -> None:
    """Audio cannot have been played in less time than it lasts."""
    async with tone_gateway(**UNLIMITED) as gateway:
        client = await connect_as(EagerClient, gateway.port)
        received = client.say(speech_text(SPEECH_S))
        assert await received.ended() == "done"
        first_s, last_s = received.playback.arrivals[0][0], received.playback.arrivals[-1][0]
        # A busy machine only makes it longer.
        figures.at_least("seconds of 6 s of speech", last_s - first_s, SPEECH_S - 2 * SEND_AHEAD_S - 0.1)


# One refused message


async def test_refused_message_spares_the_other_utterances() -> None:
    """The Python client fails the utterance that the refused message belongs to, and no other."""
    pcm = AudioFormat(codec="pcm")
    async with (
        tone_gateway(messages_per_s=20) as gateway,
        client_connect(f"ws://127.0.0.1:{gateway.port}") as session,
        session.utterance(format=pcm) as innocent,
        session.utterance(format=pcm) as guilty,
    ):
        await innocent.send(speech_text(8))
        await innocent.end()
        listening = asyncio.create_task(_listen(innocent))
        with suppress(SpeechError):
            for _ in range(115):
                await guilty.send("word ")
        assert await listening == "done"


async def _listen(utterance: Utterance) -> str:
    """Read an utterance to its end. Returns how it ended."""
    try:
        async for _ in utterance.audio():
            pass
    except SpeechError as error:
        return error.code
    return "done"


# Rates

MESSAGES_PER_S = 20
SHARED_RATES, BURST_S = 10, 5
"""Limits of a caller: rates of one socket, and seconds of it that may come at once."""
SOCKETS, ROUNDS = 50, 60


async def test_rates_hold_for_all_sockets_of_a_caller(figures: Figures) -> None:
    """Each of many sockets stays below the rate of one; together they are read at ten times that rate."""
    key = new_key()
    async with tone_gateway(keys=key_entry("alice", key), messages_per_s=MESSAGES_PER_S) as gateway:
        sockets = [await connect_as(RawClient, gateway.port, (bearer(key),)) for _ in range(SOCKETS)]
        ping = frame(TEXT, b'{"type":"ping"}')
        began_s = sockets[0].now()
        for _ in range(ROUNDS):
            for client in sockets:
                client.transport.write(ping)
            await asyncio.sleep(1 / MESSAGES_PER_S)
        answered = sum(len(client.messages) for client in sockets) - SOCKETS  # one is that of the session
        allowed = SHARED_RATES * MESSAGES_PER_S * (BURST_S + sockets[0].now() - began_s)
        figures.note("messages sent", ROUNDS * SOCKETS)
        figures.at_most("answered, relative to the limit", answered / allowed, 1.05)
        for client in sockets:
            client.abort()
