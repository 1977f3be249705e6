"""Invalid input: each kind gets its typed error and the session continues; repeated errors close the socket."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from fakes.gateway.in_process import PCM, InProcessGateway, say
from fakes.virtual_time import run
from voxgate.gateway.protocols.native import NativeProtocol
from voxgate.gateway.session.protocol import ProtocolAction
from voxgate.pipeline.errors import BadMessage

START = {"type": "start", "utterance": "x", "format": PCM}
TEXT = {"type": "text", "utterance": "x", "text": "Hello."}
END = {"type": "end", "utterance": "x"}
FLUSH = {"type": "flush", "utterance": "x"}
INTERRUPT = {"type": "interrupt", "utterance": "x"}


CASES: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "unknown type": ([{"type": "speak"}], {"code": "bad_message", "param": "type", "retryable": False}),
    "extra field": ([{**START, "speed": 2}], {"code": "bad_message", "param": "speed"}),
    "text first": ([TEXT], {"code": "unknown_utterance", "utterance": "x"}),
    "flush first": ([FLUSH], {"code": "unknown_utterance", "utterance": "x"}),
    "end first": ([END], {"code": "unknown_utterance", "utterance": "x"}),
    "interrupt first": ([INTERRUPT], {"code": "unknown_utterance", "utterance": "x"}),
    "second start": ([START, START], {"code": "duplicate_utterance", "utterance": "x"}),
    "text after end": ([START, TEXT, END, TEXT], {"code": "utterance_ended", "utterance": "x"}),
    "flush after end": ([START, TEXT, END, FLUSH], {"code": "utterance_ended", "utterance": "x"}),
    "end after end": ([START, TEXT, END, END], {"code": "utterance_ended", "utterance": "x"}),
    "unknown voice": ([{**START, "voice": "eve"}], {"code": "unknown_voice", "param": "voice"}),
    "unknown language": (
        [{**START, "language": "german"}],
        {"code": "unknown_language", "param": "language"},
    ),
    "instructions": (
        [{**START, "instructions": "sing"}],
        {"code": "unsupported_option", "param": "instructions"},
    ),
    "codec": ([{**START, "format": {"codec": "aac"}}], {"code": "unsupported_format", "param": "format.codec"}),
    "packet": ([{**START, "format": {**PCM, "packet_ms": 60}}], {"code": "unsupported_format"}),
    "no text": ([START, END], {"code": "empty_text", "utterance": "x", "retryable": False}),
    "blank text": ([START, {**TEXT, "text": " \n"}, END], {"code": "empty_text", "utterance": "x"}),
    "too long": (
        [START, TEXT, {**TEXT, "text": "y" * 2000}],
        {"code": "text_too_long", "utterance": "x", "limit": 2000, "received": 2006},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_invalid_input_gets_its_error_and_the_session_continues(name: str) -> None:
    sent, expected = CASES[name]

    async def scene() -> None:
        async with InProcessGateway(slots=2) as gateway:
            socket = gateway.connect()
            for fields in sent:
                socket.put(**fields)
            error = await socket.until("error")
            assert {k: error.get(k) for k in expected} == expected
            assert error["message"]
            say(socket, "after", "The session continues.")
            done = await socket.until("done", 2 if END in sent and "utterance_ended" in expected.values() else 1)
            assert done["utterance"] in ("after", "x")
            assert len(socket.of("error")) == 1
            assert socket.close_code is None

    run(scene())


@pytest.mark.parametrize("name", ["second start", "text after end", "too long"])
def test_refused_message_does_not_end_the_utterance(name: str) -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            for fields in CASES[name][0]:
                socket.put(**fields)
            await socket.until("error")
            if name == "second start":
                socket.put(**TEXT)
            if name != "text after end":
                socket.put(**END)
            assert (await socket.until("done"))["characters"] == 6

    run(scene())


def test_queued_utterance_follows_the_same_rules() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1) as gateway:
            socket = gateway.connect()
            say(socket, "speaks", "A long text, so that the others wait.")
            for fields in (START, TEXT, {**TEXT, "text": "y" * 2000}, FLUSH, END, TEXT):
                socket.put(**fields)
            socket.put(**{**START, "utterance": "empty"})
            socket.put(type="flush", utterance="empty")
            socket.put(type="end", utterance="empty")
            await socket.until("error", 3)
            codes = [(e["utterance"], e["code"]) for e in socket.of("error")]
            assert codes == [("x", "text_too_long"), ("x", "utterance_ended"), ("empty", "empty_text")]
            await socket.until("done", 2)
            assert gateway.synthesizer.speeches[1].text == "Hello."

    run(scene())


def test_late_or_unknown_ack_is_ignored() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            say(socket, "a", "Hi.")
            await socket.until("done")
            socket.put(type="ack", utterance="a", played_samples=1)
            socket.put(type="ack", utterance="unknown", played_samples=1)
            socket.put(type="ping", id="7")
            assert (await socket.until("pong"))["id"] == "7"
            assert not socket.of("error")

    run(scene())


@pytest.mark.parametrize(
    ("error", "code"),
    [(RuntimeError("a defect"), "generation_failed"), (BadMessage("of the service"), "bad_message")],
)
def test_error_of_a_wire_protocol_refuses_the_message_alone(
    error: Exception, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that is raised behind the first of a message's actions."""
    receive = NativeProtocol.receive

    def failing(protocol: NativeProtocol, payload: str, now_s: float) -> Iterator[ProtocolAction]:
        yield from receive(protocol, payload, now_s)
        if '"fails"' in payload:
            raise error

    monkeypatch.setattr(NativeProtocol, "receive", failing)

    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            say(socket, "a", "Something that goes on.")
            socket.put(type="ping", id="fails")
            refused = await socket.until("error")
            assert (refused["code"], refused["id"]) == (code, "fails")
            assert (await socket.until("pong"))["id"] == "fails"
            assert (await socket.until("done"))["utterance"] == "a"

    run(scene())


