"""How much may lie unsent between us and a client: little, so that who reads slowly shows early, and as what he is.

With the megabytes that a kernel takes by itself, a client that reads steadily seems to stop for half a minute whenever
they are full.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys

WRITE_LIMIT_BYTES = 4096
"""Above this in our own buffer a write waits."""
UNSENT_BYTES = 16_384
"""In the kernel's."""
_TCP_NOTSENT_LOWAT = getattr(socket, "TCP_NOTSENT_LOWAT", 25 if sys.platform == "linux" else None)


def keep_little_unsent(transport: asyncio.BaseTransport) -> None:
    """Have the kernel take no more than `UNSENT_BYTES` ahead of the network; what is on its way does not count."""
    sock: socket.socket | None = transport.get_extra_info("socket")
    if sock is not None and _TCP_NOTSENT_LOWAT is not None:
        with contextlib.suppress(OSError):  # a hint: speech works without it
            sock.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, UNSENT_BYTES)
