"""A port that several processes are going to listen on: found and kept by the one that starts them."""

from __future__ import annotations

import socket


class SharedPort:
    """Kept from `open` to `close`: bound, so that it stays ours while no worker listens, and not listened on."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []
        self.number = 0

    def open(self, host: str, port: int) -> None:
        """Raises OSError when anybody else listens there."""
        addresses = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, kind, protocol, _, address in addresses:
                at = (address[0], self.number or port, *address[2:])
                # A bind beside others would succeed beside another gateway's too.
                with _socket(family, kind, protocol) as alone:
                    alone.bind(at)
                    at = (address[0], alone.getsockname()[1], *address[2:])
                beside = _socket(family, kind, protocol)
                self._sockets.append(beside)
                beside.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                beside.bind(at)
                self.number = at[1]
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for sock in self._sockets:
            sock.close()
        self._sockets.clear()


def _socket(family: int, kind: int, protocol: int) -> socket.socket:
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    return sock
