"""A WebSocket path: which protocol is spoken there, and how a handshake is refused in its words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from voxgate.pipeline.errors import VoxgateError

from ..session.protocol import WireProtocol
from ..session.utterance_factory import UtteranceFactory
from .reply import Reply, error_reply


@dataclass(frozen=True, slots=True)
class EndpointRequest:
    """What a client asked for when it opened the socket. Of a query parameter given twice the last counts."""

    path: Mapping[str, str]
    """By the names in the endpoint's pattern."""
    query: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FirstMessageKey:
    """How clients that cannot set headers hand in their key: with their first message."""

    find_key: Callable[[str], str | None]
    """The key in a message; None when there is none. Never raises."""
    encode_error: Callable[[VoxgateError], str]
    """The message that refuses it."""


@dataclass(frozen=True, slots=True)
class WebSocketEndpoint:
    """`pattern` is a path with {names}; `open` raises RequestError for what is not offered."""

    pattern: str
    open: Callable[[EndpointRequest, UtteranceFactory], WireProtocol]
    refuse: Callable[[VoxgateError], Reply] = error_reply
    first_message_key: FirstMessageKey | None = None

    def match(self, path: str) -> dict[str, str] | None:
        """The named parts of `path`, decoded; None when it is another."""
        found = re.fullmatch(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", self.pattern), path)
        return None if found is None else {name: unquote(part) for name, part in found.groupdict().items()}


def find_endpoint(endpoints: Iterable[WebSocketEndpoint], path: str) -> tuple[WebSocketEndpoint, dict[str, str]] | None:
    """The endpoint at `path` and the named parts of it."""
    for endpoint in endpoints:
        if (parts := endpoint.match(path)) is not None:
            return endpoint, parts
    return None
