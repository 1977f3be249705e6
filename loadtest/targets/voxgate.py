"""Target `voxgate`: the native protocol, through the Python client, which checks every message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from voxgate.client import AudioFormat, Session, SpeechError, Utterance, connect
from voxgate.client import Refused as ClientRefused
from voxgate.client.events import Audio, Done, Queued, Started

from .connection import TargetOptions, TargetRefused, stall

if TYPE_CHECKING:
    from voxgate.codecs.opus import OpusDecoder


class VoxgateConnection:
    """Opus packets are decoded, so that silence can be distinguished from sound."""

    rate_hz = 24_000

    def __init__(
        self, stack: AsyncExitStack, session: Session, utterance: Utterance, decoder: OpusDecoder | None
    ) -> None:
        self.queue_ms: float | None = None
        self.server_ms: float | None = None
        self._stack, self._session, self._utterance, self._decoder = stack, session, utterance, decoder

    async def send(self, text: str) -> None:
        await self._utterance.send(text)

    async def end(self) -> None:
        await self._utterance.end()

    async def interrupt(self, played_ms: int) -> None:
        await self._utterance.interrupt(played_ms)

    async def audio(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        queued_s: float | None = None
        try:
            async for event in self._utterance.events():
                match event:
                    case Queued():
                        queued_s = queued_s or loop.time()
                    case Started():
                        self.queue_ms = 0.0 if queued_s is None else 1000 * (loop.time() - queued_s)
                    case Done():
                        self.server_ms = event.ttfa_ms
                    case Audio() if event.samples:
                        yield self._decode(event.payload)
        except SpeechError as error:
            raise TargetRefused(error.code) from error

    def _decode(self, payload: bytes) -> bytes:
        if self._decoder is None:
            return payload
        from voxgate.codecs.pcm import encode_s16le

        return encode_s16le(self._decoder.decode(payload))

    async def close(self) -> None:
        await self._stack.aclose()

    def abort(self) -> None:
        self._session.transport.abort()

    async def stall(self, seconds: float) -> None:
        await stall(self._session.transport, seconds)


async def open_connection(options: TargetOptions) -> VoxgateConnection:
    format = AudioFormat(codec="opus" if options.codec == "opus" else "pcm")
    decoder = _opus_decoder(format.sample_rate) if format.codec == "opus" else None
    async with AsyncExitStack() as opening:
        try:
            session = await opening.enter_async_context(
                connect(options.url, key=options.key or None, open_timeout_s=options.open_timeout_s, resume=False)
            )
        except ClientRefused as refusal:
            raise TargetRefused(refusal.code or f"http_{refusal.status}") from refusal
        utterance = await opening.enter_async_context(
            session.utterance(
                voice=options.voice or None,
                format=format,
                sampling=None if options.frames is None else {"max_frames": options.frames},
                pacing="playback" if options.paced else "none",
            )
        )
        return VoxgateConnection(opening.pop_all(), session, utterance, decoder)


def _opus_decoder(sample_rate_hz: int) -> OpusDecoder:
    """Imports libopus only where it is needed."""
    from voxgate.codecs.opus import OpusDecoder

    return OpusDecoder(sample_rate_hz)
