"""The client's side of a lost connection; with the gateway's side in acceptance/simulation/test_lost_connections.py."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from fakes.virtual_time import run, settle
from voxgate.client.errors import ProtocolViolation, Refused, SessionLost, Unreachable
from voxgate.client.session_link import (
    ATTEMPT_S,
    CONFIRM_BYTES,
    CONFIRM_S,
    ELSEWHERE,
    KEPT_CHARACTERS,
    MAX_TRIES_ELSEWHERE,
    SILENCE_S,
    SessionLink,
)

WITHIN_S = 10.0
OFFER = {"token": "first", "within_ms": 1000 * WITHIN_S, "unconfirmed_bytes": 262_144}
BROKEN = SessionLost(None, "reset", broken=True)


class ScriptedWire:
    """Gives `incoming` to the client, errors raised, and keeps what it sends."""

    def __init__(self, *incoming: dict[str, Any] | bytes | Exception) -> None:
        self.sent: list[dict[str, Any]] = []
        self.aborted = self.closed = False
        self._incoming: asyncio.Queue[dict[str, Any] | bytes | Exception] = asyncio.Queue()
        for message in incoming:
            self._incoming.put_nowait(message)

    def put(self, message: dict[str, Any] | bytes | Exception) -> None:
        self._incoming.put_nowait(message)

    async def send(self, text: str) -> None:
        self.sent.append(json.loads(text))

    async def receive(self) -> str | bytes:
        message = await self._incoming.get()
        if isinstance(message, Exception):
            raise message
        return message if isinstance(message, bytes) else json.dumps(message)

    def abort(self) -> None:
        self.aborted = True

    async def close(self, code: int = 1000, reason: str = "") -> None:  # noqa: ARG002 - the interface's signature
        self.closed = True


class Bench:
    """A link whose next connections are `wires`, or errors."""

    def __init__(self, *wires: ScriptedWire | Exception, offer: dict[str, Any] | None = OFFER) -> None:
        self.first = ScriptedWire()
        self.attempts_s: list[float] = []
        self.changes: list[bool] = []
        self._wires = list(wires)
        self.link = SessionLink(self.first, self._open, None)
        self.link.on_change = self.changes.append
        self.link.start("s-1", offer, sent=0)

    async def _open(self, session: str, timeout_s: float) -> ScriptedWire:
        assert (session, timeout_s <= ATTEMPT_S) == ("s-1", True)
        self.attempts_s.append(asyncio.get_running_loop().time())
        wire = self._wires.pop(0) if len(self._wires) > 1 else self._wires[0]
        if isinstance(wire, Exception):
            raise wire
        return wire


def resumed(received: int, token: str = "second") -> dict[str, Any]:
    return {"type": "resumed", "session": "s-1", "received": received, "resume": {**OFFER, "token": token}}


def test_what_the_gateway_has_not_received_is_sent_again_in_order() -> None:
    async def scene() -> None:
        second = ScriptedWire(resumed(2), b"audio")
        bench = Bench(second)
        for number in range(4):
            await bench.link.send({"number": number})
        await settle()
        bench.first.put({"type": "started"})
        assert json.loads(await bench.link.receive()) == {"type": "started"}
        bench.first.put(BROKEN)
        assert await bench.link.receive() == b"audio"
        await bench.link.send({"number": 4})
        await settle()
        assert second.sent[0] == {"type": "resume", "token": "first", "received": 2}
        assert [message["number"] for message in second.sent[1:]] == [2, 3, 4]
        assert bench.first.aborted
        assert bench.changes == [False, True]
        bench.link.end(BROKEN)

    run(scene())


def test_next_resume_uses_the_newest_token() -> None:
    async def scene() -> None:
        third = ScriptedWire(resumed(0), b"x")
        bench = Bench(ScriptedWire(resumed(0, "second"), BROKEN), third)
        bench.first.put(BROKEN)
        await bench.link.receive()
        assert third.sent[0]["token"] == "second"
        bench.link.end(BROKEN)

    run(scene())


@pytest.mark.parametrize("lost", [SessionLost(1000, ""), SessionLost(1012, "shutting down"), SessionLost(4001, "")])
def test_close_by_the_gateway_is_final(lost: SessionLost) -> None:
    async def scene() -> None:
        bench = Bench(ScriptedWire(resumed(0)))
        bench.first.put(lost)
        with pytest.raises(SessionLost) as raised:
            await bench.link.receive()
        assert (raised.value, bench.attempts_s) == (lost, [])
        bench.link.end(lost)
        with pytest.raises(SessionLost):
            await bench.link.send({})

    run(scene())


def test_gateway_that_offers_nothing_is_not_asked() -> None:
    async def scene() -> None:
        bench = Bench(ScriptedWire(resumed(0)), offer=None)
        bench.first.put(BROKEN)
        with pytest.raises(SessionLost):
            await bench.link.receive()
        assert bench.attempts_s == []
        bench.link.end(BROKEN)

    run(scene())


@pytest.mark.parametrize(
    "answer", [ScriptedWire, lambda: Refused(401, "bad key"), lambda: ProtocolViolation("malformed")]
)
def test_refused_resume_reports_the_loss(answer: Any) -> None:
    async def scene() -> None:
        refusal = answer()
        if isinstance(refusal, ScriptedWire):
            refusal.put({"type": "error", "code": "resume_failed"})
        bench = Bench(refusal)
        bench.first.put(BROKEN)
        with pytest.raises(SessionLost) as raised:
            await bench.link.receive()
        assert raised.value is BROKEN
        assert len(bench.attempts_s) == 1
        bench.link.end(BROKEN)

    run(scene())


def test_attempts_are_bounded_and_spread() -> None:
    async def scene() -> None:
        bench = Bench(Unreachable("the network is down"))
        bench.first.put(BROKEN)
        with pytest.raises(SessionLost):
            await bench.link.receive()
        assert asyncio.get_running_loop().time() <= WITHIN_S + 0.01
        assert 8 <= len(bench.attempts_s) <= 30
        assert bench.attempts_s[0] == 0
        bench.link.end(BROKEN)

    run(scene())


def test_silence_while_messages_are_expected_is_a_loss() -> None:
    async def scene() -> None:
        bench = Bench(ScriptedWire(resumed(0), b"audio"))
        bench.link.expecting = lambda: True
        assert await bench.link.receive() == b"audio"
        assert bench.attempts_s == [pytest.approx(2 * SILENCE_S, abs=0.01)]
        assert [message["type"] for message in bench.first.sent] == ["ping"]
        bench.link.end(BROKEN)

    run(scene())


def test_silence_of_an_idle_session_is_none() -> None:
    async def scene() -> None:
        bench = Bench(ScriptedWire())
        reading = asyncio.create_task(bench.link.receive())
        await asyncio.sleep(60)
        assert (bench.attempts_s, bench.first.sent) == ([], [])
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        bench.link.end(BROKEN)

    run(scene())


def test_received_messages_are_confirmed_after_a_second_or_many_bytes() -> None:
    async def scene() -> None:
        bench = Bench(ScriptedWire())
        bench.first.put(b"x")
        await bench.link.receive()
        await asyncio.sleep(CONFIRM_S + 0.01)
        assert bench.first.sent == [{"type": "received", "messages": 2}]
        bench.first.put(bytes(CONFIRM_BYTES))
        await bench.link.receive()
        await settle()
        assert bench.first.sent[1:] == [{"type": "received", "messages": 3}]
        bench.link.end(BROKEN)

    run(scene())


def test_send_waits_while_too_much_is_unconfirmed() -> None:
    async def scene() -> None:
        bench = Bench(ScriptedWire())
        await bench.link.send({"text": "x" * KEPT_CHARACTERS})
        sending = asyncio.create_task(bench.link.send({"text": "y"}))
        await settle()
        assert not sending.done()
        bench.first.put({"type": "received", "messages": 1})
        bench.first.put(b"audio")
        assert await bench.link.receive() == b"audio"  # a confirmation is no message of the session
        await settle()
        assert sending.done()
        bench.link.end(BROKEN)

    run(scene())


def test_flush_waits_for_queued_messages() -> None:
    async def scene() -> None:
        bench = Bench(ScriptedWire())
        await bench.link.send({"type": "interrupt"})
        await bench.link.flush()
        await bench.link.close()
        assert bench.first.sent == [{"type": "interrupt"}]
        assert bench.first.closed

    run(scene())


def test_process_that_has_the_session_is_searched_for_a_bounded_number_of_times() -> None:
    async def scene() -> None:
        others = [ScriptedWire({"type": "error", "code": ELSEWHERE}) for _ in range(5)]
        bench = Bench(*others, ScriptedWire(resumed(0), b"audio", BROKEN), ScriptedWire())
        bench.first.put(BROKEN)
        assert await bench.link.receive() == b"audio"
        assert len(bench.attempts_s) == 6
        assert bench.attempts_s[-1] < 1
        bench.link.end(BROKEN)
        lost = Bench(*(ScriptedWire({"type": "error", "code": ELSEWHERE}) for _ in range(MAX_TRIES_ELSEWHERE + 1)))
        lost.first.put(BROKEN)
        with pytest.raises(SessionLost):
            await lost.link.receive()
        assert len(lost.attempts_s) <= MAX_TRIES_ELSEWHERE
        lost.link.end(BROKEN)

    run(scene())
