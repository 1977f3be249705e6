"""Slots of sockets: reserved before the handshake is answered, released once, counted over all processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from fakes.gateway.in_process import InProcessGateway, say
from fakes.gateway.websocket import FakeSocket
from fakes.virtual_time import run
from voxgate.gateway.access.caller import Caller, Grant
from voxgate.gateway.access.keys import KeyLimits
from voxgate.gateway.access.rights import DEFAULT_RIGHTS
from voxgate.gateway.access.usage import BURST_S, SharedUsage
from voxgate.gateway.errors import Draining, KeyLimit
from voxgate.gateway.observability.events import Observer
from voxgate.gateway.protocols.native import NativeProtocol
from voxgate.gateway.transport.sessions import CALLER_RATE_FACTOR, ConnectionSlot, Sessions
from voxgate.pipeline.errors import AtCapacity


def grant_of(name: str, **limits: int) -> Grant:
    return Grant(Caller(name, KeyLimits(**limits)), DEFAULT_RIGHTS)


def in_loop(scene: Callable[[Sessions, Grant], None], shared_usage: SharedUsage | None = None, **options: int) -> None:
    """Runs `scene` with empty sessions and a caller that may have three sockets."""

    async def main() -> None:
        async with InProcessGateway(**options) as gateway:
            sessions = Sessions(gateway.factory, gateway.admission, gateway.speech_closer, Observer(), shared_usage)
            scene(sessions, grant_of("ada", sockets=3))

    run(main())


def test_slot_is_released_once() -> None:
    released = []
    slot = ConnectionSlot(grant_of("ada"), 0.0, lambda: released.append(True))
    slot.release()
    slot.release()
    assert released == [True]


def test_socket_above_the_limit_is_refused_with_retry_time() -> None:
    def scene(sessions: Sessions, grant: Grant) -> None:
        slot = sessions.reserve_slot(grant)
        for refuse in (sessions.check_capacity, lambda: sessions.reserve_slot(grant)):
            with pytest.raises(AtCapacity, match="all 1 sockets are in use") as refused:
                refuse()
            assert refused.value.retry_after_ms
        assert (sessions.total_open, grant.caller.sockets) == (1, 1)
        slot.release()
        assert (sessions.total_open, grant.caller.sockets) == (0, 0)
        sessions.check_capacity()

    in_loop(scene, sockets=1)


def test_socket_above_the_limit_of_its_key_is_refused() -> None:
    def scene(sessions: Sessions, grant: Grant) -> None:
        slots = [sessions.reserve_slot(grant) for _ in range(3)]
        with pytest.raises(KeyLimit):
            sessions.reserve_slot(grant)
        assert sessions.total_open == 3
        slots[0].release()
        sessions.reserve_slot(grant)

    in_loop(scene)


def test_draining_refuses_sockets_and_reserves_nothing() -> None:
    def scene(sessions: Sessions, grant: Grant) -> None:
        sessions.stop_accepting()
        assert sessions.draining
        with pytest.raises(Draining):
            sessions.check_capacity()
        with pytest.raises(Draining):
            sessions.reserve_slot(grant)
        assert (sessions.total_open, grant.caller.sockets) == (0, 0)

    in_loop(scene)


def test_limit_counts_sockets_of_all_processes() -> None:
    ours = SharedUsage.create()
    other = SharedUsage.attach(ours.path, 1)
    assert other.acquire_socket(2)

    def scene(sessions: Sessions, grant: Grant) -> None:
        slot = sessions.reserve_slot(grant)
        assert sessions.total_open == 2
        with pytest.raises(AtCapacity):
            sessions.reserve_slot(grant)
        slot.release()
        other.release_socket()
        assert sessions.total_open == 0

    in_loop(scene, ours, sockets=2)


def test_sockets_of_a_revoked_key_are_closed_also_during_their_handshake() -> None:
    async def main() -> None:
        async with InProcessGateway() as gateway:
            sessions = Sessions(gateway.factory, gateway.admission, gateway.speech_closer, Observer())
            grants = {name: grant_of(name) for name in ("ada", "bob")}
            sockets = {name: FakeSocket() for name in ("open", "handshake", "other")}

            def serve(name: str, slot: ConnectionSlot) -> asyncio.Task[None]:
                return asyncio.create_task(sessions.run(sockets[name], slot, NativeProtocol()))

            serve("open", sessions.reserve_slot(grants["ada"]))
            other = serve("other", sessions.reserve_slot(grants["bob"]))
            handshake = sessions.reserve_slot(grants["ada"])
            say(sockets["open"], "a", "Some text to speak.")
            await sockets["open"].until("started")
            assert sessions.close_revoked(lambda grant: grant.caller.name == "ada") == 2
            serve("handshake", handshake)
            assert [await sockets[name].hung_up() for name in ("open", "handshake")] == [1008, 1008]
            assert sockets["open"].of("error")[0]["code"] == "unauthorized"
            assert not sockets["other"].closed
            assert sessions.total_open == 1
            sockets["other"].disconnect()
            await other

    run(main())


def test_sockets_of_an_expired_grant_finish_their_speech_until_the_deadline() -> None:
    async def main() -> None:
        async with InProcessGateway() as gateway:
            sessions = Sessions(gateway.factory, gateway.admission, gateway.speech_closer, Observer())
            sockets = {name: FakeSocket() for name in ("idle", "short", "long", "valid")}
            grants = {name: grant_of(name) for name in sockets}
            running = []
            for name, socket in sockets.items():
                slot = sessions.reserve_slot(grants[name])
                running.append(asyncio.create_task(sessions.run(socket, slot, NativeProtocol())))
            say(sockets["short"], "a", "Some text.")
            say(sockets["long"], "a", "Some text to speak. " * 20)
            for name in ("short", "long"):
                await sockets[name].until("started")

            def check() -> None:
                sessions.end_expired(lambda grant: grant is not grants["valid"], 3.0)

            check()
            assert await sockets["idle"].hung_up() == 1008
            assert sockets["idle"].of("going_away")[0]["deadline_ms"] == 3000
            say(sockets["long"], "b", "More.")
            assert (await sockets["long"].until("error"))["code"] == "unauthorized"
            assert await sockets["short"].hung_up() == 1008
            assert len(sockets["short"].of("done")) == 1
            check()
            assert not sockets["long"].closed
            await asyncio.sleep(3.0)
            check()
            assert await sockets["long"].hung_up() == 1008
            assert sockets["long"].of("error")[-1]["code"] == "unauthorized"
            assert not sockets["valid"].closed
            sockets["valid"].disconnect()
            await asyncio.gather(*running)

    run(main())


def test_caller_gets_at_most_its_share_of_the_sockets_while_another_is_present() -> None:
    def scene(sessions: Sessions, _: Grant) -> None:
        ada, bob = grant_of("ada"), grant_of("bob")
        held = [sessions.reserve_slot(ada) for _ in range(4)]
        with pytest.raises(AtCapacity, match="all 4 sockets"):
            sessions.reserve_slot(bob)
        held.pop().release()
        with pytest.raises(AtCapacity, match="at most 2 open sockets"):
            sessions.reserve_slot(ada)  # a refused caller is expected to try again
        sessions.reserve_slot(bob)
        held.pop().release()
        with pytest.raises(AtCapacity):
            sessions.reserve_slot(ada)
        assert (ada.caller.sockets, bob.caller.sockets, sessions.total_open) == (2, 1, 3)

    in_loop(scene, sockets=4)


def test_full_gateway_closes_a_socket_without_speech_for_a_caller_with_fewer() -> None:
    """An utterance without text is no speech: otherwise it would keep the socket of a client that says nothing."""

    async def main() -> None:
        async with InProcessGateway(sockets=4) as gateway:
            sessions = Sessions(gateway.factory, gateway.admission, gateway.speech_closer, Observer())
            sockets: list[FakeSocket] = []
            running: list[asyncio.Task[None]] = []

            def open_socket(name: str) -> FakeSocket:
                slot = sessions.reserve_slot(grant_of(name))
                sockets.append(FakeSocket())
                running.append(asyncio.create_task(sessions.run(sockets[-1], slot, NativeProtocol())))
                return sockets[-1]

            idle, opened, *speaking = [open_socket("ada") for _ in range(4)]
            opened.put(type="start", utterance="a", format={"codec": "pcm"})
            opened.put(type="ping")
            for socket in speaking:
                socket.put(type="start", utterance="a", format={"codec": "pcm"})
                socket.put(type="text", utterance="a", text="Text without an end.")
                await socket.until("started")
            await opened.until("pong")
            with pytest.raises(AtCapacity):
                sessions.reserve_slot(grant_of("ada"))
            sessions.check_capacity()
            open_socket("bob")
            assert await opened.hung_up() == 1013
            assert (opened.of("error")[-1]["code"], opened.of("error")[-1]["reached"]) == (
                "at_capacity",
                "socket_share",
            )
            assert not idle.closed
            open_socket("carl")
            assert await idle.hung_up() == 1013
            for name in ("bob", "carl", "dora"):  # ada speaks on both of her sockets
                with pytest.raises(AtCapacity, match="all 4 sockets"):
                    sessions.reserve_slot(grant_of(name))
            assert sessions.total_open == 4
            assert not any(socket.closed for socket in speaking)
            for socket in sockets:
                socket.disconnect()
            await asyncio.gather(*running)
            assert sessions.total_open == 0

    run(main())


def test_share_of_a_caller_holds_over_all_processes() -> None:
    ours = SharedUsage.create()
    other = SharedUsage.attach(ours.path, 1)

    def scene(sessions: Sessions, _: Grant) -> None:
        ada = Grant(Caller("ada", KeyLimits(), shared_usage=ours), DEFAULT_RIGHTS)
        elsewhere = [Caller(name, KeyLimits(), shared_usage=other) for name in ("ada", "bob")]
        for caller in elsewhere:
            other.acquire_socket(4)
            caller.acquire_socket(0.0)
        sessions.reserve_slot(ada)
        with pytest.raises(AtCapacity, match="at most 2 open sockets"):
            sessions.reserve_slot(ada)
        elsewhere[1].release_socket(0.0)
        other.release_socket()
        sessions.reserve_slot(ada)

    in_loop(scene, ours, sockets=4)


def test_socket_is_closed_after_its_longest_life_and_finishes_its_speech() -> None:
    async def main() -> None:
        async with InProcessGateway(socket_lifetime_s=100.0) as gateway:
            sessions = Sessions(gateway.factory, gateway.admission, gateway.speech_closer, Observer())
            sockets = {name: FakeSocket() for name in ("idle", "speaking", "long", "young")}
            running: dict[str, asyncio.Task[None]] = {}

            def open_socket(name: str) -> None:
                slot = sessions.reserve_slot(grant_of(name))
                running[name] = asyncio.create_task(sessions.run(sockets[name], slot, NativeProtocol()))

            for name in ("idle", "speaking", "long"):
                open_socket(name)
            await asyncio.sleep(99)
            open_socket("young")
            say(sockets["speaking"], "a", "Some text to speak.")
            sockets["long"].put(type="start", utterance="a", format={"codec": "pcm"})
            sockets["long"].put(type="text", utterance="a", text="Text without an end.")
            await sockets["speaking"].until("started")
            sessions.end_expired(lambda _: False, 5.0)
            assert not any(socket.of("going_away") for socket in sockets.values())
            await asyncio.sleep(1)
            sessions.end_expired(lambda _: False, 5.0)
            assert await sockets["idle"].hung_up() == 1001
            assert sockets["idle"].of("going_away")[0]["deadline_ms"] == 5000
            assert await sockets["speaking"].hung_up() == 1001
            assert len(sockets["speaking"].of("done")) == 1
            await asyncio.sleep(5)
            sessions.end_expired(lambda _: False, 5.0)
            assert await sockets["long"].hung_up() == 1001
            error = sockets["long"].of("error")[-1]
            assert (error["code"], error["retryable"]) == ("draining", True)
            assert not sockets["young"].closed
            sockets["young"].disconnect()
            await asyncio.gather(*running.values())

    run(main())


def test_messages_of_all_sockets_of_a_caller_share_a_rate() -> None:
    async def main() -> None:
        async with InProcessGateway(messages_per_s=10) as gateway:
            sessions = Sessions(gateway.factory, gateway.admission, gateway.speech_closer, Observer())
            sockets = {name: [FakeSocket() for _ in range(count)] for name, count in (("ada", 20), ("bob", 1))}
            grants = {name: grant_of(name) for name in sockets}
            running = [
                asyncio.create_task(sessions.run(socket, sessions.reserve_slot(grants[name]), NativeProtocol()))
                for name, of_caller in sockets.items()
                for socket in of_caller
            ]
            for socket in (*sockets["ada"], *sockets["bob"]):
                for number in range(40):  # below the limit of a socket
                    socket.put(type="ping", id=str(number))
            await asyncio.sleep(0.1)
            rate_per_s = CALLER_RATE_FACTOR * 10
            assert sum(len(socket.of("pong")) for socket in sockets["ada"]) <= rate_per_s * (BURST_S + 0.2)
            assert len(sockets["bob"][0].of("pong")) == 40
            await asyncio.sleep((20 * 40 - rate_per_s * BURST_S) / rate_per_s + 0.1)
            assert all(len(socket.of("pong")) == 40 for socket in sockets["ada"])
            assert not any(socket.of("error") for socket in sockets["ada"])
            for socket in (*sockets["ada"], *sockets["bob"]):
                socket.disconnect()
            await asyncio.gather(*running)

    run(main())


def test_sessions_are_counted_by_protocol_and_their_leads_listed() -> None:
    async def main() -> None:
        async with InProcessGateway() as gateway:
            sessions = Sessions(gateway.factory, gateway.admission, gateway.speech_closer, Observer())
            socket = FakeSocket()
            slot = sessions.reserve_slot(grant_of("ada"))
            running = asyncio.create_task(sessions.run(socket, slot, NativeProtocol()))
            await socket.until("session")
            assert (sessions.count_by_protocol(), sessions.leads_s()) == ({"native": 1}, [])
            say(socket, "a", "Some text to speak, and some more.")
            await asyncio.sleep(0.2)
            assert sessions.leads_s() == [pytest.approx(0.4, abs=0.081)]
            socket.disconnect()
            await running
            assert (len(sessions), sessions.count_by_protocol(), sessions.total_open) == (0, {}, 0)

    run(main())
