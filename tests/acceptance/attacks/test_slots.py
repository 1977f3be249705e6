"""Clients that take slots, queue places or sockets and do not give them back."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import termios

import pytest
from fakes.waiting import DEADLINE_S, until

from ..testbed.gateway_process import tone_gateway
from ..testbed.keys import bearer, key_entry, new_key
from ..testbed.listeners import UNLIMITED, speech_text
from ..testbed.measuring import Figures
from ..testbed.raw_websocket import PING, TEXT, RawClient, connect, connect_as, frame, upgrade_request

SLOTS = 8
LONG_S = 60
FREED_S = 5
"""How long the slots of a client that is gone may be held."""
STALL_MS, UNPACED_STALLS = 1000, 10
"""How long a client may stop reading, and how often that with `pacing: none` (docs/protocol.md)."""

# A connection that is cut while its reader and its writer wait

BACKLOG_PINGS = 65
"""`ping` messages: more than the backlog above which the gateway stops reading, few enough to be received."""
FLOOD_PINGS = 101
RECEIVE_BUFFER_BYTES = 4096


async def test_slots_return_when_a_blocked_client_is_cut(figures: Figures) -> None:
    """The gateway waits for a client that does not read, stops reading it, and then cuts it: for its flood of pings, or
    as a slow consumer where it stopped reading before the flood.
    """
    async with tone_gateway(slots=SLOTS, slow_consumer_timeout_ms=STALL_MS, **UNLIMITED) as gateway:
        idle = await gateway.ask("state")
        client = await _connect_with_small_buffer(gateway.port)
        utterances = [client.say(speech_text(LONG_S, n), name=f"u{n}", pacing="none") for n in range(SLOTS)]
        await until(lambda: all(one.started_s is not None for one in utterances))
        client.transport.pause_reading()
        await _until_blocked(client)
        client.transport.write(frame(TEXT, b'{"type":"ping"}') * BACKLOG_PINGS)
        client.transport.write(frame(PING, b"") * FLOOD_PINGS)
        longest_s = UNPACED_STALLS * STALL_MS / 1000 + FREED_S
        figures.at_most("slots free after s", await gateway.until_idle(), longest_s)
        client.abort()
        other = await connect(gateway.port)
        assert await other.say("Now another client speaks.").ended() == "done"
        await other.close()
        await gateway.until_state(lambda state: state["tasks"] <= idle["tasks"] + 1, tasks=True)
        assert gateway.log_errors == []


async def _connect_with_small_buffer(port: int) -> RawClient:
    """A session whose gateway blocks soon when it does not read."""
    loop = asyncio.get_running_loop()
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    sock.setblocking(False)
    await loop.sock_connect(sock, ("127.0.0.1", port))
    async with asyncio.timeout(DEADLINE_S):
        _, client = await loop.create_connection(lambda: RawClient(upgrade_request(f"127.0.0.1:{port}")), sock=sock)
        await client.answered
    return client


async def _until_blocked(client: RawClient) -> None:
    """Wait until the client's kernel receives no more: its buffer, and then the gateway's, are full."""
    descriptor = client.transport.get_extra_info("socket").fileno()
    before, unread = -1, 0
    while unread != before or not unread:
        await asyncio.sleep(0.5)
        before, unread = unread, struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))[0]


# A client that does not read and does not speak


async def test_idle_client_that_does_not_read_is_closed(figures: Figures) -> None:
    async with tone_gateway(slow_consumer_timeout_ms=1000, **UNLIMITED) as gateway:
        client = await _connect_with_small_buffer(gateway.port)
        client.transport.pause_reading()
        ping = frame(TEXT, b'{"type":"ping","id":"' + b"x" * 100 + b'"}')
        for _ in range(40):
            client.transport.write(ping * 100)
        figures.time_at_most("closed after s", await gateway.until_no_sockets(), 1 + FREED_S)
        client.abort()
        assert gateway.log_errors == []


# Slots without text


async def test_utterances_without_text_hold_no_slot() -> None:
    async with tone_gateway(slots=SLOTS, **UNLIMITED) as gateway:
        hoarder = await connect(gateway.port)
        for number in range(SLOTS):
            hoarder.send(type="start", utterance=f"u{number}")
        await _until_answered(hoarder)
        other = await connect(gateway.port)
        assert await other.say("A client that has something to say.").ended() == "done"


# An utterance that is kept alive by one character now and then


async def test_utterance_has_a_longest_life() -> None:
    """Each character renews the time that the gateway waits for text, so that alone bounds nothing."""
    async with tone_gateway(slots=SLOTS, text_idle_timeout_s=1, utterance_timeout_s=2, **UNLIMITED) as gateway:
        client = await connect(gateway.port)
        received = client.say("a", end=False)
        for _ in range(240):
            if received.over.done():
                break
            client.send(type="text", utterance="a", text="a")
            await asyncio.sleep(0.25)
        assert received.over.done(), "the utterance is still open after a minute"
        await gateway.until_idle()


# Queue places

QUEUE_LENGTH = 8


@pytest.fixture
def keys() -> dict[str, str]:
    return {"alice": new_key(), "bob": new_key()}


async def test_one_caller_does_not_take_every_queue_place(keys: dict[str, str]) -> None:
    """The newest of the caller with most waiting utterances makes room for another caller."""
    entries = [key_entry(*entry) for entry in keys.items()]
    limits = UNLIMITED | {"queue_length": QUEUE_LENGTH, "queue_wait_ms": 30_000, "utterances_per_session": 20}
    async with tone_gateway(slots=1, keys=entries, **limits) as gateway:
        alice = await connect_as(RawClient, gateway.port, (bearer(keys["alice"]),))
        speaking = alice.say(speech_text(5), name="speaking")
        await until(lambda: speaking.started_s is not None)
        waiting = [alice.say(speech_text(2), name=f"w{n}") for n in range(QUEUE_LENGTH)]
        await _until_answered(alice)
        bob = await connect_as(RawClient, gateway.port, (bearer(keys["bob"]),))
        received = bob.say("Bob speaks next.")
        assert await received.ended() == "done"
        assert received.mismatch == ""
        assert waiting[-1].outcome == "at_capacity"
        assert await speaking.ended() == "done"


async def _until_answered(client: RawClient) -> None:
    """Wait until the gateway has decided about everything that `client` sent."""
    client.send(type="ping", id="answered")
    await until(lambda: any(message.get("id") == "answered" for message in client.messages))


# Slots


async def test_one_caller_gets_no_further_slot_while_another_waits(keys: dict[str, str]) -> None:
    """A caller that is alone gets every slot; what becomes free while another one waits is not for it."""
    entries = [key_entry(*entry) for entry in keys.items()]
    limits = UNLIMITED | {"queue_length": 2 * QUEUE_LENGTH, "queue_wait_ms": 60_000, "utterances_per_session": 100}
    async with tone_gateway(slots=4, keys=entries, **limits) as gateway:
        alice = await connect_as(RawClient, gateway.port, (bearer(keys["alice"]),))
        # Long ones, because a speech that fits into the lookahead gives its slot back at once.
        for number in range(8):
            alice.say(speech_text(LONG_S, number), name=f"u{number}")
        await until(lambda: _speaking(alice) == 4)
        bob = await connect_as(RawClient, gateway.port, (bearer(keys["bob"]),))
        for number in range(2):
            bob.say(speech_text(LONG_S, number), name=f"b{number}")
        await _until_answered(bob)
        for number in range(2):
            alice.send(type="interrupt", utterance=f"u{number}")
        await until(lambda: _speaking(bob) == 2)
        assert _speaking(alice) == 4, "an utterance that waited got a slot before those of the other caller"
        alice.send(type="interrupt", utterance="u2")
        await until(lambda: _speaking(alice) == 5)


def _speaking(client: RawClient) -> int:
    """Utterances that got a slot, also those that ended since."""
    return sum(one.started_s is not None for one in client.received.values())