def test_third_bad_message_within_ten_seconds_closes_the_socket() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            for _ in range(2):
                socket.put_raw("nonsense")
            await asyncio.sleep(10.5)
            for _ in range(2):
                socket.put_raw("nonsense")
            await asyncio.sleep(1)
            assert socket.close_code is None
            socket.put_raw("nonsense")
            assert await socket.hung_up() == 1008
            assert len(socket.of("error")) == 5

    run(scene())


def test_binary_message_gets_an_error_and_closes_the_socket() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            say(socket, "a", "Something to abandon.")
            socket.put_raw(b"\x00")
            assert await socket.hung_up() == 1003
            assert socket.of("error")[0]["code"] == "bad_message"

    run(scene())


@pytest.mark.parametrize(
    ("payload", "utterance", "id"),
    [
        ('{"type": "text", "utterance": "a", "id": "7"}', "a", "7"),
        ('{"type": "text", "utterance": "a", "text": 3}', "a", None),
        ('{"type": "text", "utterance": "a", "id": "7", "text": "cut o', "a", "7"),
        ('{"type": "sing", "id": "7"}', None, "7"),
        ('{"utterance": ["a"], "id": 7}', None, None),
        ('{"utterance": "", "id": "%s"}' % ("x" * 129), None, None),
        ("[" * 5000, None, None),
        ("nonsense", None, None),
    ],
)
def test_error_names_utterance_and_id_as_far_as_they_can_be_read(
    payload: str, utterance: str | None, id: str | None
) -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            socket.put_raw(payload)
            error = await socket.until("error")
            assert (error["code"], error.get("utterance"), error.get("id")) == ("bad_message", utterance, id)

    run(scene())


@pytest.mark.parametrize(
    "message",
    [{**TEXT, "text": "y" * 2000}, START, {**START, "utterance": "z", "voice": "eve"}, {**TEXT, "utterance": "z"}],
)
def test_every_error_repeats_the_id_of_its_message(message: dict[str, Any]) -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            socket.put(**START, id="1")
            socket.put(**TEXT, id="2")
            socket.put(**message, id="3")
            socket.put(**END, id="4")
            error = await socket.until("error")
            assert (error["id"], error["utterance"]) == ("3", message["utterance"])
            assert error.get("characters") == (6 if message["utterance"] == "x" else None)
            await socket.until("done")
            socket.put(**END, id="5")
            assert (await socket.until("error", 2))["id"] == "5"

    run(scene())


def test_rate_limited_text_reports_the_accepted_characters_and_ends_nothing() -> None:
    async def scene() -> None:
        async with InProcessGateway(messages_per_s=2) as gateway:
            socket = gateway.connect()
            for fields in (START, {**START, "utterance": "other"}, {**TEXT, "utterance": "other"}):
                socket.put(**fields)
            for _ in range(8):
                socket.put(**TEXT)
            error = await socket.until("error")
            assert (error["code"], error["utterance"], error["characters"]) == ("rate_limited", "x", 7 * len("Hello."))
            assert error["reached"] == "messages"
            await asyncio.sleep(2)
            socket.put(**END)
            socket.put(**{**END, "utterance": "other"})
            await socket.until("done", 2)
            assert {m["utterance"]: m["characters"] for m in socket.of("done")} == {"x": 42, "other": 6}

    run(scene())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"messages_per_s": 10}, {"type": "ping"}),
        ({"starts_per_s": 1}, {**START, "voice": "eve"}),
        ({"interrupts_per_s": 1}, INTERRUPT),
    ],
)
def test_flood_is_rate_limited_then_closes_the_socket(options: dict[str, Any], message: dict[str, Any]) -> None:
    async def scene() -> None:
        async with InProcessGateway(**options) as gateway:
            socket = gateway.connect()
            for _ in range(200):
                socket.put(**message)
            assert await socket.hung_up() == 1008
            limited = [e for e in socket.of("error") if e["code"] == "rate_limited"]
            assert len(limited) == 20
            assert all(e["retryable"] and e["retry_after_ms"] > 0 for e in limited)

    run(scene())
