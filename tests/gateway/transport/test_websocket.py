"""Frames of the server's own making."""

from __future__ import annotations

import pytest
from voxgate.gateway.transport.websocket import frame_head
from websockets.frames import Frame, Opcode


@pytest.mark.parametrize("length", [0, 1, 125, 126, 127, 65_535, 65_536, 70_000])
def test_frame_equals_that_of_the_websockets_library(length: int) -> None:
    payload = bytes(length)
    expected = Frame(Opcode.BINARY, payload).serialize(mask=False)
    assert frame_head(length) + payload == expected
