"""A gateway for tests of clients: it speaks docs/protocol.md over a real socket, one tone of 80 ms per character.

It answers at once. `paced` sends audio at the pace of playback, for pages that play it; `hold_after` stops an utterance
after some characters until `release`, for tests that act while an utterance speaks.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import re
import ssl
import struct
from array import array
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

OPUS_PRE_SKIP = 156
"""Samples at 24 kHz that the encoder adds in front."""


def tone(index: int, samples: int, rate: int) -> array[int]:
    """int16 [samples]: a soft note; the notes of consecutive characters differ."""
    frequency = 220 * 2 ** ([0, 4, 7, 12, 7, 4][index % 6] / 12)
    fade = samples // 4
    return array(
        "h",
        (
            int(6000 * min(1, i / fade, (samples - i) / fade) * math.sin(2 * math.pi * frequency * i / rate))
            for i in range(samples)
        ),
    )


class ToneEncoder:
    """Encodes tones: PCM unchanged, Opus as one packet per message."""

    def __init__(self, codec: str, rate: int) -> None:
        self._encoder = None
        self.pre_skip = 0
        if codec == "opus":
            import opuslib

            self._encoder = opuslib.Encoder(rate, 1, opuslib.APPLICATION_AUDIO)
            self.pre_skip = OPUS_PRE_SKIP * rate // 24_000

    def encode(self, pcm: array[int]) -> bytes:
        return self._encoder.encode(pcm.tobytes(), len(pcm)) if self._encoder else pcm.tobytes()


HEADER = struct.Struct("<BBHIIQ")
PACKET_MS = 80
SEND_AHEAD_S = 0.4
"""Lead of a paced utterance over playback."""
WEB = Path(__file__).parents[3] / "web"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
VOICES = {
    "default": "hum",
    "voices": [
        {
            "name": "hum",
            "languages": ["auto", "english"],
            "description": "A steady hum",
            "instructions": False,
            "visemes": True,
        },
        {
            "name": "whistle",
            "display": "A whistle",
            "languages": ["auto", "english"],
            "description": "An octave up",
            "instructions": True,
            "visemes": False,
        },
    ],
}


def viseme(character: str) -> str:
    """The mouth shape of a character."""
    return {"a": "aa", "m": "PP", "o": "O"}.get(character, "sil")


@dataclass
class FakeUtterance:
    """State of one utterance. `spoken`: characters whose audio was sent; `arrived`: set when text or the end came."""

    id: str
    number: int
    options: dict[str, Any]
    text: str = ""
    ended: bool = False
    seq: int = 0
    pts: int = 0
    played_samples: int = 0
    spoken: int = 0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def rate(self) -> int:
        return int(self.options["format"]["sample_rate"])

    @property
    def packet_samples(self) -> int:
        return self.rate * PACKET_MS // 1000


class FakeGateway:
    """Tests set its behaviour before a client connects, and read afterwards what it received."""

    def __init__(self, *, paced: bool = False) -> None:
        self.url = ""
        self.paced = paced
        self.hold_after: int | None = None
        """Characters of an utterance after which it waits for `release`."""
        self.ready = True
        self.max_characters: int | None = None
        """Characters of an utterance beyond which text is refused."""
        self.missing_samples = 0
        """Samples that `done` counts and that were not sent."""
        self.queue: list[int] = []
        """Positions to report before an utterance starts."""
        self.refuse: Callable[[], Response] | None = None
        self.greeting: dict[str, Any] | None = None
        self.script: dict[str, list[Any]] = {}
        """What to send instead of speech, by text: dict, bytes or str for a message, int for a close code."""
        self.voices = VOICES
        self.page_headers: dict[str, str] = {}
        """Headers of the page and its files."""
        self.headers: Mapping[str, str] = {}
        """Headers of the last handshake."""
        self.received: list[dict[str, Any]] = []
        self.utterances: dict[str, FakeUtterance] = {}
        self._numbers = itertools.count(1)
        self._released = asyncio.Event()

    def release(self) -> None:
        """Let utterances that are held go on."""
        self._released.set()

    # HTTP

    def answer_http(self, connection: ServerConnection, request: Request) -> Response | None:
        path = request.path.partition("?")[0]
        if path == "/v1/speech":
            self.headers = request.headers
            return self.refuse() if self.refuse else None
        if path == "/readyz":
            status = HTTPStatus.OK if self.ready else HTTPStatus.SERVICE_UNAVAILABLE
            return respond(status, {"ready": self.ready, "reason": "" if self.ready else "the voice model is loading"})
        if path == "/v1/voices":
            return respond(HTTPStatus.OK, self.voices)
        if path == "/v1/limits":
            return respond(HTTPStatus.OK, {"accepting": True})
        name = "index.html" if path == "/" else path.lstrip("/")
        file = WEB / ("client" if name.startswith("voxgate") else ".") / name
        if "/" not in name and file.suffix in TYPES and file.is_file():
            return respond(HTTPStatus.OK, file.read_bytes(), TYPES[file.suffix], self.page_headers)
        return connection.respond(HTTPStatus.NOT_FOUND, "nothing here\n")

    # The socket

    async def session(self, connection: ServerConnection) -> None:
        await connection.send(json.dumps(self.greeting or GREETING))
        async with asyncio.TaskGroup() as speaking:
            tasks: dict[str, asyncio.Task[None]] = {}
            here: dict[str, FakeUtterance] = {}
            async for raw in connection:
                message = json.loads(raw)
                self.received.append(message)
                id = message.get("utterance", "")
                # A test that clears `utterances` makes the gateway forget them.
                utterance = here.get(id) if id in self.utterances else None
                match message["type"]:
                    case "ping":
                        await connection.send(json.dumps({"type": "pong", "id": message.get("id")}))
                    case "start":
                        options = {"format": {"codec": "opus", "sample_rate": 24_000}} | message
                        utterance = FakeUtterance(id, next(self._numbers), options)
                        here[id] = self.utterances[id] = utterance
                        tasks[id] = speaking.create_task(self._speak(connection, utterance))
                    case "interrupt" if utterance:
                        tasks[id].cancel()
                        played_ms = message.get("played_ms", utterance.spoken * PACKET_MS)
                        heard = min(played_ms // PACKET_MS, len(utterance.text))
                        await connection.send(
                            json.dumps(
                                {
                                    "type": "interrupted",
                                    "utterance": id,
                                    "played_ms": played_ms,
                                    "text_spoken": utterance.text[:heard],
                                    "text_remaining": utterance.text[heard:],
                                }
                            )
                        )
                    case "interrupt":
                        await connection.send(json.dumps(error_message("unknown_utterance", id)))
                    case "text" if utterance and self._too_long(utterance, message["text"]):
                        refusal = error_message("text_too_long", id)
                        await connection.send(json.dumps(refusal | {"id": message.get("id")}))
                    case "text" if utterance:
                        utterance.text += message["text"]
                        utterance.arrived.set()
                    case "end" if utterance:
                        utterance.ended = True
                        utterance.arrived.set()
                    case "ack" if utterance:
                        utterance.played_samples = message["played_samples"]
            for task in tasks.values():
                task.cancel()

    def _too_long(self, utterance: FakeUtterance, text: str) -> bool:
        return self.max_characters is not None and len(utterance.text) + len(text) > self.max_characters

    async def _speak(self, connection: ServerConnection, utterance: FakeUtterance) -> None:
        id = utterance.id
        await utterance.arrived.wait()
        if (script := self.script.get(utterance.text)) is not None:
            for item in script:
                if isinstance(item, int):
                    await connection.close(item)
                else:
                    verbatim = isinstance(item, (bytes, str))
                    await connection.send(item if verbatim else json.dumps({"utterance": id} | item))
            return
        for position in self.queue:
            message = {"type": "queued", "utterance": id, "position": position, "eta_ms": 400 * position}
            await connection.send(json.dumps(message))
        encoder = ToneEncoder(utterance.options["format"]["codec"], utterance.rate)
        await connection.send(json.dumps(started_message(utterance, encoder.pre_skip)))
        began = asyncio.get_running_loop().time()
        async for index in self._characters(utterance):
            if utterance.options.get("words"):
                await self._send_word(connection, utterance, index)
            if utterance.options.get("visemes"):
                shape = {"viseme": viseme(utterance.text[index]), "start_ms": index * PACKET_MS}
                await connection.send(json.dumps({"type": "visemes", "utterance": utterance.id, "visemes": [shape]}))
            pcm = tone(index, utterance.packet_samples, utterance.rate)
            await self._send_audio(connection, utterance, encoder.encode(pcm), len(pcm))
            if self.paced:
                lead_s = utterance.pts / utterance.rate - (asyncio.get_running_loop().time() - began)
                await asyncio.sleep(max(0, lead_s - SEND_AHEAD_S))
            if index + 1 == self.hold_after:
                await self._released.wait()
        # The encoder keeps its look-ahead; one more packet flushes the last samples.
        tail = encoder.encode(array("h", [0] * utterance.packet_samples)) if encoder.pre_skip else b""
        samples = utterance.pts
        await self._send_audio(connection, utterance, tail, utterance.packet_samples if tail else 0, last=True)
        await connection.send(json.dumps(done_message(utterance, samples + self.missing_samples)))

    async def _characters(self, utterance: FakeUtterance) -> AsyncIterator[int]:
        while True:
            while utterance.spoken < len(utterance.text):
                utterance.spoken += 1
                yield utterance.spoken - 1
            if utterance.ended:
                return
            utterance.arrived.clear()
            await utterance.arrived.wait()

    async def _send_word(self, connection: ServerConnection, utterance: FakeUtterance, index: int) -> None:
        if index and not utterance.text[index - 1].isspace():
            return
        if (match := re.match(r"\S+", utterance.text[index:])) is not None:
            end = index + match.end()
            word = {"text": match[0], "start": index, "end": end}
            word |= {"start_ms": index * PACKET_MS, "end_ms": end * PACKET_MS}
            message = {"type": "words", "utterance": utterance.id, "words": [word], "approximate": True}
            await connection.send(json.dumps(message))

    async def _send_audio(
        self,
        connection: ServerConnection,
        utterance: FakeUtterance,
        payload: bytes,
        samples: int,
        last: bool = False,
    ) -> None:
        flags = (utterance.seq == 0) | 2 * last
        header = HEADER.pack(1, flags, samples, utterance.number, utterance.seq, utterance.pts)
        utterance.seq += 1
        utterance.pts += samples
        await connection.send(header + payload)


def greeting_with(**limits: int) -> dict[str, Any]:
    """The first message of a gateway that has these limits too."""
    return {**GREETING, "limits": {**GREETING["limits"], **limits}}


GREETING: dict[str, Any] = {
    "type": "session",
    "protocol": 1,
    "session": "s1",
    "voices": "/v1/voices",
    "default_voice": "hum",
    "formats": ["pcm", "opus"],
    "limits": {"lead_ms": 400, "utterances_per_session": 8},
}


def started_message(utterance: FakeUtterance, pre_skip: int) -> dict[str, Any]:
    return {
        "type": "started",
        "utterance": utterance.id,
        "number": utterance.number,
        "voice": utterance.options.get("voice", "hum"),
        "language": "auto",
        "seed": utterance.options.get("seed", 7),
        "format": {
            "bitrate": 32_000,
            "packet_ms": PACKET_MS,
            **utterance.options["format"],
            "pre_skip": pre_skip,
        },
        "packet_samples": utterance.packet_samples,
    }


def done_message(utterance: FakeUtterance, samples: int) -> dict[str, Any]:
    return {
        "type": "done",
        "utterance": utterance.id,
        "reason": "end",
        "characters": len(utterance.text),
        "frames": utterance.spoken,
        "samples": samples,
        "audio_ms": utterance.spoken * PACKET_MS,
        "ttfa_ms": 1,
    }


def error_message(code: str, id: str | None = None, **more: Any) -> dict[str, Any]:
    message = {"type": "error", "code": code, "message": f"about {code}", "retryable": False, **more}
    return message if id is None else message | {"utterance": id}


def respond(
    status: HTTPStatus, body: object, type: str = "application/json", headers: dict[str, str] | None = None
) -> Response:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = {"Content-Type": type, "Content-Length": str(len(raw)), "Connection": "close", **(headers or {})}
    return Response(status.value, status.phrase, Headers(fields), raw)


@asynccontextmanager
async def fake_gateway(
    *, paced: bool = False, port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[FakeGateway]:
    gateway = FakeGateway(paced=paced)
    async with serve(
        gateway.session,
        "127.0.0.1",
        port,
        ssl=tls,
        process_request=gateway.answer_http,
        # A browser closes a socket whose response confirms none of the subprotocols that it named.
        select_subprotocol=lambda _, offered: next((name for name in offered if name == "voxgate.v1"), None),
    ) as server:
        gateway.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield gateway
