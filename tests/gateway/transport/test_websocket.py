"""The gateway's end of a WebSocket: its frames, its deadlines, and how its connection ends."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from fakes.gateway.memory_websocket import client_frame, open_websocket
from fakes.virtual_time import run, settle
from voxgate.gateway.protocols.endpoint import FirstMessageKey
from voxgate.gateway.transport.buffer_limits import READ_SIZE_BYTES
from voxgate.gateway.transport.connection import SocketClosed
from voxgate.gateway.transport.frame_policy import PENDING_BYTES, PENDING_FRAMES
from voxgate.gateway.transport.turn_budget import TURN_STEPS, TurnBudget
from voxgate.gateway.transport.websocket import (
    CLOSE_TIMEOUT_S,
    BoundedConnection,
    frame_head,
)
from websockets.frames import Frame, Opcode


@pytest.mark.parametrize("length", [0, 1, 125, 126, 127, 65_535, 65_536, 70_000])
def test_frame_equals_that_of_the_websockets_library(length: int) -> None:
    payload = bytes(length)
    expected = Frame(Opcode.BINARY, payload).serialize(mask=False)
    assert frame_head(length) + payload == expected


@pytest.mark.parametrize("error", [None, ConnectionResetError(), BrokenPipeError(), TimeoutError(), OSError()])
def test_connection_lost_while_a_write_waits_is_an_ordinary_end(error: Exception | None) -> None:
    async def scene() -> None:
        websocket, transport = await open_websocket()
        websocket.pause_writing()
        writing = asyncio.create_task(websocket.wait_writable())
        await settle()
        transport.lose(error)
        if error is None:
            await writing
        else:
            with pytest.raises(SocketClosed):
                await writing
        with pytest.raises(SocketClosed):
            websocket.send("late")

    run(scene())


def test_end_of_a_lost_connection_waits_for_the_budget_and_uses_its_transport_no_more() -> None:
    """The transports of event loops raise when a lost connection is written to or aborted."""

    async def scene() -> None:
        budget = TurnBudget(TURN_STEPS)
        websocket, transport = await open_websocket(budget=budget)
        reading = asyncio.create_task(websocket.receive())
        await settle()
        assert budget.take(TURN_STEPS)
        websocket.connection_lost(None)
        websocket.send(b"late")
        websocket.send("late")
        websocket.probe(lambda: None)
        await asyncio.sleep(0)
        assert not reading.done()
        with pytest.raises(SocketClosed):
            await reading
        with pytest.raises(SocketClosed):
            websocket.send(b"later")
        websocket.transport.abort()
        assert (transport.written, transport.aborted_s) == (b"", None)

    run(scene())


def test_client_that_reads_nothing_is_cut_without_a_session() -> None:
    """The pongs of the library fill the write buffer, and no session has anything to write."""

    async def scene() -> None:
        websocket, transport = await open_websocket(write_timeout_s=60.0)
        websocket.pause_writing()
        await asyncio.sleep(59)
        websocket.resume_writing()
        websocket.pause_writing()
        await asyncio.sleep(59)
        assert transport.aborted_s is None
        await asyncio.sleep(2)
        assert transport.aborted_s == pytest.approx(59 + 60)

    run(scene())


@pytest.mark.parametrize("frame", [client_frame(Opcode.CLOSE), b"\x83\x80" + bytes(4)], ids=["close", "invalid opcode"])
def test_client_that_does_not_end_its_closed_connection_is_cut(frame: bytes) -> None:
    async def scene() -> None:
        websocket, transport = await open_websocket()
        receiving = asyncio.create_task(websocket.receive())
        await settle()
        websocket.data_received(frame)
        await asyncio.sleep(CLOSE_TIMEOUT_S - 0.1)
        assert transport.aborted_s is None
        with pytest.raises(SocketClosed):
            await receiving
        assert transport.aborted_s == pytest.approx(CLOSE_TIMEOUT_S, abs=0.01)

    run(scene())


@pytest.mark.parametrize(
    ("opcode", "count"), [(Opcode.PING, 200), (Opcode.PONG, 200), (Opcode.CONT, 5000), (Opcode.TEXT, 5000)]
)
def test_flood_of_any_kind_of_frame_is_disconnected(opcode: Opcode, count: int) -> None:
    async def scene() -> None:
        websocket, transport = await open_websocket()
        receiving = asyncio.create_task(drop_messages(websocket))
        if opcode is Opcode.CONT:
            websocket.data_received(Frame(Opcode.TEXT, b"", fin=False).serialize(mask=True))
        frame = Frame(opcode, b"", fin=opcode is not Opcode.CONT).serialize(mask=True)
        for _ in range(count):
            websocket.data_received(frame)
            await asyncio.sleep(0)
        assert not transport.reads
        assert transport.written[-40:].find((1008).to_bytes(2)) >= 0
        await receiving
        assert transport.aborted_s == pytest.approx(CLOSE_TIMEOUT_S, abs=0.01)

    run(scene())


async def drop_messages(websocket: BoundedConnection) -> None:
    with contextlib.suppress(SocketClosed):
        while True:
            await websocket.receive()


def test_pongs_that_answer_pings_are_no_flood() -> None:
    async def scene() -> None:
        websocket, transport = await open_websocket()
        answered: list[None] = []
        for _ in range(300):
            websocket.probe(lambda: answered.append(None))
            websocket.data_received(client_frame(Opcode.PONG, transport.written[-8:]))
            await asyncio.sleep(0)
        await settle()
        assert len(answered) == 300
        assert transport.aborted_s is None
        transport.lose(None)

    run(scene())


KEY_READER = FirstMessageKey(lambda message: message, str)


def test_frames_after_the_first_message_wait_until_its_key_is_checked() -> None:
    async def scene() -> None:
        websocket, transport = await open_websocket()
        websocket.require_first_message(KEY_READER)
        for number in range(5):
            websocket.data_received(client_frame(Opcode.TEXT, b"%d" % number))
        assert not transport.reads
        websocket.accept_first(await websocket.receive())
        assert transport.reads
        assert [await websocket.receive() for _ in range(5)] == ["0", "1", "2", "3", "4"]
        transport.lose(None)

    run(scene())


@pytest.mark.parametrize("opcode", [Opcode.PONG, Opcode.PING])
def test_client_without_key_may_send_few_frames(opcode: Opcode) -> None:
    async def scene() -> None:
        websocket, transport = await open_websocket()
        websocket.require_first_message(KEY_READER)
        for _ in range(PENDING_FRAMES):
            websocket.data_received(client_frame(opcode))
        assert transport.reads
        websocket.data_received(client_frame(opcode))
        assert not transport.reads
        assert b"too many frames" in transport.written
        await asyncio.sleep(CLOSE_TIMEOUT_S + 0.1)
        assert transport.aborted_s is not None

    run(scene())


def test_first_message_with_the_key_is_small() -> None:
    async def scene() -> None:
        websocket, transport = await open_websocket(max_size=65_536)
        websocket.require_first_message(KEY_READER)
        for data in pieces(client_frame(Opcode.TEXT, bytes(2 * PENDING_BYTES))):
            assert transport.reads
            websocket.data_received(data)
            if not transport.reads:
                break
        assert (1009).to_bytes(2) in transport.written
        transport.lose(None)

    run(scene())


def pieces(data: bytes) -> list[bytes]:
    """What `ReadSizeLimit` passes on at once."""
    return [data[at : at + READ_SIZE_BYTES] for at in range(0, len(data), READ_SIZE_BYTES)]


def test_long_text_may_follow_the_first_message_at_once() -> None:
    """Both begin in the same read, so that the second one is parsed before the key is checked."""

    async def scene() -> None:
        websocket, transport = await open_websocket(max_size=65_536)
        websocket.require_first_message(KEY_READER)
        key, text = client_frame(Opcode.TEXT, b"key"), client_frame(Opcode.TEXT, bytes(60_000))
        first, *rest = pieces(key + text)
        websocket.data_received(first)
        assert not transport.reads
        websocket.accept_first(await websocket.receive())
        for data in rest:
            websocket.data_received(data)
        assert await websocket.receive() == "key"
        assert len(await websocket.receive()) == 60_000
        transport.lose(None)

    run(scene())


def test_later_messages_may_be_large() -> None:
    async def scene() -> None:
        websocket, transport = await open_websocket(max_size=65_536)
        websocket.require_first_message(KEY_READER)
        websocket.data_received(client_frame(Opcode.TEXT, b"key"))
        websocket.accept_first(await websocket.receive())
        websocket.data_received(client_frame(Opcode.TEXT, bytes(60_000)))
        assert await websocket.receive() == "key"
        assert len(await websocket.receive()) == 60_000
        transport.lose(None)

    run(scene())


def test_evicted_client_learns_the_reason_and_is_cut_at_once() -> None:
    async def scene() -> None:
        websocket, transport = await open_websocket()
        websocket.evict()
        assert websocket.evicted
        assert b"unauthorized" in transport.written
        assert transport.aborted_s == 0
        await settle()
        websocket.evict()  # once more, when it is gone

    run(scene())


def test_payload_of_a_probe_does_not_tell_that_of_the_next() -> None:
    async def scene() -> None:
        websocket, transport = await open_websocket()
        payloads = []
        for _ in range(2):
            websocket.probe(lambda: None)
            payloads.append(int.from_bytes(transport.written[-8:]))
        assert abs(payloads[1] - payloads[0]) > 2**16
        transport.lose(None)

    run(scene())
