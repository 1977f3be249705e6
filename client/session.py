"""A session: opening the connection, reading it, and passing each message to its utterance."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal

import websockets
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_socket
from websockets.typing import Subprotocol

from .address import ServerAddress
from .errors import ClientError, ProtocolViolation, Refused, SessionLost, Unreachable
from .events import AudioFormat, LimitsInfo, SessionInfo, read_audio, read_error, read_event, read_limits, read_session
from .utterance import Utterance

log = logging.getLogger(__name__)

DEFAULT_URL = "ws://127.0.0.1:8000"
SPEECH_PATH = "/v1/speech"
PROTOCOL_VERSION = 1
SUBPROTOCOL = Subprotocol("voxgate.v1")
"""Tells the gateway that messages and fields that this client does not know are ignored."""
MAX_MESSAGE_BYTES = 1 << 20
"""Larger messages of the gateway close the connection."""
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
"""Hosts that are never reached through the proxy named in the environment."""


@asynccontextmanager
async def connect(
    url: str = DEFAULT_URL,
    *,
    key: str | None = None,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
    open_timeout_s: float = 10,
    auth_message: bool = False,
) -> AsyncIterator[Session]:
    """Opens a session with the gateway at `url`, a ws or http address (with TLS: wss or https), with or without a path.

    `key` is an API key or a token; with `auth_message` it is sent in the first message, not in a header. `tls` is
    needed for certificates that the system does not trust:
    `ssl.create_default_context(cafile="own.pem")`. Raises Unreachable, Refused, SessionLost, ProtocolViolation, and
    ValueError for a malformed address. Leaving the block, also by cancellation, closes the connection.
    """
    address = ServerAddress.parse(url)
    path = SPEECH_PATH if address.path in ("", "/") else address.path
    in_message = key is not None and auth_message
    query = "&".join(filter(None, (address.query, "auth=message"))) if in_message else address.query
    authorization = {"Authorization": f"Bearer {key}"} if key and not in_message else {}
    try:
        socket = await open_socket(
            address.websocket_url(path, query),
            subprotocols=[SUBPROTOCOL],
            proxy=None if address.host in LOOPBACK_HOSTS else True,
            additional_headers={**(headers or {}), **authorization},
            ssl=tls if address.tls else None,
            open_timeout=open_timeout_s,
            max_size=MAX_MESSAGE_BYTES,
            compression=None,  # audio does not compress, and control messages are small
        )
    except websockets.InvalidStatus as refusal:
        raise _refused(refusal) from refusal
    except (OSError, TimeoutError, websockets.InvalidHandshake) as error:
        raise Unreachable(f"no gateway answers at {url}: {error}") from error
    async with socket:
        try:
            async with asyncio.timeout(open_timeout_s):
                if in_message:
                    await socket.send(json.dumps({"type": "auth", "key": key}))
                info = read_session(_parse_json(await socket.recv()))
        except TimeoutError:
            raise ProtocolViolation(f"no session message within {open_timeout_s:g} s") from None
        except websockets.ConnectionClosed as closed:
            raise _lost(closed) from closed
        if info.protocol != PROTOCOL_VERSION:
            raise ProtocolViolation(f"protocol version must be {PROTOCOL_VERSION}, the gateway has {info.protocol}")
        session = Session(socket, info)
        reader = asyncio.create_task(session._read(), name="voxgate session reader")
        try:
            yield session
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)


class Session:
    """One connection, made by `connect`. It carries any number of utterances at the same time.

    The events of each utterance have to be read: when one utterance has too many unread events, the session stops
    reading the connection, which holds up the others. Read, interrupt or leave an utterance.
    """

    def __init__(self, socket: ClientConnection, info: SessionInfo) -> None:
        self.info = info
        self.going_away_ms: int | None = None
        """Set when the gateway has announced its shutdown: the time that active utterances have to finish."""
        self._socket = socket
        self._utterances: dict[str, Utterance] = {}
        self._utterances_by_number: dict[int, Utterance] = {}
        self._count = 0
        self._lost: Exception | None = None
        self._limits: asyncio.Future[LimitsInfo] = asyncio.get_running_loop().create_future()
        """The next answer to `limits`."""

    @property
    def usable(self) -> bool:
        """Whether a new utterance may start: the connection is open and the gateway is not shutting down."""
        return self._lost is None and self.going_away_ms is None

    @property
    def transport(self) -> asyncio.Transport:
        """The transport of the connection, for tests that cut or stall it."""
        return self._socket.transport

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
        lead_ms: int | None = None,
        traceparent: str | None = None,
        markup: Sequence[str] | None = None,
        rate: float | None = None,
        volume: float | None = None,
        pronunciations: Mapping[str, str] | None = None,
        dictionaries: Sequence[str] | None = None,
    ) -> AsyncIterator[Utterance]:
        """Starts an utterance; text can be sent at once. The gateway chooses options left out (docs/protocol.md).

        Raises SessionLost. An option that the gateway refuses raises SpeechError where the audio is read. Leaving the
        block before the end, also by cancellation, stops the speech.
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
            "lead_ms": lead_ms,
            "traceparent": traceparent,
            "markup": None if markup is None else list(markup),
            "rate": rate,
            "volume": volume,
            "pronunciations": pronunciations
            and [{"term": term, "spoken": spoken} for term, spoken in pronunciations.items()],
            "dictionaries": None if dictionaries is None else list(dictionaries),
        }
        start: dict[str, Any] = {"type": "start", "utterance": utterance.id, "format": format.as_request()}
        self._utterances[utterance.id] = utterance
        try:
            await self._send(start | {name: value for name, value in options.items() if value is not None})
            yield utterance
        finally:
            try:
                # Another task may have interrupted the utterance, which ends this block: that task gets its answer.
                await utterance.wait_for_interrupt_answer()
            finally:
                del self._utterances[utterance.id]
                if utterance.started is not None:
                    del self._utterances_by_number[utterance.started.number]
            if not utterance.gateway_done:
                utterance.fail(ClientError("the block of the utterance was left"))
                with suppress(ClientError):
                    await self._send({"type": "interrupt", "utterance": utterance.id})

    async def set_defaults(self, *, format: AudioFormat | None = None, **options: Any) -> None:
        """Sets options of the utterances that start from now on, as `utterance` takes them; without any, removes them.

        Raises SessionLost. Invalid ones are logged, and the defaults stay as they were. `utterance` always gives its
        `format` and its `pacing`.
        """
        fields = options if format is None else options | {"format": format.as_request()}
        await self._send({"type": "defaults", "id": "defaults", **fields})

    async def limits(self, timeout_s: float = 10) -> LimitsInfo:
        """Returns the limits of the connection and of the key, and what is left. Raises SessionLost, TimeoutError."""
        answer = asyncio.shield(self._limits)
        await self._send({"type": "limits"})
        async with asyncio.timeout(timeout_s):
            return await answer

    async def interrupt(self) -> None:
        """Stops all utterances, those included whose audio is sent and not played yet; their events tell where."""
        await self._send({"type": "interrupt", "id": "interrupt-all"})

    async def _send(self, message: dict[str, Any]) -> None:
        try:
            await self._socket.send(json.dumps(message))
        except websockets.ConnectionClosed as closed:
            raise _lost(closed) from closed

    async def _read(self) -> None:
        """Reads until the connection closes, then fails every utterance with the reason."""
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
            self._limits.set_exception(error)
            self._limits.exception()  # an error that nothing waits for is not to be logged
            for utterance in self._utterances.values():
                utterance.fail(error)

    async def _dispatch(self, message: str | bytes) -> None:
        if isinstance(message, bytes):
            audio = read_audio(message)
            # Audio of an utterance whose block was left may still arrive; it is dropped.
            if (receiver := self._utterances_by_number.get(audio.number)) is not None:
                await receiver.receive(audio)
            return
        control = _parse_json(message)
        kind = control.get("type")
        if kind == "going_away":
            self.going_away_ms = control.get("deadline_ms")
        elif kind == "limits":
            limits, self._limits = self._limits, asyncio.get_running_loop().create_future()
            limits.set_result(read_limits(control))
        elif kind == "pong":
            pass
        elif "utterance" not in control:
            self._on_session_message(control)
        elif (utterance := self._utterances.get(control["utterance"])) is not None:
            if (event := read_event(control)) is None:
                return
            if kind == "started":
                self._utterances_by_number[int(control["number"])] = utterance
            await utterance.receive(event)

    def _on_session_message(self, control: dict[str, Any]) -> None:
        """Logs a message that names no utterance: an error about a single message must not end the utterances."""
        if control.get("type") == "error":
            log.error("%s", read_error(control))
        else:
            log.warning("%s", control.get("message", control))


def _parse_json(message: str | bytes) -> dict[str, Any]:
    try:
        control = json.loads(message)
    except ValueError as error:
        raise ProtocolViolation(f"message must be JSON, got {message[:60]!r}") from error
    if not isinstance(control, dict):
        raise ProtocolViolation(f"message must be a JSON object, got {message[:60]!r}")
    return control


def _lost(closed: websockets.ConnectionClosed) -> SessionLost:
    return SessionLost(closed.rcvd.code if closed.rcvd else None, closed.rcvd.reason if closed.rcvd else "")


def _refused(refusal: websockets.InvalidStatus) -> Refused:
    response = refusal.response
    try:
        body = json.loads(response.body or b"")
        code, message = str(body["error"]), str(body["message"])
        retry_after_ms, reached = body.get("retry_after_ms"), body.get("reached")
    except (ValueError, KeyError, TypeError):
        code, message, retry_after_ms, reached = "", response.reason_phrase, None, None
    seconds = response.headers.get("Retry-After", "")
    if retry_after_ms is None and seconds.isdecimal():
        retry_after_ms = 1000 * int(seconds)
    return Refused(response.status_code, message, code=code, retry_after_ms=retry_after_ms, reached=reached)
