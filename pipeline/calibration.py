"""What a machine carries, measured before anybody listens: a few frames spoken by ever more utterances at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from .capacity import Capacity
from .errors import EngineError, RequestError
from .speech import Speech

log = logging.getLogger(__name__)

FRAMES = 16
"""Frames that each utterance of a calibration has at most."""
FEW = 16
"""Beyond so many at once every second doubling is left out: each is as much work as all before it."""
_TEXT = "One, two, three, four, five, six."
_LEAST_S = 1.5
"""A machine that seems to carry little may have had a bad moment: that much time is always taken."""
_LIMIT_S = 60.0
_EVERYTHING_HEARD = 10**6


async def calibrate(capacity: Capacity, slots: int, open_speech: Callable[[], Speech]) -> None:
    """Speak with 1, 2, 4, ..., 16, 64, ... utterances at once, until more than those would not be let in.

    `open_speech` opens one of `FRAMES` frames. Talker, codec and this process work at the same time, as they will
    later, so that what they take from each other is measured too. Raises EngineError when the voice cannot speak, or
    says nothing.
    """
    loop = asyncio.get_running_loop()
    began_s, together = loop.time(), 1
    try:
        async with asyncio.timeout(_LIMIT_S):
            # The first of all finds everything cold.
            await _speak(first := open_speech())
            capacity.forget()
            while True:
                await asyncio.gather(*(_speak(open_speech()) for _ in range(together)))
                capacity.settle(loop.time())
                enough = together >= capacity.utterances(loop.time()) and loop.time() - began_s >= _LEAST_S
                if together >= slots or enough:
                    break
                together = min((2 if together < FEW else 4) * together, slots)
    except RequestError as error:
        log.warning("capacity is learnt only while speaking: %s", error.message)
    except TimeoutError:
        if first.milestones.first_pcm_s is None:
            raise EngineError(f"the voice model made no sound in {_LIMIT_S:g} s") from None
        log.warning("the calibration was cut after %g s", _LIMIT_S)
        capacity.settle(loop.time())
    found = capacity.utterances(loop.time())
    log.info("carries %d utterances at once, found in %.1f s", found, loop.time() - began_s)


async def _speak(speech: Speech) -> None:
    try:
        speech.advance(_EVERYTHING_HEARD)
        speech.push_text(_TEXT)
        speech.end()
        async for _ in speech:
            pass
    finally:
        await speech.aclose()
