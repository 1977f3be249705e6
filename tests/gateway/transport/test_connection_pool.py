"""Connections from accept to their end: the one that makes room, shares of callers, and the reserve of probes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from fakes.virtual_time import run, settle
from voxgate.gateway.transport.connection_pool import PROBE_RESERVE, ConnectionPlace, ConnectionPool


class Transport(asyncio.Transport):
    def __init__(self, address: str) -> None:
        super().__init__()
        self.address = address
        self.aborted = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self.address, 50_000) if name == "peername" else default

    def abort(self) -> None:
        self.aborted = True


class Clients:
    """Connections of clients to a pool."""

    def __init__(self, limit: int, *, share: float = 1.0, proxies: tuple[str, ...] = ()) -> None:
        self.pool = ConnectionPool(limit, 5.0, share, proxies.__contains__)

    def connect(self, address: str, count: int = 1) -> list[ConnectionPlace]:
        return [self.pool.add(Transport(address)) for _ in range(count)]

    def request(self, address: str, *, probe: bool = False) -> ConnectionPlace | None:
        """Returns the place of a request that is served; None when it is refused."""
        (place,) = self.connect(address)
        if not place.may_serve(probe=probe):
            place.release()
            return None
        place.serve(probe=probe)
        return place

    def requests(self, address: str, count: int) -> int:
        """Returns how many of `count` requests are served."""
        return sum(self.request(address) is not None for _ in range(count))


def closed(places: list[ConnectionPlace]) -> list[bool]:
    return [place.transport.aborted for place in places if isinstance(place.transport, Transport)]


def in_loop(scene: Callable[[], None]) -> None:
    async def main() -> None:
        scene()
        await settle()

    run(main())


def test_idle_connections_of_a_flood_make_room_for_those_of_others() -> None:
    def scene() -> None:
        clients = Clients(10)
        others = clients.connect("192.0.2.1", 3)
        flood = clients.connect("203.0.113.9", 10_000)
        assert clients.pool.open == 10 + PROBE_RESERVE
        assert not any(closed(others))
        assert closed(flood).index(False) == 10_000 - (10 + PROBE_RESERVE - 3)

    in_loop(scene)


def test_connection_kept_alive_makes_room_and_one_that_serves_does_not() -> None:
    def scene() -> None:
        clients = Clients(10)
        (kept_alive, serving) = clients.connect("192.0.2.1", 2)
        for place in (kept_alive, serving):
            place.serve()
        kept_alive.rest()
        clients.connect("192.0.2.1", 10 + PROBE_RESERVE)
        assert closed([kept_alive, serving]) == [True, False]
        assert clients.pool.serving == 1

    in_loop(scene)


def test_addresses_of_one_ipv6_network_are_one_caller() -> None:
    def scene() -> None:
        clients = Clients(10)
        others = clients.connect("192.0.2.1", 2)
        flood = [clients.connect(f"2001:db8::{number:x}")[0] for number in range(1000)]
        assert not any(closed(others))
        assert sum(closed(flood)) == 1000 - (10 + PROBE_RESERVE - 2)

    in_loop(scene)


def test_idle_connections_are_closed_on_request() -> None:
    def scene() -> None:
        clients = Clients(10)
        serving = clients.request("192.0.2.1")
        idle = clients.connect("192.0.2.1", 3) + clients.connect("192.0.2.2", 3)
        clients.pool.close_idle()
        assert serving is not None
        assert closed([serving, *idle]) == [False] + [True] * 6
        assert clients.pool.open == 1

    in_loop(scene)


def test_full_pool_serves_probes_only() -> None:
    def scene() -> None:
        clients = Clients(5)
        assert clients.requests("192.0.2.1", 8) == 5
        probes = [clients.request("192.0.2.2", probe=True) for _ in range(PROBE_RESERVE + 1)]
        assert [probe is not None for probe in probes] == [True] * PROBE_RESERVE + [False]
        assert probes[0] is not None
        probes[0].release()
        assert clients.requests("192.0.2.1", 1) == 0
        assert clients.request("192.0.2.2", probe=True) is not None

    in_loop(scene)


def test_caller_that_is_alone_gets_every_connection_and_otherwise_its_share() -> None:
    def scene() -> None:
        assert Clients(10, share=0.5).requests("192.0.2.1", 12) == 10
        clients = Clients(10, share=0.5)
        assert clients.requests("192.0.2.2", 1) == 1
        assert clients.requests("192.0.2.1", 12) == 5
        assert clients.requests("192.0.2.3", 12) == 4

    in_loop(scene)


def test_refused_caller_counts_as_present_for_a_while() -> None:
    def scene() -> None:
        clients = Clients(4, share=0.5)
        held = [clients.request("192.0.2.1") for _ in range(4)]
        assert clients.requests("192.0.2.2", 1) == 0
        for place in held[:2]:
            assert place is not None
            place.release()
        assert clients.requests("192.0.2.1", 1) == 0
        assert clients.requests("192.0.2.2", 1) == 1

    in_loop(scene)


def test_probe_is_no_other_caller() -> None:
    def scene() -> None:
        clients = Clients(4, share=0.5)
        assert clients.request("192.0.2.2", probe=True) is not None
        assert clients.requests("192.0.2.1", 4) == 4

    in_loop(scene)


def test_share_does_not_apply_to_a_proxy() -> None:
    def scene() -> None:
        clients = Clients(10, share=0.5, proxies=("10.0.0.1",))
        assert clients.requests("192.0.2.1", 1) == 1
        assert clients.requests("10.0.0.1", 12) == 9

    in_loop(scene)


@pytest.mark.parametrize("served", [False, True])
def test_connection_without_a_request_is_cut_after_the_deadline(served: bool) -> None:
    async def scene() -> None:
        (place,) = Clients(1).connect("192.0.2.1")
        if served:
            place.serve()
        await asyncio.sleep(4.9)
        assert closed([place]) == [False]
        await asyncio.sleep(0.2)
        assert closed([place]) == [not served]

    run(scene())


def test_place_is_released_once() -> None:
    def scene() -> None:
        clients = Clients(2)
        place = clients.request("192.0.2.1")
        assert place is not None
        for _ in range(2):
            place.release()
        place.rest()
        place.serve()
        assert (clients.pool.open, clients.pool.serving) == (0, 0)

    in_loop(scene)
