"""A session: opening the connection, reading it, and passing each message to its utterance."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal

from .errors import ClientError, ProtocolViolation, SessionLost, SpeechError
from .events import (
    AudioFormat,
    LimitsInfo,
    Reconnecting,
    Resumed,
    SessionInfo,
    read_audio,
    read_error,
    read_event,
    read_limits,
    read_session,
)
from .sent_utterance import SentUtterance
from .session_link import MOVE_S, SessionLink
from .utterance import Utterance
from .wire import NEW_SESSION, Connector, WebSocketWire

log = logging.getLogger(__name__)

DEFAULT_URL = "ws://127.0.0.1:8000"
PROTOCOL_VERSION = 1
SESSION_MESSAGES = ("limits", "interrupt")
"""Types of messages about no single utterance that another gateway is sent too."""


@asynccontextmanager
async def connect(
    url: str = DEFAULT_URL,
    *,
    key: str | None = None,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
    open_timeout_s: float = 10,
    auth_message: bool = False,
    resume: bool = True,
) -> AsyncIterator[Session]:
    """Opens a session with the gateway at `url`, a ws or http address (with TLS: wss or https), with or without a path.

    `key` is an API key or a token; with `auth_message` it is sent in the first message, not in a header. `tls` is
    needed for certificates that the system does not trust:
    `ssl.create_default_context(cafile="own.pem")`. With `resume`, a connection that is lost without a close is
    replaced, if the gateway offers it; utterances go on without a gap. Raises Unreachable, Refused, SessionLost,
    ProtocolViolation, and ValueError for a malformed address and for a key or headers that no request can carry.
    Leaving the block, also by cancellation, closes the connection.
    """
    connector = Connector(url, key, headers, tls, auth_message)
    wire = await connector.open(NEW_SESSION if resume else None, open_timeout_s)
    link = SessionLink(wire, connector.open, connector.key_in_message)
    try:
        info = await begin_session(link, connector, open_timeout_s)
        session = Session(link, info)
        reader = asyncio.create_task(session._read(), name="voxgate session reader")
        try:
            yield session
        finally:
            await link.flush()
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
    finally:
        await link.close()


async def begin_session(link: SessionLink, connector: Connector, timeout_s: float) -> SessionInfo:
    """Reads the `session` message and starts the link. Raises SessionLost, ProtocolViolation."""
    key = connector.key_in_message
    try:
        async with asyncio.timeout(timeout_s):
            if key is not None:
                await link.wire.send(json.dumps({"type": "auth", "key": key}))
            info = read_session(_parse_json(await link.wire.receive()))
    except TimeoutError:
        raise ProtocolViolation(f"no session message within {timeout_s:g} s") from None
    if info.protocol != PROTOCOL_VERSION:
        raise ProtocolViolation(f"protocol version must be {PROTOCOL_VERSION}, the gateway has {info.protocol}")
    link.start(info.session, info.resume, sent=int(key is not None), model=info.model)
    return info


class Session:
    """One connection, made by `connect`. It carries any number of utterances at the same time.

    The events of each utterance have to be read: when one utterance has too many unread events, the session stops
    reading the connection, which holds up the others. Read, interrupt or leave an utterance.
    """

    def __init__(self, link: SessionLink, info: SessionInfo) -> None:
        self.info = info
        self.going_away_ms: int | None = None
        """Set when the gateway has announced its shutdown: the time that active utterances have to finish."""
        self._link = link
        link.expecting = lambda: any(not utterance.finished for utterance in self._utterances.values())
        link.on_change = self._on_connection_change
        link.on_moved = self._on_moved
        self._utterances: dict[str, Utterance] = {}
        self._utterances_by_number: dict[int, Utterance] = {}
        self._count = 0
        self._defaults: dict[str, Any] = {}
        self._lost: Exception | None = None
        self._limits: asyncio.Future[LimitsInfo] = asyncio.get_running_loop().create_future()
        """The next answer to `limits`."""

    @property
    def usable(self) -> bool:
        """Whether a new utterance may start: the connection is open and the gateway is not shutting down."""
        return self._lost is None and self.going_away_ms is None

    @property
    def utterances(self) -> int:
        """How many utterances are open."""
        return len(self._utterances)

    @property
    def transport(self) -> asyncio.Transport:
        """The transport of the connection, for tests that cut or stall it."""
        assert isinstance(self._link.wire, WebSocketWire)
        return self._link.wire.socket.transport

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
        visemes: bool = False,
        normalise: bool | None = None,
        pacing: Literal["playback", "none"] = "playback",
        lead_ms: int | None = None,
        starving_ms: int | None = None,
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
        options = {
            "voice": voice,
            "language": language,
            "instructions": instructions,
            "sampling": sampling,
            "seed": seed,
            "layout": layout,
            "trim_silence": trim_silence,
            "words": words or None,
            "visemes": visemes or None,
            "normalise": normalise,
            "pacing": pacing,
            "lead_ms": lead_ms,
            "starving_ms": starving_ms,
            "traceparent": traceparent,
            "markup": None if markup is None else list(markup),
            "rate": rate,
            "volume": volume,
            "pronunciations": pronunciations
            and [{"term": term, "spoken": spoken} for term, spoken in pronunciations.items()],
            "dictionaries": None if dictionaries is None else list(dictionaries),
        }
        start: dict[str, Any] = {"type": "start", "utterance": f"u{self._count}", "format": format.as_request()}
        start |= {name: value for name, value in options.items() if value is not None}
        utterance = Utterance(start["utterance"], format, self._send, SentUtterance(self._defaults | start))
        await self._send(start)
        self._utterances[utterance.id] = utterance  # not earlier: another gateway that takes over is sent it once
        try:
            yield utterance
        finally:
            try:
                # Another task may have interrupted the utterance, which ends this block: that task gets its answer.
                await utterance.wait_for_interrupt_answer()
            finally:
                del self._utterances[utterance.id]
                if utterance.started is not None and self._receiver(utterance.started.number) is utterance:
                    del self._utterances_by_number[utterance.started.number]
            utterance.leave()
            if not utterance.gateway_done:
                with suppress(ClientError):
                    await self._send({"type": "interrupt", "utterance": utterance.id})

    async def set_defaults(self, *, format: AudioFormat | None = None, **options: Any) -> None:
        """Sets options of the utterances that start from now on, as `utterance` takes them; without any, removes them.

        Raises SessionLost. Invalid ones are logged, and the defaults stay as they were. `utterance` always gives its
        `format` and its `pacing`.
        """
        fields = options if format is None else options | {"format": format.as_request()}
        self._defaults = fields
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
        await self._link.send(message)

    def _on_connection_change(self, connected: bool) -> None:
        for utterance in self._utterances.values():
            utterance.notify(Resumed() if connected else Reconnecting())

    def _on_moved(self, kept: list[str]) -> Iterator[dict[str, Any]]:
        """Another gateway takes over: yields what it needs to go on with every utterance."""
        self.going_away_ms = None
        self._utterances_by_number.clear()
        deadline_s = asyncio.get_running_loop().time() + MOVE_S
        for utterance in self._utterances.values():
            if not utterance.finished:
                utterance.notify(Resumed(moved=True))
                yield from utterance.restore(deadline_s)
        if self._defaults:
            yield {"type": "defaults", "id": "defaults", **self._defaults}
        for message in map(json.loads, kept):
            if message["type"] in SESSION_MESSAGES and "utterance" not in message:
                yield message

    async def _read(self) -> None:
        """Reads until the connection is closed or cannot be replaced, then fails every utterance with the reason."""
        error: Exception = SessionLost(None, "closed by this side")
        try:
            while True:
                await self._dispatch(await self._link.receive())
        except SessionLost as lost:
            error = SessionLost(1000, "closed by the gateway") if lost.code == 1000 else lost
        except ProtocolViolation as violation:
            error = violation
            self._link.end(violation)
            await self._link.close(1002, str(violation))
        finally:
            self._lost = error
            self._link.end(error)
            self._limits.set_exception(error)
            self._limits.exception()  # an error that nothing waits for is not to be logged
            for utterance in self._utterances.values():
                utterance.fail(error)

    async def _dispatch(self, message: str | bytes) -> None:
        if isinstance(message, bytes):
            audio = read_audio(message)
            # Audio of an utterance whose block was left may still arrive; it is dropped.
            if (receiver := self._receiver(audio.number)) is not None:
                await receiver.receive(audio)
            return
        control = _parse_json(message)
        kind = control.get("type")
        if kind == "going_away":
            self.going_away_ms = control.get("deadline_ms")
            if control.get("restore_elsewhere") and all(each.restorable for each in self._utterances.values()):
                self._link.leave()
        elif kind == "limits":
            limits, self._limits = self._limits, asyncio.get_running_loop().create_future()
            limits.set_result(read_limits(control))
        elif kind == "pong":
            pass
        elif "utterance" not in control:
            self._on_session_message(control)
        elif (utterance := self._utterances.get(control["utterance"])) is not None:
            if kind == "checkpoint":
                utterance.sent.parts.append(str(control["part"]))
                return
            if (event := read_event(control)) is None:
                return
            if isinstance(event, SpeechError) and self._link.movable and utterance.leave_out(event):
                self._link.leave()
                return
            if kind == "started":
                self._utterances_by_number[int(control["number"])] = utterance
            await utterance.receive(event)

    def _receiver(self, number: int) -> Utterance | None:
        return self._utterances_by_number.get(number)

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
