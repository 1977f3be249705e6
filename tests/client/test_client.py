from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from http import HTTPStatus

import pytest
from fakes.gateway.protocol_server import FakeGateway, greeting_with, respond
from fakes.virtual_time import turns
from fakes.waiting import DEADLINE_S
from voxgate.client import (
    NO_RETRY,
    AudioFormat,
    Client,
    ClientError,
    ProtocolViolation,
    Refused,
    Retry,
    SessionLost,
    Unreachable,
    connect,
    say,
)

UNREACHABLE = Unreachable("no answer")


def test_delays_double_up_to_the_maximum() -> None:
    retry = Retry(max_elapsed_s=1000, initial_delay_s=1, max_delay_s=5)
    assert [retry.delay_s(UNREACHABLE, attempts, 0, 0.5) for attempts in (1, 2, 3, 4, 5000)] == [1, 2, 4, 5, 5]


def test_jitter_scales_the_delay() -> None:
    retry = Retry(initial_delay_s=1)
    assert retry.delay_s(UNREACHABLE, 1, 0, 0.0) == 0.5
    assert retry.delay_s(UNREACHABLE, 1, 0, 0.75) == 1.25


def test_delay_is_at_least_what_the_gateway_asked_for() -> None:
    retry = Retry(initial_delay_s=0.1)
    assert retry.delay_s(Refused(503, "full", retry_after_ms=3000), 1, 0, 0.5) == 3
    assert retry.delay_s(Refused(503, "full", retry_after_ms=1), 1, 0, 0.5) == 0.1


@pytest.mark.parametrize("failure", [Refused(401, "no key"), Refused(404, "no path"), ProtocolViolation("malformed")])
def test_permanent_failure_is_not_retried(failure: Exception) -> None:
    assert Retry().delay_s(failure, 1, 0, 0.5) is None


def test_retries_end_after_the_maximum_time() -> None:
    retry = Retry(max_elapsed_s=10, initial_delay_s=1)
    assert retry.delay_s(UNREACHABLE, 1, 9, 0.5) == 1
    assert retry.delay_s(UNREACHABLE, 1, 9.1, 0.5) is None
    assert NO_RETRY.delay_s(UNREACHABLE, 1, 0, 0.0) is None


async def test_key_that_no_header_can_carry_is_not_retried() -> None:
    async with Client("ws://127.0.0.1:9", retry=Retry(max_elapsed_s=600), key="vg_…") as client:
        with pytest.raises(ValueError, match="key must have printable ASCII"):
            async with client.utterance():
                pass


NO_DELAY = Retry(max_elapsed_s=5, initial_delay_s=0)


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


async def test_further_sessions_take_the_utterances_beyond_the_limit(gateway: FakeGateway) -> None:
    gateway.greeting = greeting_with(utterances_per_session=2)
    async with Client(gateway.url) as client:
        async with AsyncExitStack() as speaking:
            own = (await client.session()).utterance()  # counts too
            ids = [
                (await speaking.enter_async_context(each)).id for each in (own, *(client.utterance() for _ in range(5)))
            ]
            assert ids == ["u1", "u2"] * 3
            gateway.refuse = lambda: respond(HTTPStatus.SERVICE_UNAVAILABLE, "full")
            waiting = asyncio.create_task(spoken(client, "One."))
            await turns(1)
        assert await waiting == 4 * 1920
        assert len(client._open_sessions) == 1


async def test_leaving_ends_attempts_to_open_a_session(gateway: FakeGateway) -> None:
    async with Client(gateway.url) as client:
        attempts = [asyncio.create_task(client.session()) for _ in range(2)]
        await turns(1)
    for attempt in attempts:
        with pytest.raises(ClientError, match="client was left"):
            await attempt


async def test_utterance_after_a_loss_opens_a_new_session(gateway: FakeGateway) -> None:
    gateway.script["Boom."] = [1011]
    async with Client(gateway.url, retry=NO_DELAY) as client:
        first = await client.session()
        with pytest.raises(SessionLost) as lost:
            await spoken(client, "Boom.")
        assert lost.value.retryable
        assert not first.usable
        assert await spoken(client, "Again.") == 6 * 1920
        assert await client.session() is not first


