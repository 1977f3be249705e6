from __future__ import annotations

import ssl
from http import HTTPStatus

import pytest
from fakes.humming_gateway import FakeGateway, respond
from voxgate.client import Client, Refused, Retry, SessionLost, Unreachable, connect

AT_ONCE = Retry(patience_s=5, first_pause_s=0)


async def spoken(client: Client, text: str) -> int:
    async with client.utterance() as utterance:
        await utterance.feed(text)
        return sum([audio.samples async for audio in utterance.audio()])


async def test_utterances_share_a_session(gateway: FakeGateway) -> None:
    async with Client(gateway.url) as client:
        first = await client.session()
        assert await spoken(client, "One.") == 4 * 1920
        assert await spoken(client, "Two.") == 4 * 1920
        assert await client.session() is first
    assert [m["utterance"] for m in gateway.received if m["type"] == "start"] == ["u1", "u2"]


async def test_the_utterance_after_a_loss_has_a_new_session(gateway: FakeGateway) -> None:
    gateway.script["Boom."] = [1011]
    async with Client(gateway.url, retry=AT_ONCE) as client:
        first = await client.session()
        with pytest.raises(SessionLost) as lost:
            await spoken(client, "Boom.")
        assert lost.value.retryable
        assert not first.usable
        assert await spoken(client, "Again.") == 6 * 1920
        assert await client.session() is not first


async def test_a_gateway_that_goes_away_gets_no_new_utterance(gateway: FakeGateway) -> None:
    gateway.script["Last."] = [{"type": "going_away", "deadline_ms": 5000}, 1012]
    async with Client(gateway.url, retry=AT_ONCE) as client, client.utterance() as last:
        await last.feed("Last.")
        with pytest.raises(SessionLost):
            async for _ in last.audio():
                pass
        assert (await client.session()).usable
        assert await spoken(client, "Next.") == 5 * 1920


async def test_a_full_gateway_is_asked_again(gateway: FakeGateway) -> None:
    refusals = iter([HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS])

    def refuse() -> object:
        status = next(refusals, None)
        return None if status is None else respond(status, {"error": "at_capacity", "message": "full"})

    gateway.refuse = refuse
    async with Client(gateway.url, retry=AT_ONCE) as client:
        assert await spoken(client, "One.") == 4 * 1920


async def test_a_key_that_is_not_accepted_is_told_at_once(gateway: FakeGateway) -> None:
    gateway.refuse = lambda: respond(HTTPStatus.UNAUTHORIZED, {"error": "unauthorized", "message": "no such key"})
    async with Client(gateway.url, key="wrong") as client:
        with pytest.raises(Refused, match="no such key"):
            await client.session()


async def test_nobody_there_is_told_when_patience_ends(unused_tcp_port: int) -> None:
    async with Client(f"ws://127.0.0.1:{unused_tcp_port}", retry=Retry(patience_s=0.05, first_pause_s=0.01)) as client:
        with pytest.raises(Unreachable):
            await client.session()


async def test_the_key_goes_into_the_handshake(gateway: FakeGateway) -> None:
    async with connect(gateway.url, key="vox_secret", headers={"X-Trace": "7"}):
        pass
    assert gateway.headers["Authorization"] == "Bearer vox_secret"
    assert gateway.headers["X-Trace"] == "7"


async def test_a_tls_context_is_no_trouble_without_tls(gateway: FakeGateway) -> None:
    async with connect(gateway.url, tls=ssl.create_default_context()) as session:
        assert session.usable
