from __future__ import annotations

import asyncio
import json
import ssl
from http import HTTPStatus
from pathlib import Path

import pytest
from fakes.certificates import self_signed
from fakes.gateway.protocol_server import GREETING, FakeGateway, error_message, fake_gateway, respond
from fakes.waiting import until
from voxgate.client import (
    Audio,
    Done,
    ProtocolViolation,
    Refused,
    SessionLost,
    SpeechError,
    Unreachable,
    connect,
)
from voxgate.client.utterance import MAX_UNREAD_EVENTS


async def test_session_info_holds_the_gateways_offer(gateway: FakeGateway) -> None:
    async with connect(gateway.url) as session:
        assert session.info.default_voice == "hum"
        assert session.info.limits["lead_ms"] == 400


async def test_certificate_that_the_system_trusts_needs_no_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = self_signed(tmp_path, "gateway")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    async with fake_gateway(tls=tls) as gateway:
        with pytest.raises(Unreachable, match="certificate verify failed"):
            async with connect(gateway.url):
                pass
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        for url in (gateway.url, gateway.url.replace("https", "wss")):
            async with connect(url) as session:
                assert session.info.default_voice == "hum"


async def test_concurrent_utterances_do_not_mix(gateway: FakeGateway) -> None:
    async def speak(text: str) -> tuple[int, Done | None]:
        async with session.utterance() as utterance:
            await utterance.feed(text)
            return sum([audio.samples async for audio in utterance.audio()]), utterance.done

    async with connect(gateway.url) as session:
        (short, short_done), (long, long_done) = await asyncio.gather(speak("Hi."), speak("Hello there."))
    assert (short, long) == (3 * 1920, 12 * 1920)
    assert short_done is not None
    assert long_done is not None
    assert (short_done.characters, long_done.characters) == (3, 12)


async def test_unread_messages_do_not_hold_up_the_close(gateway: FakeGateway) -> None:
    gateway.script["x"] = [{"type": "warning", "code": "c", "message": 10_000 * "x"}] * (MAX_UNREAD_EVENTS + 1000)
    async with connect(gateway.url) as session, session.utterance() as utterance:
        await utterance.send("x")
        await until(lambda: len(utterance._events._items) == MAX_UNREAD_EVENTS)
    assert session._link.wire.socket.close_code == 1000


async def test_utterances_follow_each_other(gateway: FakeGateway) -> None:
    async with connect(gateway.url) as session:
        for text in ("One.", "Two."):
            async with session.utterance() as utterance:
                await utterance.feed(text)
                assert [audio.seq async for audio in utterance.audio()] == [0, 1, 2, 3, 4]


async def test_leaving_an_utterance_stops_it_but_not_the_next(gateway: FakeGateway) -> None:
    async with connect(gateway.url) as session:
        async with session.utterance() as utterance:
            await utterance.send("never ended")
            async for _ in utterance.audio():
                break
        async with session.utterance() as following:
            await following.feed("Next.")
            samples = sum([audio.samples async for audio in following.audio()])
    assert samples == 5 * 1920
    assert [m["utterance"] for m in gateway.received if m["type"] == "interrupt"] == ["u1"]


async def test_refusal_carries_retry_after(gateway: FakeGateway) -> None:
    body = {"error": "at_capacity", "message": "every socket is taken", "retry_after_ms": 1500, "reached": "sockets"}
    gateway.refuse = lambda: respond(HTTPStatus.SERVICE_UNAVAILABLE, body, headers={"Retry-After": "2"})
    with pytest.raises(Refused, match="every socket is taken") as refused:
        async with connect(gateway.url):
            pass
    assert (refused.value.status, refused.value.code, refused.value.retry_after_ms) == (
        503,
        "at_capacity",
        1500,
    )
    assert refused.value.reached == "sockets"
    assert refused.value.retryable


async def test_refusal_without_json_body_is_understood(gateway: FakeGateway) -> None:
    gateway.refuse = lambda: respond(HTTPStatus.BAD_GATEWAY, b"<html>", "text/html", {"Retry-After": "3"})
    with pytest.raises(Refused) as refused:
        async with connect(gateway.url):
            pass
    assert (refused.value.status, refused.value.retry_after_ms, refused.value.retryable) == (502, 3000, False)


