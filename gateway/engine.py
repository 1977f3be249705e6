"""Supervises the speech engine: loads it, watches its state, and restarts it after a loss."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from voxgate.pipeline.errors import EngineError
from voxgate.pipeline.interface import EngineState, Synthesizer

POLL_INTERVAL_S = 0.25
"""Interval at which the engine's state is polled: clients hear of a loss within this time."""

log = logging.getLogger(__name__)


class EngineStatus(Protocol):
    """State of the speech engine, with the reason why it cannot speak."""

    @property
    def state(self) -> EngineState: ...

    @property
    def reason(self) -> str | None:
        """Why no speech can be started; None when speech can be started."""


class EngineSupervisor:
    """Keeps one `Synthesizer` running.

    Calls `on_ready` each time the engine becomes able to speak, `on_poll` every `POLL_INTERVAL_S` while it is, and
    `on_lost` when it is lost.
    """

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
        """Why no speech can be started; None when speech can be started."""
        if self.state.speaks:
            return None
        progress = self._synthesizer.start_progress
        return f"{self._reason}: {progress}" if progress else self._reason

    async def run(self) -> None:
        """Loads the engine and restarts it after each loss; never returns.

        Raises EngineError when the first start fails, because then the options are wrong. Cancelling it leaves the
        engine as it is; the caller closes the synthesizer.
        """
        await self._synthesizer.start()
        loop, backoff = asyncio.get_running_loop(), RestartBackoff()
        while True:
            if self.state.speaks:
                log.info("engine ready")
                backoff.on_ready(loop.time())
                self._on_ready()
            while self.state.speaks:
                await asyncio.sleep(POLL_INTERVAL_S)
                self._on_poll()
            pause_s = backoff.on_lost(loop.time())
            self._reason = "the voice model was lost and is being restarted"
            if backoff.failures > 1:
                self._reason += f" (failures in a row: {backoff.failures})"
            self._on_lost()
            log.error("engine lost; restarting in %g s", pause_s)
            await self._synthesizer.close()
            await asyncio.sleep(pause_s)
            try:
                await self._synthesizer.start()
            except EngineError as error:
                log.error("engine restart failed: %s", error.message)


FIRST_PAUSE_S = 0.5
"""Pause before the second restart; each further pause is twice as long."""
LONGEST_PAUSE_S = 60.0
"""Bound on the pause: one start a minute, however often the engine fails."""
STABLE_AFTER_S = 300.0
"""After this uptime the restart back-off resets."""


class RestartBackoff:
    """Pauses between restarts of a process that keeps failing. Time is an argument.

    The first restart follows at once. Further ones within `STABLE_AFTER_S` of uptime wait exponentially longer, so
    that a request that crashes the engine each time causes at most one start a minute.
    """

    def __init__(self) -> None:
        self.failures = 0
        """Losses and failed starts since the last uptime of `STABLE_AFTER_S`."""
        self._ready_s: float | None = None

    def on_ready(self, now_s: float) -> None:
        """Records that the process is up."""
        self._ready_s = now_s

    def on_lost(self, now_s: float) -> float:
        """Records a loss or a failed start; returns the pause before the next start, in seconds."""
        if self._ready_s is not None and now_s - self._ready_s >= STABLE_AFTER_S:
            self.failures = 0
        self._ready_s = None
        self.failures += 1
        return 0.0 if self.failures == 1 else min(FIRST_PAUSE_S * 2.0 ** (self.failures - 2), LONGEST_PAUSE_S)
