"""Event loops with real sockets in which waiting takes no time: in virtual time, and in processor time.

`PairedLoop` has virtual time: deadlines of minutes take no real time, and runs are repeatable. The clock advances as
soon as no descriptor and no callback is ready. That is exact over connected pairs of sockets, where what one end sends
can be read at the other at once; `connect_pair` accepts one end as a listening socket would. Over TCP the kernel may
hold data back for milliseconds of real time (acknowledgements, window probes): such runs find what only TCP shows, and
repeat themselves nearly always.

`ProcessorTimeLoop` adds the processor time that the process spends: delays are those of an idle machine, whatever other
programs take of this one.
"""

from __future__ import annotations

import asyncio
import itertools
import selectors
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeVar

from fakes.virtual_time import Deadlock

T = TypeVar("T")

TURN_S = 1e-5
"""Time that every turn of the loop takes, so that a flood without pauses takes time too."""
THREAD_S = 0.005
"""Time that work in a thread takes."""
BEGIN_S = 1000.0
"""Time at which a loop begins. The clock of a machine is never 0."""


class _Selector(selectors.EpollSelector):
    """Polls real descriptors, and advances the clock where a real selector would sleep."""

    def __init__(self, turn_s: float) -> None:
        super().__init__()
        self.now_s = BEGIN_S
        self._turn_s = turn_s

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now_s += self._turn_s
        if (ready := super().select(0)) or timeout == 0:
            return ready
        if ready := super().select(0):  # the kernel may have been interrupted while it delivered
            return ready
        if timeout is None:
            raise Deadlock("nothing to run and no timer set")
        self.now_s += max(0.0, timeout)
        return []


class _Listening(NamedTuple):
    server: asyncio.Server
    protocol: Callable[[], asyncio.BaseProtocol]
    options: dict[str, Any]
    """For TLS."""


class PairedLoop(asyncio.SelectorEventLoop):
    """`time()` moves only when no descriptor and no callback is ready."""

    def __init__(self, turn_s: float = TURN_S) -> None:
        """`turn_s`: how much each turn of the loop advances the clock."""
        self._polled = _Selector(turn_s)
        self._listening: dict[int, _Listening] = {}
        self._client_ports = itertools.count(40_000)
        super().__init__(self._polled)

    def time(self) -> float:
        return self._polled.now_s

    async def create_server(  # type: ignore[override]  # the options of asyncio's own method, passed on
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], *args: Any, **options: Any
    ) -> asyncio.Server:
        server = await super().create_server(protocol_factory, *args, **options)
        tls = {"sslcontext": options["ssl"]} if options.get("ssl") else {}
        self._listening[server.sockets[0].getsockname()[1]] = _Listening(server, protocol_factory, tls)
        return server

    def connect_pair(self, port: int, address: str) -> socket.socket:
        """One end of a pair of sockets; the server of `port` accepts the other as a connection from `address`.

        Raises ConnectionRefusedError when it does not listen any more.
        """
        server, protocol, options = self._listening[port]
        if not server.sockets:
            raise ConnectionRefusedError(f"port {port} is closed")
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        peer = {"peername": (address, next(self._client_ports))}
        accept: Coroutine[Any, Any, None] = self._accept_connection2(  # type: ignore[attr-defined]  # what follows accept(2)
            protocol, theirs, peer, server=server, **options
        )
        self.create_task(accept)
        return ours

    def run_in_executor(  # type: ignore[override]  # a thread would end at a real time
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Calls `func` in the loop, `THREAD_S` from now."""
        del executor
        result = self.create_future()

        def call() -> None:
            if not result.done():
                try:
                    result.set_result(func(*args))
                except Exception as error:
                    result.set_exception(error)

        self.call_later(THREAD_S, call)
        return result

    @property
    def timers(self) -> list[asyncio.TimerHandle]:
        """Timers that are set."""
        return [handle for handle in self._scheduled if not handle.cancelled()]  # type: ignore[attr-defined]  # no public list


class ProcessorTimeLoop(PairedLoop):
    """`time()` moves with the processor time of this thread, and where nothing is ready."""

    def __init__(self) -> None:
        self._began_s = time.thread_time()
        super().__init__(turn_s=0.0)

    def time(self) -> float:
        return self._polled.now_s + time.thread_time() - self._began_s


def run(main: Coroutine[Any, Any, T], loop: Callable[[], PairedLoop] = PairedLoop) -> T:
    """Run `main` in a new loop and return its result. Raises Deadlock when it cannot go on."""
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(main)
