"""This project's own protocol, through its own client: a gap in the numbering is a failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

from voxgate.client import AudioFormat, Session, SpeechError, Utterance, connect
from voxgate.client import Refused as ClientRefused
from voxgate.client.events import Audio, Done, Queued, Started
from voxgate.codecs.opus import OpusDecoder
from voxgate.codecs.pcm import encode_s16le

from .connection import TargetOptions, TargetRefused, stall


class VoxgateConnection:
    """With codec "opus" the packets are decoded, so that silence can be told from sound."""

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
                        yield (
                            event.payload
                            if self._decoder is None
                            else encode_s16le(self._decoder.decode(event.payload))
                        )
        except SpeechError as error:
            raise TargetRefused(error.code) from error

    async def close(self) -> None:
        await self._stack.aclose()

    def abort(self) -> None:
        self._session.transport.abort()

    async def stall(self, seconds: float) -> None:
        await stall(self._session.transport, seconds)


async def open_connection(options: TargetOptions) -> VoxgateConnection:
    headers = {"Authorization": f"Bearer {options.key}"} if options.key else None
    opus = options.codec == "opus"
    async with AsyncExitStack() as opening:
        try:
            session = await opening.enter_async_context(
                connect(options.url, headers=headers, open_timeout_s=options.open_timeout_s)
            )
        except ClientRefused as refusal:
            raise TargetRefused(refusal.code or f"http_{refusal.status}") from refusal
        wanted = AudioFormat(codec="opus" if opus else "pcm")
        utterance = await opening.enter_async_context(
            session.utterance(
                voice=options.voice or None,
                format=wanted,
                sampling=None if options.frames is None else {"max_frames": options.frames},
                pacing="playback" if options.paced else "none",
            )
        )
        return VoxgateConnection(
            opening.pop_all(), session, utterance, OpusDecoder(wanted.sample_rate) if opus else None
        )
