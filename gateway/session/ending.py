"""Why the gateway ends sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from voxgate.pipeline.errors import AtCapacity, VoxgateError

from ..errors import SOCKETS_RETRY_MS, Draining, Limit, Unauthorized
from ..messages.connection import CloseCode


class Ending(NamedTuple):
    """Why the gateway ends a session: the error of its utterances, close code and reason of its socket.

    `moves`: whether a client with checkpoints goes on at another gateway.
    """

    error: Callable[[], VoxgateError]
    code: CloseCode
    reason: str
    moves: bool = False


SHUTDOWN = Ending(Draining, CloseCode.RESTARTING, "shutting down", moves=True)
REVOKED = Ending(lambda: Unauthorized("this API key was revoked"), CloseCode.POLICY, "key revoked")
EXPIRED = Ending(lambda: Unauthorized("this API key or token has expired"), CloseCode.POLICY, "key or token expired")
LIFETIME = Ending(
    lambda: Draining("the socket has reached its longest life: connect again"),
    CloseCode.GOING_AWAY,
    "longest life",
    moves=True,
)
CROWDED = Ending(
    lambda: AtCapacity("other callers need the socket", retry_after_ms=SOCKETS_RETRY_MS, reached=Limit.SOCKET_SHARE),
    CloseCode.TRY_AGAIN_LATER,
    "other callers need the socket",
)
