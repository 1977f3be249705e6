"""Plain HTTP over a real loopback socket: errors, origins, bodies, and clients that go away."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
from collections.abc import AsyncIterator, Callable

import aiohttp
import pytest
import uvloop
from aiohttp import web
from fakes.waiting import DEADLINE_S
from multidict import CIMultiDict
from voxgate.gateway.access.auth import AccessControl
from voxgate.gateway.access.keys import KeyRing
from voxgate.gateway.access.rights import SPEAK
from voxgate.gateway.access.tokens import TokenSigner
from voxgate.gateway.http.application import HttpApplication, RouteGroup, max_body_bytes, read_json
from voxgate.gateway.http.sniffer import ProtocolSniffer
from voxgate.gateway.messages.client import Flush
from voxgate.gateway.protocols import openai
from voxgate.gateway.protocols.reply import Reply, ReportableError, error_reply
from voxgate.gateway.transport.connection_pool import ConnectionPlace, ConnectionPool
from voxgate.gateway.transport.turn_budget import TURN_BYTES, TurnBudget
from voxgate.pipeline.errors import AtCapacity

BODY_BYTES = max_body_bytes(4096)


class ExampleRoutes:
    """RouteGroup to try the service with."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/echo", self.echo),
            web.post("/read", self.read),
            web.post("/full", self.full),
            web.get("/broken", self.broken),
            web.get("/read", self.echo),
            web.post("/slow", self.slow),
        ]

    async def echo(self, request: web.Request) -> web.Response:
        return web.Response(body=await request.read())

    async def read(self, request: web.Request) -> web.Response:
        await read_json(request, Flush)
        return web.Response()

    async def full(self, _: web.Request) -> web.Response:
        raise AtCapacity("no room", retry_after_ms=1500)

    async def broken(self, _: web.Request) -> web.Response:
        raise ZeroDivisionError

    async def slow(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"begun")
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()
        return response


def no_websocket(_: ConnectionPlace) -> asyncio.Protocol:
    return asyncio.Protocol()


@contextlib.asynccontextmanager
async def serving(
    routes: ExampleRoutes, connections: int = 10, refuse: Callable[[ReportableError], Reply] = error_reply
) -> AsyncIterator[str]:
    access = AccessControl(KeyRing(), TokenSigner(), origins=("https://voice.example",))
    service = HttpApplication([RouteGroup(SPEAK, routes.routes(), refuse=refuse)], access, BODY_BYTES)
    pool = ConnectionPool(connections, 5)
    await service.open()
    server = await asyncio.get_running_loop().create_server(
        lambda: ProtocolSniffer(
            pool, no_websocket, lambda place: service.connection(place, no_websocket), TurnBudget(TURN_BYTES)
        ),
        "127.0.0.1",
        0,
    )
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await service.close()


async def test_two_requests_share_one_connection() -> None:
    async with serving(ExampleRoutes(), connections=1) as url, aiohttp.ClientSession() as client:
        for size in (0, 10, BODY_BYTES):
            async with client.post(f"{url}/echo", data=b"x" * size) as answer:
                assert await answer.read() == b"x" * size
                assert "Server" not in answer.headers


def test_write_timeout_holds_under_uvloop() -> None:
    uvloop.run(test_two_requests_share_one_connection())


async def test_every_error_is_json() -> None:
    async with serving(ExampleRoutes()) as url, aiohttp.ClientSession() as client:
        for method, path, status, error in [
            ("GET", "/nothing", 404, "not_found"),
            ("GET", "/echo", 405, "method_not_allowed"),
            ("POST", "/full", 503, "at_capacity"),
            ("GET", "/broken", 500, "internal"),
        ]:
            async with client.request(method, url + path) as answer:
                assert (answer.status, (await answer.json())["error"]) == (status, error)
                if path == "/full":
                    assert answer.headers["Retry-After"] == "2"
        async with client.post(f"{url}/echo", data=b"x" * (BODY_BYTES + 1)) as answer:
            assert (answer.status, json.loads(await answer.text())["error"]) == (413, "body_too_large")


async def test_error_below_the_routes_has_the_shape_of_their_service() -> None:
    async with serving(ExampleRoutes(), refuse=openai.refuse) as url, aiohttp.ClientSession() as client:
        async with client.post(f"{url}/echo", data=b"x" * (BODY_BYTES + 1)) as answer:
            error = json.loads(await answer.text())["error"]
            assert (answer.status, error["type"], error["code"]) == (413, "invalid_request_error", "body_too_large")
        async with client.get(f"{url}/broken") as answer:
            error = json.loads(await answer.text())["error"]
            assert (answer.status, error["type"], error["message"]) == (500, "server_error", "the request failed")


def test_longest_text_fits_into_a_body() -> None:
    escaped = json.dumps({"input": "\N{GRINNING FACE}" * 4096, "instructions": "\N{GRINNING FACE}" * 1000})
    assert len(escaped) <= BODY_BYTES == 65_536


@pytest.mark.parametrize(
    ("header", "value", "data"),
    [
        ("Content-Encoding", "gzip", b"no gzip at all"),
        ("Content-Encoding", "gzip", gzip.compress(b"x" * 99)[:-40] + b"\0" * 40),
        ("Content-Encoding", "deflate", b"no deflate"),
        ("Content-Encoding", "br", b"unknown"),
        ("Expect", "tea", b""),
    ],
)
async def test_request_that_is_not_what_its_headers_say_is_refused_in_the_shape_of_its_service(
    header: str, value: str, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        serving(ExampleRoutes(), refuse=openai.refuse) as url,
        aiohttp.ClientSession() as client,
        client.post(f"{url}/echo", data=data, headers={header: value}) as answer,
    ):
        assert (answer.status, (await answer.json())["error"]["type"]) == (400, "invalid_request_error")
        assert "Server" not in answer.headers
    assert not caplog.records


