"""A codec worker on an abstract socket that answers every job with silence."""

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
    """Listens inside `open`. While `answers` is cleared, jobs stay unanswered."""

    def __init__(self) -> None:
        self.address = f"voxgate-quiet-{uuid.uuid4().hex}"
        self.answers = asyncio.Event()
        self.answers.set()
        self.connections: list[asyncio.StreamWriter] = []
        self.urgent: list[bool] = []
        """Of each job, whether it was urgent."""

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[SilentCodecWorker]:
        server = await asyncio.start_unix_server(self._serve, f"\0{self.address}")
        try:
            yield self
        finally:
            server.close()
            self.disconnect()

    def disconnect(self) -> None:
        """Close every connection."""
        for connection in self.connections:
            connection.close()
        self.connections.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        greeting = json.dumps(asdict(CodecDescription(512, CODEBOOKS, FRAME_SAMPLES))).encode()
        writer.write(ANSWER_HEADER.pack(AnswerKind.READY, 0, 0, len(greeting)) + greeting)
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            await reader.readexactly(SHOWN_BYTES)  # the PCM buffer is zero already
            while True:
                header = await reader.readexactly(JOB_HEADER.size)
                serial, _, urgent, *_ = JOB_HEADER.unpack(header)
                self.urgent.append(bool(urgent))
                await reader.readexactly(Job.body_bytes(header, CODEBOOKS))
                await self.answers.wait()
                writer.write(ANSWER_HEADER.pack(AnswerKind.PCM, serial, 0, 0))
