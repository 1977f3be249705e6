"""Connections from accept to their end: how many there may be, which one makes room, and what is kept for probes.

A connection *serves* while it is a WebSocket or answers a request. Otherwise it is *idle*: it has not sent the head of
a request yet, or is kept alive after one. Idle connections are closed when a new one needs room, so that they keep no
client out. Connections that serve are limited, in all and by share of a caller; a request above the limit is refused.
A reserve serves probes only, so that a busy gateway does not look like a broken one.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from ..access.caller import caller_name
from ..access.caller_share import CallerShare

PROBE_RESERVE = 64
"""Connections above the limit: of probes, and of clients that have not sent a request."""


class ConnectionPool:
    """The connections of one listener: at most `limit` serve, and `PROBE_RESERVE` more are open.

    While several callers are served, each gets at most `caller_share` of the limit; without a `caller_share`, and for a
    peer that `is_proxy`, there is no limit per caller. Synchronous but for the timers of `deadline_s`, the seconds in
    which the head of the first request must arrive.
    """

    def __init__(
        self,
        limit: int,
        deadline_s: float,
        caller_share: float = 1.0,
        is_proxy: Callable[[str], bool] = lambda _: False,
        on_refusal: Callable[[], None] = lambda: None,
    ) -> None:
        """Calls `on_refusal` for each request that may not be served."""
        self._limit = limit
        self.deadline_s = deadline_s
        self._share = CallerShare(caller_share)
        self._is_proxy = is_proxy
        self._on_refusal = on_refusal
        self._serving = self._probes = 0
        self._idle: dict[str, dict[ConnectionPlace, None]] = {}
        """Idle connections by caller, of each caller the longest idle first."""
        self._open = 0

    @property
    def open(self) -> int:
        """Open connections."""
        return self._open

    @property
    def serving(self) -> int:
        """Connections that are WebSockets or answer a request; probes do not count."""
        return self._serving

    def add(self, transport: asyncio.Transport) -> ConnectionPlace:
        """Counts a new connection; its owner releases the place when the connection is lost."""
        if self._open >= self._limit + PROBE_RESERVE:
            self._evict_one()
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if peer else "?"
        place = ConnectionPlace(self, transport, caller_name(None, address), limited=not self._is_proxy(address))
        place.start_deadline(self.deadline_s)
        self._open += 1
        self._set_idle(place)
        return place

    def may_serve(self, place: ConnectionPlace, *, probe: bool) -> bool:
        """Whether the connection may serve a request, which may be a `probe`; otherwise it is refused."""
        if place.serving or place.released:
            return True
        free = self._serving + self._probes < self._limit + PROBE_RESERVE if probe else self._has_room(place)
        if not free:
            self._on_refusal()
        return free

    def _has_room(self, place: ConnectionPlace) -> bool:
        now_s = asyncio.get_running_loop().time()
        limit = self._share.limit(place.caller, self._limit, now_s) if place.limited else math.inf
        free = self._serving < self._limit and self._share.held(place.caller) < limit
        if not free:
            self._share.refuse(place.caller, now_s)
        return free

    def serve(self, place: ConnectionPlace, *, probe: bool) -> None:
        """The connection serves from now on."""
        if place.serving or place.released:
            return
        self._remove_idle(place)
        place.serving, place.probe = True, probe
        if probe:
            self._probes += 1
        else:
            self._serving += 1
            self._share.acquire(place.caller)

    def rest(self, place: ConnectionPlace) -> None:
        """The connection is idle from now on."""
        if place.serving:
            self._end_serving(place)
            self._set_idle(place)

    def remove(self, place: ConnectionPlace) -> None:
        """The connection is lost."""
        if place.serving:
            self._end_serving(place)
        else:
            self._remove_idle(place)
        self._open -= 1

    def close_idle(self) -> None:
        """Closes every idle connection."""
        for place in [place for idle in self._idle.values() for place in idle]:
            _close(place)

    def _evict_one(self) -> None:
        """Closes the longest idle connection of the caller that has most of them, if there is one."""
        if self._idle:
            busiest: dict[ConnectionPlace, None] = max(self._idle.values(), key=len)
            _close(next(iter(busiest)))

    def _end_serving(self, place: ConnectionPlace) -> None:
        place.serving = False
        if place.probe:
            self._probes -= 1
        else:
            self._serving -= 1
            self._share.release(place.caller)

    def _set_idle(self, place: ConnectionPlace) -> None:
        self._idle.setdefault(place.caller, {})[place] = None

    def _remove_idle(self, place: ConnectionPlace) -> None:
        idle = self._idle[place.caller]
        del idle[place]
        if not idle:
            del self._idle[place.caller]


def _close(place: ConnectionPlace) -> None:
    place.release()
    place.transport.abort()


class ConnectionPlace:
    """The place of one connection in the pool."""

    def __init__(self, pool: ConnectionPool, transport: asyncio.Transport, caller: str, *, limited: bool) -> None:
        self.transport = transport
        self.caller = caller
        self.limited = limited
        """Whether the share of a caller applies; not to a proxy, which has many clients."""
        self.serving = False
        self.probe = False
        """Whether it serves a probe, which counts for no caller."""
        self.released = False
        self._pool = pool
        self._deadline: asyncio.TimerHandle | None = None
        """Aborts the connection if no request arrives."""

    def secure(self, transport: asyncio.Transport) -> None:
        """The TLS handshake is over: `transport` carries the requests; the deadline of the first one starts again."""
        self.transport = transport
        self.start_deadline(self._pool.deadline_s)

    def may_serve(self, *, probe: bool) -> bool:
        """Whether a request, which may be a `probe`, may be served now."""
        return self._pool.may_serve(self, probe=probe)

    def serve(self, *, probe: bool = False) -> None:
        """A request is served from now on, until `rest` or the end of the connection. Safe to call twice."""
        self._cancel_deadline()
        self._pool.serve(self, probe=probe)

    def rest(self) -> None:
        """The request is answered: the connection may be closed for another one."""
        self._pool.rest(self)

    def release(self) -> None:
        """The connection is lost. Safe to call twice."""
        if not self.released:
            self._cancel_deadline()
            self.released = True
            self._pool.remove(self)

    def start_deadline(self, delay_s: float) -> None:
        """Aborts the connection in `delay_s` seconds unless it serves a request by then."""
        self._cancel_deadline()
        self._deadline = asyncio.get_running_loop().call_later(delay_s, self.transport.abort)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
