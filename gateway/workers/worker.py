"""A worker: sockets, sessions, text and sound of its share of the clients; slots and voices by the speech process."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any

from ...pipeline.cloning.library import VoiceLibrary
from ...pipeline.errors import EngineLost
from ...pipeline.long_lived import spare_long_lived
from ...pipeline.shared.messages import Attach, Detach, Over
from ...pipeline.shared.synthesizer import SharedSynthesizer
from ...pipeline.speech import EngineState
from ..access.configured import configured_access
from ..access.ledger import Ledger
from ..audio import EncoderFactory
from ..dialects.registry import DIALECTS
from ..front import Front
from ..loop_lag import watch_lag
from ..metrics import Metrics
from ..metrics_merged import Counts, added
from ..observer import Observer
from ..opening import Offer
from ..settings import Settings
from ..telemetry import Telemetry, UsageLog
from .gate import DistantGate
from .link import Link, LinkClosed
from .messages import (
    Answer,
    Ask,
    Drain,
    Granted,
    Listening,
    Moved,
    Question,
    Refused,
    Reload,
    Status,
    ToWorker,
    Welcome,
)

WELCOME_S = 30.0
EXPOSITION_S = 5.0
ANNOUNCE_S = 10.0

log = logging.getLogger(__name__)


class SharedEngineNews:
    """The `EngineNews` of a worker: what it was told, as far as it holds here."""

    def __init__(self, synthesizer: SharedSynthesizer) -> None:
        self._synthesizer = synthesizer
        self.told: str | None = "the voice model is loading"

    @property
    def state(self) -> EngineState:
        return self._synthesizer.state

    @property
    def reason(self) -> str | None:
        return None if self.state.speaks else self.told or "this process is joining the voice model"


class Connected:
    """A worker's end of the link, before and after there is a worker to take its messages."""

    def __init__(self) -> None:
        self.link: Link[ToWorker] = Link(ToWorker, self._take, self._answer, self._lost)
        self.welcome: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()
        self.gone = asyncio.Event()
        self.worker: Worker | None = None
        self._early: list[ToWorker] = []

    async def open(self, sock: socket.socket) -> Welcome:
        """Speak over one end of a socket pair; returns what is said first. Raises TimeoutError, LinkClosed."""
        await self.link.open(sock)
        async with asyncio.timeout(WELCOME_S):
            return await self.welcome

    def hand_over(self, worker: Worker) -> None:
        """From here on `worker` takes what comes."""
        self.worker = worker
        early, self._early = self._early, []
        for message in early:
            worker.take(message)

    def _take(self, message: ToWorker) -> None:
        if isinstance(message, Welcome):
            self.welcome.set_result(message)
        elif self.worker is not None:
            self.worker.take(message)
        else:
            self._early.append(message)

    async def _answer(self, question: str) -> bytes:
        return b"" if self.worker is None else await self.worker.answer(question)

    def _lost(self) -> None:
        self.gone.set()
        if not self.welcome.done():
            self.welcome.set_exception(LinkClosed())


class Worker:
    """Serves from `open` until `run` returns, which it does when it has drained, or the speech process is no more.

    With a `library`, voices can be made over HTTP; `observers` are told what happens.
    """

    def __init__(
        self,
        welcome: Welcome,
        settings: Settings,
        synthesizer: SharedSynthesizer,
        encoder_factory: EncoderFactory,
        link: Link[ToWorker],
        library: VoiceLibrary | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        self._welcome, self._synthesizer, self._link, self._library = welcome, synthesizer, link, library
        self._gate = DistantGate(settings.queue_wait_ms, link.send)
        self._news = SharedEngineNews(synthesizer)
        self._metrics = Metrics(None, DIALECTS)
        ledger = Ledger.attach(welcome.ledger, welcome.owner)
        self._front = Front(
            Offer(settings, synthesizer, encoder_factory),
            self._gate,
            self._news,
            configured_access(settings, ledger, welcome.secret),
            Telemetry((self._metrics, UsageLog(), *observers)),
            self._exposition,
            library if settings.voice_uploads else None,
            ledger,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()

    async def open(self) -> None:
        """Listen beside the other workers. Raises OSError."""
        await self._front.open(self._welcome.port, beside=True)
        self._start(watch_lag(self._metrics.lag))
        if self._library is not None:
            self._start(self._library.watch())
        self._link.send(Listening())
        spare_long_lived()

    async def run(self, gone: asyncio.Event) -> None:
        """Until it has drained, or `gone` is set: then there is nothing left to speak with. Closes everything."""
        try:
            await _first(gone.wait(), self._over.wait())
        finally:
            await self._front.close()
            await self._synthesizer.close()
            for task in self._tasks:
                task.cancel()
            self._link.close()

    def take(self, message: ToWorker) -> None:
        """What the speech process says."""
        match message:
            case Granted() | Moved() | Refused():
                self._gate.take(message, asyncio.get_running_loop().time())
            case Over():
                self._synthesizer.over(message.epoch, message.steps)
            case Status():
                self._gate.told(message)
                self._news.told = message.reason
                self._synthesizer.told = EngineState(message.engine)
            case Attach():
                self._synthesizer.attach(message)
            case Detach():
                self._synthesizer.detach(message.reason)
            case Drain():
                self._start(self._drain(message.deadline_s))
            case Reload():
                self._front.reload()
            case Welcome() | Ask() | Answer():
                log.error("an unexpected message: %s", type(message).__name__)

    async def answer(self, question: str) -> bytes:
        """What the speech process asks."""
        if question == Question.COUNTS:
            return self._counts().pack()
        if question == Question.VOICES and self._library is not None:
            await self._library.refresh()
        return b""

    def _counts(self) -> Counts:
        sessions, now_s = self._front.sessions, asyncio.get_running_loop().time()
        return Counts(
            samples=added(self._metrics.registry),
            sockets=dict(Counter(session.dialect for session in sessions)),
            leads_s=[lead_s for session in sessions for lead_s in session.leads_s(now_s)],
        )

    async def _exposition(self) -> bytes:
        """Everybody's. Raises EngineLost when the speech process does not answer."""
        try:
            return await self._link.ask(Question.EXPOSITION, EXPOSITION_S)
        except (LinkClosed, TimeoutError) as error:
            raise EngineLost("the speech process does not answer") from error

    async def _drain(self, deadline_s: float) -> None:
        await self._front.drain(deadline_s)
        self._over.set()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a worker's task failed", exc_info=error)


async def announce_voices(link: Link[ToWorker]) -> None:
    """Have everybody look at the folder of voices; one that cannot does so by itself within a second or so."""
    with suppress(LinkClosed, TimeoutError):
        await link.ask(Question.VOICES, ANNOUNCE_S)


async def _first(*waits: Coroutine[Any, Any, object]) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
