"""Keeps the voice model alive: loads it, watches it, builds it anew after a loss."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from ..pipeline.errors import EngineError
from ..pipeline.speech import EngineState, Synthesizer
from .restarts import Restarts

_LOOK_S = 0.25

log = logging.getLogger(__name__)


class EngineNews(Protocol):
    """How the voice model is, and why."""

    @property
    def state(self) -> EngineState: ...

    @property
    def reason(self) -> str | None:
        """Why speech cannot be started; None when it can."""


class EngineWatch:
    """`on_ready` is called when speech can be started, the first time or again; `on_look` again and again while so;
    `on_lost` when it was lost."""

    def __init__(
        self,
        synthesizer: Synthesizer,
        on_ready: Callable[[], None],
        on_look: Callable[[], None] = lambda: None,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self._synthesizer = synthesizer
        self._on_ready, self._on_look, self._on_lost = on_ready, on_look, on_lost
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
        loop, restarts = asyncio.get_running_loop(), Restarts()
        while True:
            if self.state.speaks:
                log.info("engine ready")
                restarts.ready(loop.time())
                self._on_ready()
            while self.state.speaks:
                await asyncio.sleep(_LOOK_S)
                self._on_look()
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
