"""A gateway with real worker processes and a tone engine in this process."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from fakes.waiting import DEADLINE_S, until
from voxgate.client import AudioFormat, Done, connect
from voxgate.client.session import Session
from voxgate.gateway.settings import Settings
from voxgate.gateway.workers.speech_process import SpeechProcess

from ..pipeline.tone_engine import ToneEngine

DEMO = Path(str(files("voxgate.voices"))) / "demo"
COMMAND = [sys.executable, "-m", "voxgate.cli.serve_worker"]
WORKERS = 2
UNPACED: dict[str, Any] = {"pacing": "none", "format": AudioFormat(codec="pcm")}


@contextlib.asynccontextmanager
async def gateway(
    engine: ToneEngine | None = None,
    *,
    folder: Path = DEMO,
    before: Callable[[SpeechProcess], None] = lambda _: None,
    **options: Any,
) -> AsyncIterator[SpeechProcess]:
    """Runs a gateway; at the end checks that no process and no slot is left. `before` is called ahead of the engine."""
    engine = engine or ToneEngine(folder)
    settings = Settings(port=0, workers=WORKERS, log_level="warning", **options)
    served = SpeechProcess(settings, engine, folder, WORKERS, COMMAND)
    keeping: asyncio.Task[None] | None = None
    try:
        await served.open()
        before(served)
        keeping = asyncio.create_task(served.run_engine())
        await ready(served)
        yield served
    finally:
        pids = served.pids
        if keeping is not None:
            keeping.cancel()
        await served.close()
        assert not any(psutil.pid_exists(pid) for pid in pids)
        assert engine.lent == 0


async def ready(served: SpeechProcess) -> None:
    """Wait until the engine speaks and every worker is attached to it."""
    await until(lambda: served.state.speaks)
    await until(lambda: all(worker.attached for worker in served._workers.values()))


def url(served: SpeechProcess) -> str:
    return f"http://127.0.0.1:{served.port}"


async def say(session: Session, text: str, **options: Any) -> tuple[np.ndarray, Done]:
    """The received samples, int16, and the last message."""
    heard = bytearray()
    async with asyncio.timeout(DEADLINE_S), session.utterance(**(UNPACED | options)) as utterance:
        await utterance.send(text)
        await utterance.end()
        async for audio in utterance.audio():
            heard += audio.payload
        assert utterance.done is not None
        return np.frombuffer(heard, np.int16), utterance.done


async def connections(
    served: SpeechProcess, stack: contextlib.AsyncExitStack, count: int, *, resume: bool = True
) -> dict[str, list[Session]]:
    """At least `count` sessions, by the worker that took them; every worker has one.

    With `resume`, they go on at another worker when theirs is lost.
    """
    by_worker: dict[str, list[Session]] = {}
    for opened in range(count + 100):
        if opened >= count and len(by_worker) == WORKERS:
            return by_worker
        session = await stack.enter_async_context(connect(url(served), resume=resume))
        by_worker.setdefault(session.info.session.partition("-")[0], []).append(session)
    raise AssertionError("a worker accepts no connections")


async def every_worker_speaks(served: SpeechProcess) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for session, *_ in (await connections(served, stack, WORKERS)).values():
            assert (await say(session, "Here again."))[1].reason == "end"


def serves(pid: int, session: Session) -> bool:
    """Whether the process holds the other end of the session's socket."""
    port = session.transport.get_extra_info("sockname")[1]
    return any(each.raddr and each.raddr.port == port for each in psutil.Process(pid).net_connections("tcp"))
