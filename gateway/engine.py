"""Keeps the voice model alive: loads it, watches it, builds it anew after a loss."""
# TODO-DOC How long to wait before a lost engine is started again.

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from voxgate.pipeline.errors import EngineError
from voxgate.pipeline.interface import EngineState, Synthesizer

_LOOK_S = 0.25

log = logging.getLogger(__name__)


class EngineStatus(Protocol):
    """How the voice model is, and why."""

    @property
    def state(self) -> EngineState: ...

    @property
    def reason(self) -> str | None:
        """Why speech cannot be started; None when it can."""


class EngineSupervisor:
    """`on_ready` is called when speech can be started, the first time or again; `on_poll` again and again while so;
    `on_lost` when it was lost."""

    def __init__(
        self,
        synthesizer: Synthesizer,
        on_ready: Callable[[], None],
        on_poll: Callable[[], None] = lambda: None,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self._synthesizer = synthesizer
        self._on_ready, self._on_poll, self._on_lost = on_ready, on_poll, on_lost
        self._reason = "the voice model is loading"

    @property
    def state(self) -> EngineState:
        return self._synthesizer.state

    @property
    def reason(self) -> str | None:
        """Why speech cannot be started; None when it can."""
        return None if self.state.speaks else self._reason

    async def run(self) -> None:
        """Never returns. Raises EngineError when the very first start fails: then the options are wrong."""
        await self._synthesizer.start()
        loop, restarts = asyncio.get_running_loop(), RestartBackoff()
        while True:
            if self.state.speaks:
                log.info("engine ready")
                restarts.ready(loop.time())
                self._on_ready()
            while self.state.speaks:
                await asyncio.sleep(_LOOK_S)
                self._on_poll()
            pause_s = restarts.lost(loop.time())
            self._reason = "the voice model was lost and is being restarted"
            if restarts.count > 1:
                self._reason += f" (failures in a row: {restarts.count})"
            self._on_lost()
            log.error("engine lost; restarting in %g s", pause_s)
            await self._synthesizer.close()
            await asyncio.sleep(pause_s)
            try:
                await self._synthesizer.start()
            except EngineError as error:
                log.error("engine restart failed: %s", error.message)


FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 60.0
STABLE_AFTER_S = 300.0
"""Who has lived so long has not died of how it was started."""


class RestartBackoff:
    """The first restart comes at once; further ones within `STABLE_AFTER_S` after ever longer pauses.

    Whatever kills the engine again and again, a client's request among it, so gets at most one start a minute. Time
    comes in as an argument.
    """

    def __init__(self) -> None:
        self.count = 0
        """Losses, and starts that failed, without a long life between them."""
        self._ready_s: float | None = None

    def ready(self, now_s: float) -> None:
        """The engine is up."""
        self._ready_s = now_s

    def lost(self, now_s: float) -> float:
        """It was lost, or did not come up; returns the pause before the next start, in seconds."""
        if self._ready_s is not None and now_s - self._ready_s >= STABLE_AFTER_S:
            self.count = 0
        self._ready_s = None
        self.count += 1
        return 0.0 if self.count == 1 else min(FIRST_PAUSE_S * 2.0 ** (self.count - 2), LONGEST_PAUSE_S)