async def test_body_that_announces_its_length_is_refused_unread() -> None:
    async with serving(ExampleRoutes()) as url:
        reader, writer = await asyncio.open_connection(*url.removeprefix("http://").split(":"))
        writer.write(b"POST /read HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (BODY_BYTES + 1))
        async with asyncio.timeout(DEADLINE_S):
            answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 413")
        assert b"\r\nConnection: close\r\n" in answer, "clients must not send their next request on it"
        writer.close()


async def test_repeated_credentials_are_refused() -> None:
    async with serving(ExampleRoutes()) as url, aiohttp.ClientSession() as client:
        for name in ("Authorization", "xi-api-key"):
            headers = CIMultiDict([(name, "Bearer a"), (name, "Bearer b")])
            async with client.post(f"{url}/echo", data=b"", headers=headers) as answer:
                assert (answer.status, (await answer.json())["error"]) == (400, "bad_message")


async def test_defects_fill_no_log(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(ExampleRoutes()) as url, aiohttp.ClientSession() as client:
        for _ in range(20):
            async with client.get(f"{url}/broken") as answer:
                assert answer.status == 500
    assert len([record for record in caplog.records if record.exc_info]) == 1
    assert len(caplog.records) < 20


async def test_foreign_pages_cannot_post() -> None:
    async with serving(ExampleRoutes()) as url, aiohttp.ClientSession() as client:
        for origin, status in (("https://evil.example", 403), ("https://voice.example", 200), (url, 200)):
            async with client.post(f"{url}/echo", headers={"Origin": origin}) as answer:
                assert answer.status == status


async def test_foreign_names_of_the_gateway_cannot_be_read() -> None:
    """A page whose own name resolves to the gateway (DNS rebinding) is of the same origin for its browser."""
    async with serving(ExampleRoutes()) as url, aiohttp.ClientSession() as client:
        async with client.get(f"{url}/broken", headers={"Host": "evil.example"}) as answer:
            assert (answer.status, (await answer.json())["error"]) == (421, "unknown_host")
            assert "--allowed-hosts" in (await answer.json())["message"]
        async with client.post(f"{url}/echo", headers={"Host": "evil.example"}, data=b"x") as answer:
            assert answer.status == 200, "a page would have sent its Origin"
        origin = {"Host": "evil.example", "Origin": "http://evil.example"}
        async with client.post(f"{url}/echo", headers=origin, data=b"x") as answer:
            assert answer.status == 403


async def test_listed_pages_may_read_answers() -> None:
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    async with serving(ExampleRoutes()) as url, aiohttp.ClientSession() as client:
        for origin, status, allowed in (
            ("https://voice.example", 204, "https://voice.example"),
            ("https://evil.example", 405, None),
        ):
            async with client.options(f"{url}/echo", headers={"Origin": origin, **asks}) as answer:
                assert (answer.status, answer.headers.get("Access-Control-Allow-Origin")) == (status, allowed)
            async with client.post(f"{url}/full", headers={"Origin": origin}) as answer:
                assert answer.headers.get("Access-Control-Allow-Origin") == allowed
        async with client.post(f"{url}/echo") as answer:
            assert "Access-Control-Allow-Origin" not in answer.headers


async def test_disconnect_cancels_the_handler() -> None:
    routes = ExampleRoutes()
    async with serving(routes) as url, aiohttp.ClientSession() as client:
        answer = await client.post(f"{url}/slow")
        await routes.started.wait()
        answer.close()
        async with asyncio.timeout(DEADLINE_S):
            await routes.cancelled.wait()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("requests", ["GET", "HEAD", "POST", "GET GET"])
def test_client_that_ends_its_sending_gets_the_answer_to_a_get(run: Callable[..., None], requests: str) -> None:
    async def scene() -> None:
        async with serving(ExampleRoutes()) as url, asyncio.timeout(DEADLINE_S):
            reader, writer = await asyncio.open_connection(*url.removeprefix("http://").split(":"))
            first, *cut_off = requests.split()
            writer.write(f"{first} /read HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            if cut_off:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"GET /read HTTP/1.1\r\n")
            writer.write_eof()
            answer = await reader.read()  # and the gateway closes
            assert answer.startswith(b"HTTP/1.1 200") == (requests in ("GET", "HEAD"))
            writer.close()

    run(scene())


async def test_connections_that_serve_are_limited_and_idle_ones_are_not_counted() -> None:
    routes = ExampleRoutes()
    async with (
        serving(routes, connections=1) as url,
        aiohttp.ClientSession() as first,
        aiohttp.ClientSession() as other,
    ):
        async with first.post(f"{url}/echo") as answer:
            assert answer.status == 200
        async with other.post(f"{url}/echo") as answer:
            assert answer.status == 200
        slow = await first.post(f"{url}/slow")
        await routes.started.wait()
        async with other.post(f"{url}/echo") as answer:  # on the connection that is open
            document = await answer.json()
            assert (answer.status, document["error"], document["reached"]) == (503, "at_capacity", "connections")
        async with other.post(f"{url}/echo") as answer:  # on a new one
            assert answer.status == 503
        slow.close()


async def test_close_cuts_speech_that_does_not_end() -> None:
    routes = ExampleRoutes()
    async with aiohttp.ClientSession() as client:
        async with serving(routes) as url:
            answer = await client.post(f"{url}/slow")
            await routes.started.wait()
        assert routes.cancelled.is_set()
        answer.close()
