"""Keeps the voice model alive: loads it, watches it, builds it anew after a loss."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ..pipeline.errors import EngineError
from ..pipeline.speech import EngineState, Synthesizer

_LOOK_S = 0.25
_PAUSE_FIRST_S = 0.5
_PAUSE_LAST_S = 30.0

log = logging.getLogger(__name__)


class EngineWatch:
    """`reason` says why speech cannot be started, None when it can."""

    def __init__(self, synthesizer: Synthesizer, on_ready: Callable[[], None]) -> None:
        self._synthesizer = synthesizer
        self._on_ready = on_ready
        self._reason = "the voice model is loading"

    @property
    def reason(self) -> str | None:
        return None if self._synthesizer.state is EngineState.READY else self._reason

    async def run(self) -> None:
        """Never returns. Raises EngineError when the very first start fails: then the options are wrong."""
        await self._synthesizer.start()
        pause_s = _PAUSE_FIRST_S
        while True:
            if self._synthesizer.state is EngineState.READY:
                log.info("engine ready")
                self._on_ready()
                pause_s = _PAUSE_FIRST_S
            while self._synthesizer.state is EngineState.READY:  # noqa: ASYNC110 - the state has no event
                await asyncio.sleep(_LOOK_S)
            self._reason = "the voice model was lost and is being restarted"
            log.error("engine lost; restarting")
            try:
                await self._synthesizer.close()
                await self._synthesizer.start()
            except EngineError as error:
                log.error("engine restart failed: %s", error.message)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_LAST_S)
