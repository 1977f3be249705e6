"""A codec at an abstract socket that greets whoever comes and answers every job with silence, as far as it is let."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import asdict

from voxgate.codecs.pcm import FRAME_SAMPLES
from voxgate.pipeline.ipc.codec_wire import ANSWER_HEADER, JOB_HEADER, AnswerKind, CodecDescription, Job

CODEBOOKS = 16
SHOWN_BYTES = 8


class SilentCodecWorker:
    """Between `open` and its end. `answers`: cleared, it leaves jobs unanswered."""

    def __init__(self) -> None:
        self.address = f"voxgate-quiet-{uuid.uuid4().hex}"
        self.answers = asyncio.Event()
        self.answers.set()
        self.guests: list[asyncio.StreamWriter] = []

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[SilentCodecWorker]:
        server = await asyncio.start_unix_server(self._serve, f"\0{self.address}")
        try:
            yield self
        finally:
            server.close()
            self.cut()

    def cut(self) -> None:
        """Hang up on everybody."""
        for guest in self.guests:
            guest.close()
        self.guests.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.guests.append(writer)
        greeting = json.dumps(asdict(CodecDescription(512, CODEBOOKS, FRAME_SAMPLES))).encode()
        writer.write(ANSWER_HEADER.pack(AnswerKind.READY, 0, 0, len(greeting)) + greeting)
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            await reader.readexactly(SHOWN_BYTES)  # memory that is silent as it is
            while True:
                header = await reader.readexactly(JOB_HEADER.size)
                serial, *_ = JOB_HEADER.unpack(header)
                await reader.readexactly(Job.body_bytes(header, CODEBOOKS))
                await self.answers.wait()
                writer.write(ANSWER_HEADER.pack(AnswerKind.PCM, serial, 0, 0))
