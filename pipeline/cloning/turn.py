"""Whose turn it is, over all processes of a gateway: what is done in a turn takes memory that is there once."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator

LOOK_S = 0.1
"""Pause between looks at whether another process has done."""


class Turn:
    """One at a time, of all processes that know it by the same `name`; by none, of this one's.

    The name is an abstract socket's: the kernel gives the turn back when the process that has it dies.
    """

    def __init__(self, name: str | None = None) -> None:
        self._name = name
        self._here = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def taken(self, patience_s: float) -> AsyncIterator[None]:
        """Wait for it, and have it inside. Raises TimeoutError when it does not come within `patience_s` seconds."""
        with contextlib.ExitStack() as held:
            async with asyncio.timeout(patience_s):
                await self._here.acquire()
                held.callback(self._here.release)
                if self._name is not None:
                    held.enter_context(await _bound(self._name))
            yield


async def _bound(name: str) -> socket.socket:
    while True:
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.bind(f"\0{name}")
        except OSError as error:
            sock.close()
            if error.errno != errno.EADDRINUSE:
                raise
            await asyncio.sleep(LOOK_S)
        else:
            return sock
