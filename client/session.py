"""The socket: opening it, reading it, and giving each message to its utterance."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

import websockets
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_socket

from .errors import ClientError, ProtocolViolation, Refused, SessionLost, Unreachable
from .events import AudioFormat, SessionInfo, read_audio, read_error, read_event, read_session
from .utterance import Utterance

log = logging.getLogger(__name__)

DEFAULT_URL = "ws://127.0.0.1:8000"
SPEECH_PATH = "/v1/speech"
MAX_MESSAGE_BYTES = 1 << 20
PROTOCOL = 1
LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Never reached through the proxy that the environment may name."""


class Session:
    """One socket. Utterances on it are independent of each other; each is listened to on its own.

    An utterance whose listener stops reading for long stops the whole socket: read, interrupt or leave it.
    """

    def __init__(self, socket: ClientConnection, info: SessionInfo) -> None:
        self.info = info
        self.going_away_ms: int | None = None
        """Set when the gateway announced its shutdown: utterances under way are finished until then."""
        self._socket = socket
        self._utterances: dict[str, Utterance] = {}
        self._numbers: dict[int, Utterance] = {}
        self._count = 0
        self._lost: Exception | None = None

    @property
    def usable(self) -> bool:
        """Whether a new utterance may be begun: the socket is open and the gateway is not shutting down."""
        return self._lost is None and self.going_away_ms is None

    @asynccontextmanager
    async def utterance(
        self,
        *,
        voice: str | None = None,
        language: str | None = None,
        instructions: str | None = None,
        format: AudioFormat | None = None,
        sampling: dict[str, float] | None = None,
        seed: int | None = None,
        layout: Literal["streaming", "non_streaming"] | None = None,
        trim_silence: bool | None = None,
        words: bool = False,
        normalise: bool | None = None,
        pacing: Literal["playback", "none"] = "playback",
    ) -> AsyncIterator[Utterance]:
        """Begin an utterance; text may follow at once. What is left out is the gateway's own choice (docs/protocol.md).

        Leaving the block before its end, by cancellation too, stops the speech. Raises SessionLost; what the gateway
        finds wrong with an option is raised where the audio is awaited.
        """
        self._count += 1
        format = format or AudioFormat()
        utterance = Utterance(f"u{self._count}", format, self._send)
        options = {
            "voice": voice,
            "language": language,
            "instructions": instructions,
            "sampling": sampling,
            "seed": seed,
            "layout": layout,
            "trim_silence": trim_silence,
            "words": words or None,
            "normalise": normalise,
            "pacing": pacing,
        }
        start: dict[str, Any] = {"type": "start", "utterance": utterance.id, "format": format.as_request()}
        self._utterances[utterance.id] = utterance
        try:
            await self._send(start | {name: value for name, value in options.items() if value is not None})
            yield utterance
        finally:
            try:
                # The listener may leave because another task interrupts: that one is still to have its answer.
                await utterance.answered()
            finally:
                del self._utterances[utterance.id]
                if utterance.started is not None:
                    del self._numbers[utterance.started.number]
            if not utterance.over:
                utterance.fail(ClientError("the utterance was left"))
                with suppress(ClientError):
                    await self._send({"type": "interrupt", "utterance": utterance.id})

    @property
    def transport(self) -> asyncio.Transport:
        """The connection beneath, for whoever wants to cut it without a word or to stall it."""
        return self._socket.transport

    async def _send(self, message: dict[str, Any]) -> None:
        try:
            await self._socket.send(json.dumps(message))
        except websockets.ConnectionClosed as closed:
            raise _lost(closed) from closed

    async def _read(self) -> None:
        """Read until the socket closes, then end every utterance with the reason."""
        error: Exception = SessionLost(None, "closed by this side")
        try:
            async for message in self._socket:
                await self._dispatch(message)
            error = SessionLost(1000, "closed by the gateway")
        except websockets.ConnectionClosed as closed:
            error = _lost(closed)
        except ProtocolViolation as violation:
            error = violation
            await self._socket.close(1002, str(violation)[:120])
        finally:
            self._lost = error
            for utterance in self._utterances.values():
                utterance.fail(error)

    async def _dispatch(self, message: str | bytes) -> None:
        if isinstance(message, bytes):
            audio = read_audio(message)
            # An utterance that was left may still have audio on the way.
            if (listener := self._numbers.get(audio.number)) is not None:
                await listener.receive(audio)
            return
        control = _decoded(message)
        type = control.get("type")
        if type == "going_away":
            self.going_away_ms = control.get("deadline_ms")
        elif type == "pong":
            pass
        elif "utterance" not in control:
            self._about_the_session(control)
        elif (utterance := self._utterances.get(control["utterance"])) is not None:
            event = read_event(control)
            if type == "started":
                self._numbers[int(control["number"])] = utterance
            await utterance.receive(event)

    def _about_the_session(self, control: dict[str, Any]) -> None:
        """An error that names no utterance could be about any of them."""
        if control.get("type") == "error":
            error = read_error(control)
            log.error("%s", error)
            for utterance in self._utterances.values():
                utterance.fail(error)
        else:
            log.warning("%s", control.get("message", control))


