"""Resuming through the real handshake: keys, tokens of sessions, first messages, and the Python client."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from fakes.gateway.loopback import ask, gateway, next_of
from fakes.gateway.packet_encoder import s16le
from fakes.pipeline.tone_synthesizer import tone_pcm
from fakes.waiting import until
from voxgate.client import Audio, Reconnecting, Resumed, SessionLost, connect
from voxgate.gateway.access.keys import hash_key
from voxgate.gateway.server import Gateway
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import ConnectionClosed, InvalidStatus

KEYS = (f"ada={hash_key('key-of-ada')}", f"bob={hash_key('key-of-bob')}")
TEXT = "The weather is fine today and will stay so."


def dial(served: Gateway, resume: str, key: str | None = "key-of-ada", query: str = "") -> open_socket:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return open_socket(f"ws://127.0.0.1:{served.port}/v1/speech?resume={resume}{query}", additional_headers=headers)


async def open_and_lose(served: Gateway, query: str = "", key: str | None = "key-of-ada") -> dict[str, Any]:
    """The `session` message of a connection that was cut."""
    async with dial(served, "new", key, query) as socket:
        if key is None:
            await ask(socket, type="auth", key="key-of-ada")
        session = await next_of(socket, "session")
        socket.transport.abort()
    return session


async def answer(socket: ClientConnection) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(await socket.recv())
    return message


async def test_key_in_the_first_message_resumes_too() -> None:
    async with gateway(keys=KEYS) as served:
        session = await open_and_lose(served, "&auth=message", key=None)
        async with dial(served, session["session"], None, "&auth=message") as socket:
            token = session["resume"]["token"]
            await ask(socket, type="resume", token=token, received=1, key="key-of-ada")
            resumed = await answer(socket)
            assert (resumed["type"], resumed["received"], resumed["session"]) == ("resumed", 1, session["session"])
            await ask(socket, type="ping", id="x")
            assert (await answer(socket))["id"] == "x"


@pytest.mark.parametrize(
    ("key", "fields", "code"),
    [
        ("key-of-bob", {}, "resume_failed"),
        ("key-of-ada", {"token": "forged"}, "resume_failed"),
        ("key-of-ada", {"received": 7}, "resume_failed"),
        ("key-of-ada", {"type": "ping"}, "bad_message"),
        (None, {"key": "wrong"}, "unauthorized"),
        (None, {}, "unauthorized"),
    ],
)
async def test_resume_that_is_refused_closes_its_socket_only(
    key: str | None, fields: dict[str, Any], code: str
) -> None:
    async with gateway(keys=KEYS) as served:
        session = await open_and_lose(served)
        good = {"type": "resume", "token": session["resume"]["token"], "received": 1}
        async with dial(served, session["session"], key, "" if key else "&auth=message") as socket:
            await ask(socket, **{**good, **fields})
            assert (await answer(socket))["code"] == code
            with pytest.raises(ConnectionClosed):
                await socket.recv()
            assert socket.close_code == 1008
        async with dial(served, session["session"]) as socket:
            await ask(socket, **good)
            assert (await answer(socket))["type"] == "resumed"


async def test_wrong_key_in_the_handshake_is_refused_by_it() -> None:
    async with gateway(keys=KEYS) as served:
        session = await open_and_lose(served)
        with pytest.raises(InvalidStatus) as refused:
            async with dial(served, session["session"], "wrong"):
                pass
        assert refused.value.response.status_code == 401


async def test_resume_is_possible_at_the_limit_of_sockets() -> None:
    async with gateway(keys=KEYS, key_sockets=1, sockets=1) as served:
        session = await open_and_lose(served)
        assert served._sessions.total_open == 1
        async with dial(served, session["session"]) as socket:
            await ask(socket, type="resume", token=session["resume"]["token"], received=1)
            assert (await answer(socket))["type"] == "resumed"
            assert served._sessions.total_open == 1
        await until(lambda: served._sessions.total_open == 0)


async def test_tokens_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("websockets").setLevel(logging.INFO)  # its debug records quote every frame
    async with gateway(keys=KEYS) as served:
        session = await open_and_lose(served)
        async with dial(served, session["session"]) as socket:
            await ask(socket, type="resume", token=session["resume"]["token"], received=1)
            resumed = await answer(socket)
        for token in (session["resume"]["token"], resumed["resume"]["token"]):
            assert all(token not in str(vars(record)) for record in caplog.records)
            assert "session detached" in caplog.text


async def test_client_hears_on_after_a_cut() -> None:
    async with gateway() as served, connect(f"ws://127.0.0.1:{served.port}") as session:
        events, audio = [], b""
        async with session.utterance(seed=3) as utterance:
            await utterance.feed(TEXT)
            async for event in utterance.events():
                if isinstance(event, Audio):
                    audio += event.payload
                    if event.seq in (3, 9):
                        session.transport.abort()
                else:
                    events.append(event)
    changes = [type(event) for event in events if isinstance(event, Reconnecting | Resumed)]
    assert changes == [Reconnecting, Resumed, Reconnecting, Resumed]
    assert audio == s16le(tone_pcm(TEXT, 3))


async def test_client_reports_the_loss_when_the_gateway_cannot_resume() -> None:
    async with gateway(resume_s=0) as served, connect(f"ws://127.0.0.1:{served.port}") as session:

        async def listen() -> None:
            async with session.utterance() as utterance:
                await utterance.send("Hello there.")
                async for _ in utterance.audio():
                    session.transport.abort()

        with pytest.raises(SessionLost):
            await listen()


async def test_close_of_the_gateway_does_not_wait_for_detached_sessions() -> None:
    async with gateway(keys=KEYS) as served:
        await open_and_lose(served)
        assert len(served._sessions) == 1
        async with asyncio.timeout(5):
            await served.close()
        assert len(served._sessions) == 0