async def test_loopback_address_bypasses_the_proxy(gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("all_proxy", "http_proxy", "ws_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with connect(gateway.url) as session:
        assert session.info.session == "s1"


async def test_unreachable_address_is_reported() -> None:
    with pytest.raises(Unreachable, match="no gateway answers"):
        async with connect("ws://127.0.0.1:9"):
            pass


@pytest.mark.parametrize("secret", ["vg_secret\n", "vg_\x00secret", "vg_secret…", "vg_secreté"])
async def test_key_that_no_header_can_carry_is_refused_without_its_value(gateway: FakeGateway, secret: str) -> None:
    with pytest.raises(ValueError, match="key must have printable ASCII") as refused:
        async with connect(gateway.url, key=secret):
            pass
    assert "secret" not in str(refused.value)
    async with connect(gateway.url, key=secret, auth_message=True) as session:
        assert session.info.session == "s1"


async def test_header_that_no_request_can_carry_is_refused_without_its_value(gateway: FakeGateway) -> None:
    with pytest.raises(ValueError, match="value of header 'X-Tenant'") as refused:
        async with connect(gateway.url, headers={"X-Tenant": "secret\r\n"}):
            pass
    assert "secret" not in str(refused.value)


async def test_other_protocol_version_is_refused(gateway: FakeGateway) -> None:
    gateway.greeting = GREETING | {"protocol": 2}
    with pytest.raises(ProtocolViolation, match="gateway has 2"):
        async with connect(gateway.url):
            pass


async def test_first_message_must_be_session(gateway: FakeGateway) -> None:
    gateway.greeting = {"type": "hello"}
    with pytest.raises(ProtocolViolation, match="session"):
        async with connect(gateway.url):
            pass


async def test_closed_connection_ends_every_utterance(gateway: FakeGateway) -> None:
    gateway.script["die"] = [4001]
    async with connect(gateway.url) as session, session.utterance() as one, session.utterance() as two:
        await one.send("die")
        for utterance in (one, two):
            with pytest.raises(SessionLost) as lost:
                async for _ in utterance.audio():
                    pass
            assert lost.value.code == 4001
        with pytest.raises(SessionLost):
            await two.send("too late")


async def test_audio_message_without_header_ends_the_session(gateway: FakeGateway) -> None:
    gateway.script["bad"] = [b""]
    async with connect(gateway.url) as session, session.utterance() as utterance:
        await utterance.send("bad")
        with pytest.raises(ProtocolViolation, match="at least 20 bytes, got 0"):
            await anext(aiter(utterance.audio()))


async def test_refused_message_does_not_end_other_utterances(gateway: FakeGateway) -> None:
    gateway.script["bad"] = [json.dumps(error_message("bad_message")), error_message("rate_limited", retryable=True)]
    async with connect(gateway.url) as session, session.utterance() as one, session.utterance() as two:
        await one.send("bad")
        with pytest.raises(SpeechError, match="rate_limited"):
            await anext(aiter(one.audio()))
        await two.feed("Two.")
        assert [audio.seq async for audio in two.audio()] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("code", "retryable"),
    [
        (None, True),
        (1001, True),
        (1003, False),
        (1007, False),
        (1008, False),
        (1009, False),
        (1012, True),
        (4001, True),
    ],
)
def test_lost_session_is_retryable_unless_the_client_made_a_mistake(code: int | None, retryable: bool) -> None:
    assert SessionLost(code, "").retryable is retryable


async def test_going_away_is_recorded_and_speech_continues(gateway: FakeGateway) -> None:
    gateway.script["bye"] = [
        {"type": "going_away", "deadline_ms": 5000},
        error_message("draining", retryable=True),
    ]
    async with connect(gateway.url) as session, session.utterance() as utterance:
        await utterance.send("bye")
        with pytest.raises(SpeechError) as error:
            await anext(aiter(utterance.events()))
        assert session.going_away_ms == 5000
    assert (error.value.code, error.value.retryable) == ("draining", True)


async def test_audio_of_unknown_number_is_dropped(gateway: FakeGateway) -> None:
    stray = bytes.fromhex("01 03 0000 09000000 00000000 0000000000000000")
    gateway.script["stray"] = [stray, error_message("generation_failed")]
    async with connect(gateway.url) as session, session.utterance() as utterance:
        await utterance.send("stray")
        with pytest.raises(SpeechError, match="generation_failed"):
            assert not [event async for event in utterance.events() if isinstance(event, Audio)]


async def test_interrupt_is_answered_although_the_reader_leaves(gateway: FakeGateway) -> None:
    async with connect(gateway.url) as session:
        received = asyncio.Event()
        utterances = []

        async def listen() -> None:
            async with session.utterance() as utterance:
                utterances.append(utterance)
                await utterance.send("never ended")
                async for _ in utterance.audio():
                    received.set()

        listening = asyncio.create_task(listen())
        await received.wait()
        answer = await utterances[0].interrupt(played_ms=160)
        await listening
    assert answer.text_spoken == "ne"
    assert len([m for m in gateway.received if m["type"] == "interrupt"]) == 1
