"""A worker as the speech process holds it: the operating system's process, the link to it, and its account."""

from __future__ import annotations

import asyncio
import logging
import socket
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from ...pipeline.shared.messages import Attached, Message, Stop, Submit
from ..metrics_merged import Counts
from .desk import Desk
from .link import Link, LinkClosed
from .messages import FromWorker, Join, Leave, Listening, Question, Welcome

PULSE_S = 1.0
"""Pause between looks at whether a worker answers."""
HANG_S = 8.0
"""One that has not answered for so long is taken for dead: its listeners have heard nothing for as long."""
HELD_UP_S = 0.1
"""A timer so late tells of this process, not of the worker: what was answered meanwhile may still be unread."""
COUNTS_S = 1.0
"""A worker that does not tell its counts by then is busy; its last ones stand."""

log = logging.getLogger(__name__)


class WorkerProcess:
    """From `start` until `gone` is set. `on_attached` is called when it can speak through the engine."""

    def __init__(
        self,
        owner: int,
        desk: Callable[[Callable[[Message], None]], Desk],
        answer: Callable[[str], Awaitable[bytes]],
        on_attached: Callable[[], None],
    ) -> None:
        self.owner = owner
        self._link: Link[FromWorker] = Link(FromWorker, self._take, answer, self._lost)
        self.desk = desk(self._link.send)
        self._on_attached = on_attached
        self._process: Process | None = None
        self.listening = False
        self._settled = asyncio.Event()
        """It listens, or is gone."""
        self.let_in = False
        """It was told how to speak through the present engine..."""
        self.attached = False
        """...and can."""
        self.gone = asyncio.Event()
        self.counts = Counts([], {}, [])
        """The last it told."""

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self, command: Sequence[str], welcome: Welcome) -> None:
        """Start the process. Raises OSError."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                *command, str(theirs.fileno()), stdin=DEVNULL, pass_fds=(theirs.fileno(),)
            )
        await self._link.open(ours)
        self._link.send(welcome)

    def send(self, message: Message) -> None:
        self._link.send(message)

    async def refresh_counts(self) -> None:
        """Have `counts` be what it has counted until now; where it does not answer, they stay the last it told."""
        with suppress(LinkClosed, TimeoutError):
            self.counts = Counts.unpack(await self._link.ask(Question.COUNTS, COUNTS_S))

    async def ask(self, question: str, timeout_s: float) -> None:
        """Have it do something. It not being there, or not answering in time, is no error."""
        with suppress(LinkClosed, TimeoutError):
            await self._link.ask(question, timeout_s)

    async def came_to_listen(self, timeout_s: float) -> bool:
        """Wait until it listens; False if it ends before it does, or does not in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._settled.wait()
        return self.listening

    async def lived(self) -> str:
        """Wait until it is gone, or hangs; returns which."""
        loop = asyncio.get_running_loop()
        while not self.gone.is_set():
            due_s = loop.time() + HANG_S
            try:
                await self._link.ask(Question.PULSE, HANG_S)
            except TimeoutError:
                if loop.time() - due_s <= HELD_UP_S:
                    return "hangs"
            except LinkClosed:
                break
            with suppress(TimeoutError):
                await asyncio.wait_for(self.gone.wait(), PULSE_S)
        return "died"

    async def ended(self, timeout_s: float) -> bool:
        """Wait for the process's end; whether it came in time."""
        if self._process is None:
            return True
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._process.wait()
        return self._process.returncode is not None

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    def _take(self, message: FromWorker) -> None:
        match message:
            case Join() | Leave() | Submit() | Stop():
                self.desk.take(message, asyncio.get_running_loop().time())
            case Listening():
                self.listening = True
                self._settled.set()
            case Attached():
                self._answered(message.error)

    def _answered(self, error: str | None) -> None:
        """To being let in; the answer may be late, about an engine that is gone by now."""
        if error is not None:
            self.let_in = self.attached = False
        elif self.let_in:
            self.attached = True
            self._on_attached()

    def _lost(self) -> None:
        self.gone.set()
        self._settled.set()