@asynccontextmanager
async def connect(
    url: str = DEFAULT_URL,
    *,
    key: str | None = None,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
    open_timeout_s: float = 10,
) -> AsyncIterator[Session]:
    """Open a session; `url` is the gateway's address, ws or http (with TLS: wss or https), with or without the path.

    `key` is an API key or a token. `tls` is for certificates that the system does not trust:
    `ssl.create_default_context(cafile="own.pem")`. Raises Unreachable, Refused (`retry_after_ms`), ProtocolViolation.
    Leaving the block closes the socket.
    """
    address = speech_url(url)
    try:
        socket = await open_socket(
            address,
            proxy=None if urlsplit(address).hostname in LOOPBACK else True,
            additional_headers={**(headers or {}), **({"Authorization": f"Bearer {key}"} if key else {})},
            ssl=tls if urlsplit(address).scheme == "wss" else None,
            open_timeout=open_timeout_s,
            max_size=MAX_MESSAGE_BYTES,
            compression=None,  # audio does not shrink, and control messages are tiny
        )
    except websockets.InvalidStatus as refusal:
        raise _refused(refusal) from refusal
    except (OSError, TimeoutError, websockets.InvalidHandshake) as error:
        raise Unreachable(f"no gateway answers at {url}: {error}") from error
    async with socket:
        try:
            async with asyncio.timeout(open_timeout_s):
                info = read_session(_decoded(await socket.recv()))
        except TimeoutError:
            raise ProtocolViolation("no session message came") from None
        except websockets.ConnectionClosed as closed:
            raise _lost(closed) from closed
        if info.protocol != PROTOCOL:
            raise ProtocolViolation(f"the gateway speaks version {info.protocol}, this client {PROTOCOL}")
        session = Session(socket, info)
        reader = asyncio.create_task(session._read(), name="voxgate session reader")
        try:
            yield session
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)


def speech_url(url: str) -> str:
    """The WebSocket address for what people write: `host:8000`, `http://host:8000`, `ws://host/v1/speech`."""
    scheme, host, path, query, _ = urlsplit(url if "://" in url else f"ws://{url}")
    scheme = {"http": "ws", "https": "wss"}.get(scheme, scheme)
    return urlunsplit((scheme, host, SPEECH_PATH if path in ("", "/") else path, query, ""))


def _decoded(message: str | bytes) -> dict[str, Any]:
    try:
        control = json.loads(message)
    except ValueError as error:
        raise ProtocolViolation(f"not JSON: {message[:60]!r}") from error
    if not isinstance(control, dict):
        raise ProtocolViolation(f"not an object: {message[:60]!r}")
    return control


def _lost(closed: websockets.ConnectionClosed) -> SessionLost:
    return SessionLost(closed.rcvd.code if closed.rcvd else None, closed.rcvd.reason if closed.rcvd else "")


def _refused(refusal: websockets.InvalidStatus) -> Refused:
    response = refusal.response
    try:
        body = json.loads(response.body or b"")
        code, message, retry_after_ms = str(body["error"]), str(body["message"]), body.get("retry_after_ms")
    except (ValueError, KeyError, TypeError):
        code, message, retry_after_ms = "", response.reason_phrase, None
    seconds = response.headers.get("Retry-After", "")
    if retry_after_ms is None and seconds.isdecimal():
        retry_after_ms = 1000 * int(seconds)
    return Refused(response.status_code, message, code=code, retry_after_ms=retry_after_ms)
