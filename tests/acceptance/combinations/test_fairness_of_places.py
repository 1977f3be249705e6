"""The rules of connections hold for whatever connections do, and each rule that is broken on purpose is found."""

from __future__ import annotations

import asyncio
import math
import random
from typing import Any
from unittest.mock import patch

import pytest
from fakes.virtual_time import run
from voxgate.gateway.access.caller_share import CallerShare
from voxgate.gateway.transport import connection_pool
from voxgate.gateway.transport.connection_pool import ConnectionPlace, ConnectionPool

from .fairness_of_places import ConnectionWitness

LIMIT, RESERVE, SHARE = 4, 3, 0.5
ADDRESSES = ("192.0.2.1", "192.0.2.2", "192.0.2.3")
STEPS = 120
SEEDS = range(200)
DEADLINE_S = 1e6
"""Of the first request; not the subject here."""


class Client(asyncio.Transport):
    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self._address, 50_000) if name == "peername" else default

    def abort(self) -> None:
        """The gateway releases the place before."""


async def _play(kind: type[ConnectionPool], seed: int) -> list[str]:
    """Faults of connections that come, ask, rest and leave at random."""
    chance = random.Random(seed)
    # Each walk prefers something: what needs much of a kind is rare where everything is as frequent.
    comes, probes = chance.choice([0.2, 0.4]), chance.choice([0.1, 0.3, 0.8])
    asks, rests = chance.choice([0.5, 0.9]), chance.choice([0.3, 0.7])
    weights, longest_pause_s = chance.choice([(1, 1, 1), (3, 1, 0)]), chance.choice([1, 70])
    pool = kind(LIMIT, DEADLINE_S, SHARE)
    witness = ConnectionWitness(pool, SHARE, LIMIT, RESERVE)
    places: list[ConnectionPlace] = []
    for _ in range(STEPS):
        places = [place for place in places if not place.released]
        await asyncio.sleep(chance.choice([0, 0, 1, longest_pause_s]))
        place = chance.choice(places) if places else None
        if place is None or chance.random() < comes:
            places.append(pool.add(Client(*chance.choices(ADDRESSES, weights))))
        elif chance.random() < asks:
            probe = chance.random() < probes
            if place.may_serve(probe=probe):
                place.serve(probe=probe)
        elif chance.random() < rests:
            place.rest()
        else:
            place.release()
    for place in places:
        place.release()
    return witness.faults


def _faults(kind: type[ConnectionPool]) -> tuple[int, list[str]]:
    """The first seed with faults, and these."""
    with patch.object(connection_pool, "PROBE_RESERVE", RESERVE):
        for seed in SEEDS:
            if faults := run(_play(kind, seed)):
                return seed, faults
    return len(SEEDS), []


class ClosesNewest(ConnectionPool):
    def _evict_one(self) -> None:
        if self._idle:
            connection_pool._close(next(reversed(max(self._idle.values(), key=len))))


class ClosesThatOfAnyAddress(ConnectionPool):
    def _evict_one(self) -> None:
        if self._idle:
            connection_pool._close(next(iter(next(iter(self._idle.values())))))


class ClosesNone(ConnectionPool):
    def _evict_one(self) -> None:
        pass


class ClosesTwo(ConnectionPool):
    def _evict_one(self) -> None:
        super()._evict_one()
        super()._evict_one()


class ClosesOneThatServes(ConnectionPool):
    def __init__(self, limit: int, deadline_s: float, caller_share: float) -> None:
        super().__init__(limit, deadline_s, caller_share)
        self._served: list[ConnectionPlace] = []

    def serve(self, place: ConnectionPlace, *, probe: bool) -> None:
        super().serve(place, probe=probe)
        self._served.append(place)

    def _evict_one(self) -> None:
        serving = [place for place in self._served if place.serving and not place.released]
        if serving and not self._idle:
            connection_pool._close(serving[0])
        super()._evict_one()


class ClosesBeforeTheReserveIsUsed(ConnectionPool):
    def add(self, transport: asyncio.Transport) -> ConnectionPlace:
        if self._open == self._limit:
            self._evict_one()
        return super().add(transport)


class ForgetsHowLongIdle(ConnectionPool):
    def _set_idle(self, place: ConnectionPlace) -> None:
        self._idle[place.caller] = {place: None, **self._idle.get(place.caller, {})}


class HasNoReserve(ConnectionPool):
    def may_serve(self, place: ConnectionPlace, *, probe: bool) -> bool:
        if probe and self._serving + self._probes >= self._limit and not place.serving:
            return False
        return super().may_serve(place, probe=probe)


class ServesProbesWithoutLimit(ConnectionPool):
    def may_serve(self, place: ConnectionPlace, *, probe: bool) -> bool:
        return super().may_serve(place, probe=probe) or probe


class OpensReserveToAll(ConnectionPool):
    def _has_room(self, place: ConnectionPlace) -> bool:
        free = self._limit <= self._serving < self._limit + connection_pool.PROBE_RESERVE
        return super()._has_room(place) or free


class CountsProbes(ConnectionPool):
    def serve(self, place: ConnectionPlace, *, probe: bool) -> None:  # noqa: ARG002 - the signature
        super().serve(place, probe=False)


class IgnoresShares(ConnectionPool):
    def _has_room(self, place: ConnectionPlace) -> bool:
        place.limited = False
        return super()._has_room(place)


class LimitsOneThatIsAlone(ConnectionPool):
    def _has_room(self, place: ConnectionPlace) -> bool:
        return super()._has_room(place) and self._share.held(place.caller) < SHARE * self._limit


class _Forgetful(CallerShare):
    def refuse(self, caller: str, now_s: float) -> None:
        """Notes nothing."""


class _Resentful(CallerShare):
    def _others_present(self, caller: str, now_s: float) -> bool:  # noqa: ARG002 - the signature
        return super()._others_present(caller, -math.inf)


class ForgetsRefusals(ConnectionPool):
    def __init__(self, limit: int, deadline_s: float, caller_share: float) -> None:
        super().__init__(limit, deadline_s, caller_share)
        self._share = _Forgetful(caller_share)


class NeverForgetsRefusals(ConnectionPool):
    def __init__(self, limit: int, deadline_s: float, caller_share: float) -> None:
        super().__init__(limit, deadline_s, caller_share)
        self._share = _Resentful(caller_share)


def test_rules_hold() -> None:
    assert _faults(ConnectionPool) == (len(SEEDS), [])


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        (ClosesNewest, "the wrong connection was closed"),
        (ClosesThatOfAnyAddress, "the wrong connection was closed"),
        (ClosesNone, "0 connections were closed though there was no room"),
        (ClosesTwo, "the wrong connection was closed"),
        (ClosesOneThatServes, "a connection that serves was closed"),
        (ClosesBeforeTheReserveIsUsed, "1 connections were closed though there was room"),
        (ForgetsHowLongIdle, "the wrong connection was closed"),
        (HasNoReserve, "a probe was refused"),
        (ServesProbesWithoutLimit, "a probe was served above the limits"),
        (OpensReserveToAll, "a request was served above the limits"),
        (CountsProbes, "a request was refused though it was due"),
        (IgnoresShares, "a request was served above the limits"),
        (LimitsOneThatIsAlone, "a request was refused though it was due"),
        (ForgetsRefusals, "a request was served above the limits"),
        (NeverForgetsRefusals, "a request was refused though it was due"),
    ],
)
def test_broken_rule_is_found(kind: type[ConnectionPool], fault: str) -> None:
    seed, faults = _faults(kind)
    assert seed < len(SEEDS)
    assert faults[0].startswith(fault)
