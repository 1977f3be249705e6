"""Paths and what is named in them."""

from __future__ import annotations

import pytest
from fakes.gateway.in_process import InProcessGateway
from fakes.virtual_time import run
from voxgate.gateway.protocols.endpoint import WebSocketEndpoint, find_endpoint
from voxgate.gateway.protocols.native import NativeProtocol

PLAIN = WebSocketEndpoint("/v1/speech", lambda *_: NativeProtocol())
NAMED = WebSocketEndpoint("/v1/text-to-speech/{voice}/stream-input", lambda *_: NativeProtocol())


@pytest.mark.parametrize(
    ("path", "endpoint", "parts"),
    [
        ("/v1/speech", PLAIN, {}),
        ("/v1/text-to-speech/ada/stream-input", NAMED, {"voice": "ada"}),
        ("/v1/text-to-speech/Uncle%20Bob%2F/stream-input", NAMED, {"voice": "Uncle Bob/"}),
    ],
)
def test_matching_path_is_found(path: str, endpoint: WebSocketEndpoint, parts: dict[str, str]) -> None:
    assert find_endpoint((PLAIN, NAMED), path) == (endpoint, parts)


@pytest.mark.parametrize(
    "path",
    ["/", "/v1/speech/", "/v1/speechx", "/v1/text-to-speech//stream-input", "/v1/text-to-speech/a/b/stream-input"],
)
def test_other_path_is_not_found(path: str) -> None:
    assert find_endpoint((PLAIN, NAMED), path) is None


def test_binary_message_sends_an_error_of_the_protocol_and_closes() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            for url, told in (
                ("/v1/speech", {"type": "error", "code": "bad_message"}),
                ("/v1/text-to-speech/ada/multi-stream-input?output_format=pcm_24000", {"error": "bad_message"}),
                ("/v1/speak", {"type": "Error", "code": "BAD_MESSAGE"}),
                ("/v2/speak", {"type": "Error", "code": "MESSAGE-0000"}),
            ):
                socket = bench.dial(url)
                socket.put_raw(b"\x00")
                assert await socket.hung_up() == 1003
                assert told.items() <= socket.messages[-1].items()

    run(scene())
