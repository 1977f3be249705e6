"""The longest turn of the event loop while a client does its worst."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from ..testbed.gateway_process import GatewayProcess, tone_gateway
from ..testbed.keys import key_entry, new_key
from ..testbed.listeners import UNLIMITED, speech_text
from ..testbed.measuring import Figures
from ..testbed.raw_http import IdleConnections, ask, http_request
from ..testbed.raw_websocket import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    RawWebSocket,
    connect,
    connect_as,
    connect_many,
    frame,
)
from ..testbed.resumable_websocket import NEW_SESSION, ResumableWebSocket

TURN_MS = 10
TURN_CALLS = 40_000
"""Most calls of functions in a turn, a measure of work that does not depend on the machine."""
CONTINUATION = 0
FLOOD_S = 3.0
FLOODERS = 60
SPEAKERS = 64
LOST = 200
"""Sessions whose connections are lost at once."""
RESUMED_AT_ONCE = 60
"""Sockets that bring their first message at once: some fewer than may wait for it."""
UNSENT_BYTES = 1 << 16
LATE_KEY_PATH = "/v1/text-to-speech/ada/stream-input"

HALVES = "\u00bd" * 4096
DIGITS = "9" * 4096
MONEY = ("$1,234,567.89 " * 300)[:4096]
MARKS = ("a" + "\u0301" * 7) * 512


@dataclass(frozen=True)
class Attack:
    """What a client does, the flags of the gateway and the fields of its talker."""

    run: Callable[[GatewayProcess], Awaitable[None]]
    talker: dict[str, object]
    flags: dict[str, object]


def _attack(run: Callable[[GatewayProcess], Awaitable[None]], *, real_text: bool = False, **flags: object) -> Attack:
    return Attack(run, {"real_text": True} if real_text else {}, flags)


async def _speak(gateway: GatewayProcess, text: str) -> None:
    """Three utterances over WebSocket and one over HTTP; interrupted, because the speech is not the subject."""
    client = await connect(gateway.port)
    for number in range(3):
        client.say(text, name=f"u{number}")
        client.send(type="ping", id=str(number))
    while sum(message["type"] == "pong" for message in client.messages) < 3:
        await asyncio.sleep(0.01)
    client.abort()
    body = json.dumps({"input": text, "voice": "ada", "response_format": "pcm"}).encode()
    request = http_request("POST", "/v1/audio/speech", "Content-Type: application/json", body=body)
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(request)
    await reader.read(10_000)
    writer.transport.abort()


def _text(text: str) -> Attack:
    return _attack(lambda gateway: _speak(gateway, text), real_text=True, **UNLIMITED)


async def _ask_for_large_answer(gateway: GatewayProcess) -> None:
    path = "/v1/text-to-speech/ada/with-timestamps?output_format=pcm_48000"
    body = json.dumps({"text": speech_text(200)[:4096]}).encode()
    assert (await ask(gateway.port, "POST", path, "Content-Type: application/json", body=body)).status == 200


def _flood(data: bytes, first: bytes = b"", path: str = "/v1/speech") -> Callable[[GatewayProcess], Awaitable[None]]:
    """Many connections that send `first`, then `data` again and again; one that was closed connects again."""

    async def run(gateway: GatewayProcess) -> None:
        loop = asyncio.get_running_loop()
        connecting = asyncio.Lock()  # handshakes are an attack of their own
        end_s = loop.time() + FLOOD_S

        async def flood_once() -> None:
            async with connecting:
                client = await connect_as(RawWebSocket, gateway.port, path=path)
            client.transport.pause_reading()
            client.transport.write(first)
            until_s = min(end_s, loop.time() + 1)
            while loop.time() < until_s and not client.transport.is_closing():
                if client.transport.get_write_buffer_size() < UNSENT_BYTES:
                    client.transport.write(data)
                await asyncio.sleep(0)
            client.abort()

        async def flood_again_and_again() -> None:
            while loop.time() < end_s:
                try:
                    await flood_once()
                except OSError:
                    await asyncio.sleep(0.01)

        await asyncio.gather(*(flood_again_and_again() for _ in range(FLOODERS)))

    return run


async def _shake_hands(gateway: GatewayProcess) -> None:
    for _ in range(5):
        clients = await asyncio.gather(*(connect_as(RawWebSocket, gateway.port) for _ in range(100)))
        for client in clients:
            client.abort()


def _all_at_once(data: bytes | None) -> Callable[[GatewayProcess], Awaitable[None]]:
    """Hundreds of clients send `data` while the gateway is stopped, so that it finds all of it in one turn.

    Without `data` they vanish.
    """

    async def run(gateway: GatewayProcess) -> None:
        clients = await connect_many(gateway.port, 400)
        gateway.signal(signal.SIGSTOP)
        for client in clients:
            if data is None:
                client.abort()
            else:
                client.transport.write(data)
        await asyncio.sleep(0.1)
        gateway.signal(signal.SIGCONT)
        await asyncio.sleep(1)
        for client in clients:
            client.abort()
        await gateway.until_no_sockets()

    return run


async def _speakers_vanish(gateway: GatewayProcess) -> None:
    """As many clients as there are slots vanish while they are spoken to, beside hundreds that are idle."""
    clients = await connect_many(gateway.port, 400)
    for client in clients[:SPEAKERS]:
        client.say(speech_text(60))
    await gateway.until_state(lambda state: state["speeches"] == SPEAKERS)
    await asyncio.sleep(0.5)
    gateway.signal(signal.SIGSTOP)
    for client in clients[:SPEAKERS]:
        client.abort()
    await asyncio.sleep(0.1)
    gateway.signal(signal.SIGCONT)
    await gateway.until_idle()
    for client in clients:
        client.abort()
    await gateway.until_no_sockets()


async def _lose_sessions(gateway: GatewayProcess) -> list[ResumableWebSocket]:
    """Clients that can resume vanish at once, as many as there are slots while they are spoken to."""
    clients = [await connect_as(ResumableWebSocket, gateway.port, path=NEW_SESSION) for _ in range(LOST)]
    for client in clients:
        client.send(type="start", utterance="a", format={"codec": "pcm"})
        client.send(type="text", utterance="a", text=speech_text(60))
        client.send(type="end", utterance="a")
    await gateway.until_state(lambda state: state["speeches"] == SPEAKERS)
    await asyncio.sleep(0.5)
    for client in clients:
        client.abort()
    return clients


async def _sessions_end_at_once(gateway: GatewayProcess) -> None:
    await _lose_sessions(gateway)
    await gateway.until_idle()
    await gateway.until_no_sockets()


async def _sessions_go_on_at_once(gateway: GatewayProcess) -> None:
    lost = (await _lose_sessions(gateway))[:RESUMED_AT_ONCE]
    again = await asyncio.gather(
        *(connect_as(ResumableWebSocket, gateway.port, path=each.path_to_resume) for each in lost)
    )
    gateway.signal(signal.SIGSTOP)
    for client, before in zip(again, lost, strict=True):
        client.send(**before.resume_message)
    await asyncio.sleep(0.1)
    gateway.signal(signal.SIGCONT)
    await asyncio.sleep(2)
    assert all(client.token for client in again)
    for client in again:
        client.abort()


async def _connect_idle(gateway: GatewayProcess) -> None:
    idle = IdleConnections(gateway.port)
    request = http_request("GET", "/v1/limits", keep_alive=True)
    await asyncio.gather(*(idle.open(100, request) for _ in range(10)))
    clients = await connect_many(gateway.port, 100)
    await asyncio.sleep(1)
    idle.abort()
    for client in clients:
        client.abort()


RESUMED = {"queue_length": 0, "resume_s": 5, **UNLIMITED}
"""Nothing waits for the slots of sessions that wait for their clients, which therefore keep them."""
KEYED = {"keys": key_entry("alice", new_key())}
MESSAGE = frame(TEXT, b'{"type":"ping"}') * 200
ATTACKS = {
    "idle connections": _attack(_connect_idle),
    "handshakes": _attack(_shake_hands),
    "clients vanish at once": _attack(_all_at_once(None)),
    "speaking clients vanish at once": _attack(_speakers_vanish, **UNLIMITED),
    "sessions that wait for their clients end at once": _attack(_sessions_end_at_once, **RESUMED),
    "sessions go on at once": _attack(_sessions_go_on_at_once, **RESUMED | {"resume_s": 60}),
    "closes at once": _attack(_all_at_once(frame(CLOSE, (1000).to_bytes(2, "big")))),
    "binary messages at once": _attack(_all_at_once(frame(BINARY, b"x"))),
    "text of fractions": _text(HALVES),
    "text of digits": _text(DIGITS),
    "text of money": _text(MONEY),
    "text of combining marks": _text(MARKS),
    "large answer": Attack(_ask_for_large_answer, {"frames_per_character": 1.2}, UNLIMITED),
    "messages": _attack(_flood(MESSAGE)),
    "pings": _attack(_flood(frame(PING, b"") * 500)),
    "pongs": _attack(_flood(frame(PONG, b"") * 500)),
    "empty fragments": _attack(_flood(frame(CONTINUATION, b"", last=False) * 500, frame(TEXT, b"", last=False))),
    "unauthenticated pongs": _attack(_flood(frame(PONG, b"") * 500, path=LATE_KEY_PATH), **KEYED),
    "unauthenticated fragments": _attack(
        _flood(frame(CONTINUATION, b"", last=False) * 500, frame(TEXT, b"", last=False), LATE_KEY_PATH), **KEYED
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
async def test_turns_stay_short(name: str, figures: Figures) -> None:
    """With `--timing` the longest turn is measured, otherwise the work in one.

    The figure is CPU time, so a busy machine does not spoil it.
    """
    attack = ATTACKS[name]
    async with tone_gateway(talker=attack.talker, **attack.flags) as gateway:
        warm = await connect(gateway.port) if "keys" not in attack.flags else None
        if warm is not None:
            await warm.say("What is loaded once is loaded now.").ended()
            await warm.close()
        await gateway.ask("watch_turns", count_calls=not figures.judge_time)
        await attack.run(gateway)
        turns = await gateway.ask("turns")
        figures.note("turns", turns["turns"])
        figures.time_at_most("longest turn ms", turns["longest_ms"], TURN_MS)
        figures.at_most("calls in a turn", turns["most_calls"], TURN_CALLS)
        assert gateway.log_errors == []