async def test_draining_gateway_gets_no_new_utterance(gateway: FakeGateway) -> None:
    gateway.script["Last."] = [{"type": "going_away", "deadline_ms": 5000}, 1012]
    async with Client(gateway.url, retry=NO_DELAY) as client, client.utterance() as last:
        await last.feed("Last.")
        with pytest.raises(SessionLost):
            async for _ in last.audio():
                pass
        assert (await client.session()).usable
        assert await spoken(client, "Next.") == 5 * 1920


async def test_full_gateway_is_retried(gateway: FakeGateway) -> None:
    refusals = iter([HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS])

    def refuse() -> object:
        status = next(refusals, None)
        return None if status is None else respond(status, {"error": "at_capacity", "message": "full"})

    gateway.refuse = refuse
    async with Client(gateway.url, retry=NO_DELAY) as client:
        assert await spoken(client, "One.") == 4 * 1920


async def test_refused_key_is_raised_without_retry(gateway: FakeGateway) -> None:
    gateway.refuse = lambda: respond(HTTPStatus.UNAUTHORIZED, {"error": "unauthorized", "message": "no such key"})
    async with Client(gateway.url, key="wrong") as client:
        with pytest.raises(Refused, match="no such key"):
            await client.session()


async def test_unreachable_gateway_is_raised_after_the_last_retry(unused_tcp_port: int) -> None:
    async with Client(
        f"ws://127.0.0.1:{unused_tcp_port}", retry=Retry(max_elapsed_s=0.05, initial_delay_s=0.01)
    ) as client:
        with pytest.raises(Unreachable):
            await client.session()


async def test_key_and_headers_are_sent_in_the_handshake(gateway: FakeGateway) -> None:
    async with connect(gateway.url, key="vox_secret", headers={"X-Trace": "7"}):
        pass
    assert gateway.headers["Authorization"] == "Bearer vox_secret"
    assert gateway.headers["X-Trace"] == "7"


async def test_tls_context_is_ignored_without_tls(gateway: FakeGateway) -> None:
    async with connect(gateway.url, tls=ssl.create_default_context()) as session:
        assert session.usable


async def test_say_accepts_a_string(gateway: FakeGateway) -> None:
    samples = [audio.samples async for audio in say("Hello", url=gateway.url, format=AudioFormat(sample_rate=8000))]
    assert samples == [640] * 5 + [0]


async def test_say_yields_audio_while_text_arrives(gateway: FakeGateway) -> None:
    received: asyncio.Queue[int] = asyncio.Queue()

    async def written() -> AsyncIterator[str]:
        for index, character in enumerate("abc"):
            yield character
            assert await received.get() == index  # each character waits for the audio of the one before

    async with aclosing(say(written(), url=gateway.url)) as speech:
        async for audio in speech:
            received.put_nowait(audio.seq)
    assert audio.last


@pytest.mark.parametrize(
    ("error", "raised"),
    [(RuntimeError("no more"), "no more"), (asyncio.CancelledError(), "source of the text was cancelled")],
)
async def test_say_raises_the_error_of_the_text_source(gateway: FakeGateway, error: BaseException, raised: str) -> None:
    async def broken() -> AsyncIterator[str]:
        yield "a"
        raise error

    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises((RuntimeError, ClientError), match=raised):
            async for _ in say(broken(), url=gateway.url):
                pass


async def test_closing_the_iterator_of_say_interrupts(gateway: FakeGateway) -> None:
    async def unfinished() -> AsyncIterator[str]:
        yield "Hel"
        await asyncio.Event().wait()

    async with aclosing(say(unfinished(), url=gateway.url)) as speech:
        assert (await anext(speech)).first
    async with connect(gateway.url):  # the gateway has read all earlier messages
        pass
    assert gateway.received[-1] == {"type": "interrupt", "utterance": "u1"}


def test_client_imports_no_heavy_library() -> None:
    heavy = "{'torch', 'numpy', 'pydantic', 'vllm'}"
    code = f"import sys, voxgate.client; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True, timeout=DEADLINE_S).strip() == "[]"
