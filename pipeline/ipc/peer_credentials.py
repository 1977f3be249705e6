"""Identifies the process at the other end of a Unix socket.

Abstract sockets have no permissions: any user of the machine can connect to them.
"""

from __future__ import annotations

import os
import socket
import struct

_UCRED = struct.Struct("3i")
"""`struct ucred` of <sys/socket.h>: process id, user id, group id."""


def peer_uid(sock: socket.socket) -> int:
    """The user that the other end's process belonged to when it connected. Raises OSError."""
    _, uid, _ = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return int(uid)


def is_same_user(sock: socket.socket) -> bool:
    """Whether the other end's process belongs to this process's user. Raises OSError."""
    return peer_uid(sock) == os.getuid()
