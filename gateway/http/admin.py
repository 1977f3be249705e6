"""The admin port: probes and metrics on a listener of their own, which clients' connections cannot exhaust."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ..access.auth import AccessControl
from ..access.rights import PUBLIC
from ..engine import EngineStatus
from ..settings import listening
from ..transport.buffer_limits import ReadSizeLimit
from ..transport.connection_pool import ConnectionPlace, ConnectionPool
from ..transport.turn_budget import TURN_BYTES, TurnBudget
from .application import HttpApplication, RouteGroup
from .routes import metrics_route, probe_routes
from .sniffer import ProtocolSniffer

ADMIN_CONNECTIONS = 64
"""Open connections of the admin port: probes, Prometheus and a person, several times over."""
_BODY_BYTES = 1024
"""Maximum size of a request's body, which nothing reads."""
HEAD_TIMEOUT_S = 5.0
"""Seconds in which the head of the first request of a connection must arrive."""


class AdminListener:
    """Serves /healthz, /readyz and /metrics over plain HTTP and without keys, from `open` until `close`.

    `engine` and `draining` decide the readiness; `exposition` returns the text of the metrics.
    """

    def __init__(
        self,
        engine: EngineStatus,
        draining: Callable[[], bool],
        exposition: Callable[[], Awaitable[bytes]],
        access: AccessControl,
    ) -> None:
        groups = [
            RouteGroup(PUBLIC, probe_routes(engine, draining), any_host=True),
            RouteGroup(PUBLIC, [metrics_route(exposition, access.check_host)]),
        ]
        self._http = HttpApplication(groups, access, _BODY_BYTES)
        self._pool = ConnectionPool(ADMIN_CONNECTIONS, HEAD_TIMEOUT_S)
        self._budget = TurnBudget(TURN_BYTES)
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int | None:
        """The TCP port in use; None while closed."""
        return self._server.sockets[0].getsockname()[1] if self._server is not None else None

    async def open(self, host: str, port: int) -> None:
        """Listens. Raises SettingsError when the address cannot be used."""
        await self._http.open()
        with listening("admin_port", host, port):
            self._server = await asyncio.get_running_loop().create_server(self._connection, host, port)

    async def close(self) -> None:
        """Closes the port and its connections. Safe without `open`."""
        if self._server is not None:
            self._server.close()
            self._server = None
        await self._http.close()

    def _connection(self) -> asyncio.Protocol:
        # There are no WebSocket routes here: a request for an upgrade is answered as any other.
        return ProtocolSniffer(self._pool, self._http_connection, self._http_connection, self._budget)

    def _http_connection(self, place: ConnectionPlace) -> asyncio.Protocol:
        return self._http.connection(place, _no_websocket)


def _no_websocket(_: ConnectionPlace) -> asyncio.Protocol | ReadSizeLimit:
    raise AssertionError("no route of the admin port upgrades")
