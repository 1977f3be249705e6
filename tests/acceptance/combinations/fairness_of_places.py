"""Judges sockets and connections by the rules of docs/limits.md ("Share of a caller"), as `fairness` judges slots.

The rules are stated on what is open, serves, speaks and was refused when. How the gateway keeps them is not looked at.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable

from voxgate.gateway.access.caller import Grant
from voxgate.gateway.transport.connection_pool import ConnectionPlace, ConnectionPool
from voxgate.gateway.transport.sessions import ConnectionSlot, Sessions
from voxgate.pipeline.errors import AtCapacity

from .fairness import Witness


class SocketWitness(Witness):
    """Watches every socket of `sessions`.

    9. No more sockets are open than there are places; while others are present, a caller gets none above its share.
    10. A socket is refused only if its caller has its share, or all are in use and no other caller that would keep as
       many has one without speech. An open utterance that neither has nor wants a slot is no speech.
    11. A socket is closed to make room only when all are in use: the newest one without speech of the caller that has
        most, for one that then has no more.
    """

    def __init__(self, sessions: Sessions, share: float, places: int) -> None:
        super().__init__(share)
        self._places = places
        self._open: dict[ConnectionSlot, None] = {}
        self._reserve_slot = sessions.reserve_slot
        sessions.reserve_slot = self.reserve_slot  # type: ignore[method-assign]  # to see every call

    def reserve_slot(self, grant: Grant) -> ConnectionSlot:
        name, now_s = grant.caller.name, asyncio.get_running_loop().time()
        before, held = list(self._open), Counter(_caller(slot) for slot in self._open)
        spare = [slot for slot in before if held[_caller(slot)] > held[name] + 1 and not _speaks(slot)]
        most = max((held[_caller(slot)] for slot in spare), default=0)
        full, above = len(before) >= self._places, held[name] >= self._limit(name, self._places, held, now_s)
        state = f"{name} at {now_s - 1000:.3f} s: {dict(held)} of {self._places} open, {len(spare)} could be closed"
        try:
            slot = self._reserve_slot(grant)
        except AtCapacity:
            self._refused_s[name] = now_s
            if not above and (not full or spare):
                self.faults.append(f"a socket was refused though one was due to its caller ({state})")
            raise
        finally:
            closed = [each for each in before if each not in self._open]
            right = [each for each in spare if held[_caller(each)] == most][-1:]
            if closed and (not full or closed != right):
                self.faults.append(f"a socket was closed without need ({_caller(closed[0])} for {state})")
        if above:
            self.faults.append(f"a caller got a socket above its share ({state})")
        self._open[slot] = None
        if len(self._open) > self._places:
            self.faults.append(f"more sockets are open than there are places ({state})")
        release = slot._on_release
        assert release is not None

        def on_release() -> None:
            del self._open[slot]
            release()

        slot._on_release = on_release
        return slot


def _caller(slot: ConnectionSlot) -> str:
    return slot.grant.caller.name


def _speaks(slot: ConnectionSlot) -> bool:
    """Whether the socket speaks, is about to, or waits for a slot; one in its handshake cannot be closed either."""
    session = slot.session
    return session is None or session._about_to_act or any(each.ticket is not None for each in session.active)


class ConnectionWitness(Witness):
    """Watches every connection of `pool`. An address counts, also where there are keys.

    12. No more connections serve than there are places; while others are served or were refused, an address gets none
        above its share. With those that serve probes there are at most `reserve` more.
    13. A request is refused only for these reasons.
    14. A connection is closed to make room only while the reserve is used up: the one that has been idle longest, of
        the address with most idle ones.
    """

    def __init__(self, pool: ConnectionPool, share: float, places: int, reserve: int) -> None:
        super().__init__(share)
        self._places, self._reserve = places, reserve
        self._idle: dict[ConnectionPlace, None] = {}
        """Those that serve nothing, the longest idle one first."""
        self._serving: dict[ConnectionPlace, bool] = {}
        """Those that serve, and whether it is a probe."""
        self._add, self._may_serve, self._serve, self._rest, self._remove = (
            pool.add,
            pool.may_serve,
            pool.serve,
            pool.rest,
            pool.remove,
        )
        pool.add = self.add  # type: ignore[method-assign]  # to see every call
        pool.may_serve = self.may_serve  # type: ignore[method-assign]
        pool.serve = self.serve  # type: ignore[method-assign]
        pool.rest = self.rest  # type: ignore[method-assign]
        pool.remove = self.remove  # type: ignore[method-assign]

    def add(self, transport: asyncio.Transport) -> ConnectionPlace:
        idle, serving, count = list(self._idle), list(self._serving), _by_address(self._idle)
        full = len(self._idle) + len(self._serving) >= self._places + self._reserve
        place = self._add(transport)
        if any(each not in self._serving for each in serving):
            self._fault("a connection that serves was closed to make room", place.caller)
        closed = [each for each in idle if each not in self._idle]
        right = [next(each for each in idle if each.caller == name) for name in count if count[name] == _most(count)]
        if full != bool(closed) and (closed or idle):
            self._fault(f"{len(closed)} connections were closed though there was {'no ' * full}room", place.caller)
        elif closed and (len(closed) > 1 or closed[0] not in right):
            self._fault("the wrong connection was closed to make room", closed[0].caller)
        self._idle[place] = None
        return place

    def may_serve(self, place: ConnectionPlace, *, probe: bool) -> bool:
        allowed = self._may_serve(place, probe=probe)
        if place not in self._serving and not place.released and allowed != self._is_due(place, probe=probe):
            answer = "served above the limits" if allowed else "refused though it was due"
            self._fault(f"a {'probe' if probe else 'request'} was {answer}", place.caller)
        if not allowed and not probe:
            self._refused_s[place.caller] = asyncio.get_running_loop().time()
        return allowed

    def serve(self, place: ConnectionPlace, *, probe: bool) -> None:
        if place in self._idle:
            if not self._is_due(place, probe=probe):
                self._fault("a connection serves above the limits", place.caller)
            del self._idle[place]
            self._serving[place] = probe
        self._serve(place, probe=probe)

    def rest(self, place: ConnectionPlace) -> None:
        if place in self._serving:
            del self._serving[place]
            self._idle[place] = None
        self._rest(place)

    def remove(self, place: ConnectionPlace) -> None:
        self._idle.pop(place, None)
        self._serving.pop(place, None)
        self._remove(place)

    def _is_due(self, place: ConnectionPlace, *, probe: bool) -> bool:
        if probe:
            return len(self._serving) < self._places + self._reserve
        held = _by_address(each for each, serves_probe in self._serving.items() if not serves_probe)
        now_s = asyncio.get_running_loop().time()
        limit = self._limit(place.caller, self._places, held, now_s)
        return held.total() < self._places and held[place.caller] < limit

    def _fault(self, what: str, name: str) -> None:
        serving = dict(_by_address(self._serving))
        now_s = asyncio.get_running_loop().time() - 1000
        state = f"{name} at {now_s:.3f} s: {dict(_by_address(self._idle))} idle, {serving} serve, {self._places} places"
        self.faults.append(f"{what} ({state})")


def _by_address(places: Iterable[ConnectionPlace]) -> Counter[str]:
    return Counter(place.caller for place in places)


def _most(count: Counter[str]) -> int:
    return max(count.values(), default=0)
