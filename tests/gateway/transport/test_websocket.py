"""The gateway's end of a WebSocket: its frames, its deadlines, and how its connection ends."""

from __future__ import annotations

import asyncio

import pytest
from fakes.gateway.memory_websocket import client_frame, open_websocket
from fakes.virtual_time import run, settle
from voxgate.gateway.transport.connection import SocketClosed
from voxgate.gateway.transport.websocket import CLOSE_TIMEOUT_S, frame_head
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
