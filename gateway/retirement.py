"""Closing speeches: outlives their connection, and gives each slot back only when the engine confirmed."""

from __future__ import annotations

import asyncio
import logging

from .admission import Gate
from .utterance import Utterance

log = logging.getLogger(__name__)


class Retirement:
    """Holds the tasks that close speeches. No connection's cancellation reaches them."""

    def __init__(self, admission: Gate) -> None:
        self._admission = admission
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def closing(self) -> int:
        return len(self._closing)

    def retire(self, utterance: Utterance, listening: asyncio.Task[None] | None) -> None:
        """Stop `listening`, close the utterance's speech, then give its ticket back. Returns at once."""
        if utterance.speech is None:
            self._leave(utterance)
            return
        task = asyncio.get_running_loop().create_task(self._close(utterance, listening))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def finish(self, deadline_s: float) -> None:
        """Wait until all are closed, `deadline_s` seconds at most."""
        if self._closing:
            await asyncio.wait(self._closing, timeout=deadline_s)

    async def _close(self, utterance: Utterance, listening: asyncio.Task[None] | None) -> None:
        assert utterance.speech is not None
        try:
            if listening is not None:
                listening.cancel()
                await asyncio.wait([listening])
            await utterance.speech.aclose()
        except Exception:
            log.exception("closing a speech failed", extra={"utterance": utterance.id})
        finally:
            self._leave(utterance)

    def _leave(self, utterance: Utterance) -> None:
        if utterance.ticket is not None:
            self._admission.leave(utterance.ticket, asyncio.get_running_loop().time())
