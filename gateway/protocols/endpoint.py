"""Endpoints: the paths of a protocol, how each of them is served, and the shape in which it reports errors.

Endpoints are data. `transport/handshake.py` opens WebSocket endpoints, `http/streaming.py` and `http/routes.py` make
routes of the others. `registry.py` lists all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar
from urllib.parse import unquote

from pydantic import BaseModel
from voxgate.pipeline.errors import BadMessage, VoxgateError

from ..access.rights import LIST_VOICES, SPEAK, Requirement
from ..messages.resumption import Resume
from ..session.protocol import WireProtocol
from ..session.utterance_factory import UtteranceFactory
from .one_shot import OneShotProtocol
from .reply import Reply, ReportableError, error_reply

Body = TypeVar("Body", bound=BaseModel)

_DECIMAL = re.compile(r"(?=.{1,15}$)\d+(\.\d*)?|\.\d+", re.ASCII)
_WHOLE = re.compile(r"\d{1,15}", re.ASCII)


RESUME_QUERY = "resume"
"""Query parameter of a client that can resume: `RESUME_NEW` for a new session, or the name of the session."""
RESUME_NEW = "new"
CHECKPOINTS_QUERY = "checkpoints"
"""Query parameter, 1 for a client that can resume and wants checkpoints of its utterances."""


@dataclass(frozen=True, slots=True)
class EndpointRequest:
    """The request of a client, without its body. Of a query parameter that is given twice, the last value counts."""

    path: Mapping[str, str]
    """Values of the names in the endpoint's pattern."""
    query: Mapping[str, str]
    headers: Mapping[str, str] = field(default_factory=dict)
    subprotocols: Sequence[str] = ()
    """Those that a WebSocket client offers, the client's credential included."""


@dataclass(frozen=True, slots=True)
class FirstMessageKey:
    """Reads the API key from the first message, for clients that cannot set headers."""

    find_key: Callable[[str], str | None]
    """Returns the key in a message; None when there is none. Never raises."""
    encode_error: Callable[[VoxgateError], str]
    """Returns the message that refuses the key."""
    expected: Callable[[EndpointRequest], bool] = lambda _: True
    """Whether a client without a key in its handshake sends one; otherwise it is refused at once."""
    find_resume: Callable[[str], Resume | None] | None = None
    """Returns the message that resumes a session, None for any other; None where sessions end with their socket."""

    def resumed_session(self, request: EndpointRequest) -> str | None:
        """Returns the name of the session that the client says it will resume; None for a new session."""
        session = request.query.get(RESUME_QUERY, RESUME_NEW)
        return None if self.find_resume is None or session == RESUME_NEW else session


@dataclass(frozen=True, slots=True)
class WebSocketEndpoint:
    """A WebSocket path. `open` raises VoxgateError for options that are not offered."""

    requires: ClassVar[Requirement] = SPEAK
    pattern: str
    """A path with {names}."""
    open: Callable[[EndpointRequest, UtteranceFactory], WireProtocol]
    refuse: Callable[[ReportableError], Reply] = error_reply
    first_message_key: FirstMessageKey | None = None
    subprotocol: str | None = None
    """The subprotocol that is confirmed to clients that offer it."""
    reads_when_idle: bool = True
    """Whether its clients read, and so answer pings, while nothing is spoken; some keep sockets in a pool unread."""

    def match(self, path: str) -> dict[str, str] | None:
        """The named parts of `path`, percent-decoded; None when `path` does not match the pattern."""
        found = re.fullmatch(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", self.pattern), path)
        return None if found is None else {name: unquote(part) for name, part in found.groupdict().items()}


@dataclass(frozen=True, slots=True)
class SpeechEndpoint(Generic[Body]):
    """A path that answers POST with speech. `open` raises VoxgateError for options that are not offered."""

    requires: ClassVar[Requirement] = SPEAK
    pattern: str
    body: type[Body]
    """Model of the request's JSON body."""
    open: Callable[[EndpointRequest, Body, UtteranceFactory], OneShotProtocol]
    refuse: Callable[[ReportableError], Reply] = error_reply


@dataclass(frozen=True, slots=True)
class DocumentEndpoint:
    """A path that answers GET with a document. `answer` raises VoxgateError, which `refuse` reports."""

    requires: ClassVar[Requirement] = LIST_VOICES
    pattern: str
    answer: Callable[[EndpointRequest, UtteranceFactory], Reply]
    refuse: Callable[[ReportableError], Reply] = error_reply


def find_endpoint(endpoints: Iterable[WebSocketEndpoint], path: str) -> tuple[WebSocketEndpoint, dict[str, str]] | None:
    """The endpoint that serves `path`, and the named parts of the path; None when there is none."""
    for endpoint in endpoints:
        if (parts := endpoint.match(path)) is not None:
            return endpoint, parts
    return None


def query_number(query: Mapping[str, str], name: str, default: float, *, whole: bool = False) -> float:
    """The number >= 0 that the query parameter `name` holds, `default` without it. Raises BadMessage.

    `whole` accepts digits only.
    """
    if (text := query.get(name)) is None:
        return default
    if not (_WHOLE if whole else _DECIMAL).fullmatch(text):
        kind = "a whole number" if whole else "a number"
        raise BadMessage(f"{name} must be {kind} from 0, got {text[:20]!r}", param=name)
    return float(text)
