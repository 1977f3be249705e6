"""One simulated listener: writes text as a language model does, hears the speech, and keeps the times."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..playback import Playback
from .sample import BUFFERS_MS, Manner, Outcome, Sample
from .targets.line import Line, Refused
from .text import fragments, paced

AUDIBLE = 0.01
"""Full scale is 1; what is softer counts as silence."""
_SLOW_PAUSE_S = 1.5
"""Long enough to be noticed, not so long that our own gateway cuts the line for it (it may after 2 s)."""
_ENDINGS = (".", "!", "?")


@dataclass(frozen=True, slots=True)
class Turn:
    """One utterance to come. `intended_s` is on the loop's clock; `cut_s`: when, in the speech, it is cut off."""

    stream: int
    text: str
    intended_s: float
    words_per_s: float = 25.0
    manner: Manner = Manner.PLAIN
    cut_s: float = 1.5
    timeout_s: float = 120.0


class Ear:
    """Notes what arrives; s16le samples at `rate_hz`."""

    def __init__(self, rate_hz: int) -> None:
        self._playback = Playback(rate_hz)
        self._rate_hz = rate_hz
        self._samples = 0
        self.first_s = math.inf
        self.last_s = -math.inf
        self.audible_s = math.inf
        """When the first sound that is not silence is heard, by a player that starts with the first audio."""

    def hear(self, pcm: bytes, at_s: float) -> None:
        samples = len(pcm) // 2
        self.first_s = min(self.first_s, at_s)
        self.last_s = at_s
        if self.audible_s == math.inf:
            loud = np.abs(np.frombuffer(pcm, "<i2").astype(np.int32)) > AUDIBLE * 32768
            if loud.any():
                offset_s = (self._samples + int(loud.argmax())) / self._rate_hz
                self.audible_s = max(at_s, self.first_s + offset_s)
        self._playback.arrive(at_s, self._samples, samples)
        self._samples += samples

    @property
    def audio_s(self) -> float:
        return self._playback.audio_s

    @property
    def gaps_ms(self) -> list[float]:
        times = [at_s for at_s, _, _ in self._playback.arrivals]
        return [round(1000 * (later - earlier), 1) for earlier, later in pairwise(times)]

    def underruns(self, buffer_ms: int) -> int:
        return self._playback.underruns(buffer_ms)


class Listener:
    """Speaks to one line for one turn. `run` never raises but for being cancelled: what went wrong is in the sample.

    `clock` is what speech is timed by, in seconds; the loop's own may tell no less than milliseconds.
    """

    def __init__(
        self, turn: Turn, open_line: Callable[[], Awaitable[Line]], clock: Callable[[], float] | None = None
    ) -> None:
        self._turn = turn
        self._open_line = open_line
        self._loop = asyncio.get_running_loop()
        self._clock = clock or self._loop.time
        self._text_s = math.inf
        self._sentence_s = math.inf
        self._cut_s = math.inf

    async def run(self) -> Sample:
        sample = Sample(self._turn.stream, self._turn.manner)
        await asyncio.sleep(max(0.0, self._turn.intended_s - self._loop.time()))
        began_s = self._loop.time()
        sample.late_ms = 1000 * (began_s - self._turn.intended_s)
        try:
            async with asyncio.timeout(self._turn.timeout_s):
                line = await self._open_line()
                sample.connect_ms = 1000 * (self._loop.time() - began_s)
                await self._converse(line, sample)
        except Refused as refused:
            sample.outcome, sample.code = Outcome.REFUSED, refused.code
        except TimeoutError:
            sample.code = "timeout"
        except Exception as error:  # whatever a library raises for a lost line
            sample.code = type(error).__name__
        return sample

    async def _converse(self, line: Line, sample: Sample) -> None:
        ear: Ear | None = None
        writing = asyncio.create_task(self._write(line))
        cutting: asyncio.Task[None] | None = None
        try:
            async for pcm in line.audio():
                now_s = self._clock()
                if ear is None:
                    ear = Ear(line.rate_hz)
                    cutting = asyncio.create_task(self._cut(line))
                    if self._turn.manner is Manner.SLOW:
                        await line.stall(_SLOW_PAUSE_S)
                ear.hear(pcm, now_s)
            if self._cut_s == math.inf:
                await writing
                sample.outcome = Outcome.DONE if ear is not None else Outcome.FAILED
                sample.code = "" if ear is not None else "no_audio"
            else:
                sample.outcome = Outcome.INTERRUPTED
                sample.cancel_ms = 1000 * (self._clock() - self._cut_s)
        except Exception:
            if self._turn.manner is not Manner.ABRUPT or self._cut_s == math.inf:
                raise
            sample.outcome = Outcome.DROPPED
        finally:
            for task in filter(None, (writing, cutting)):
                task.cancel()
            await asyncio.gather(*filter(None, (writing, cutting)), return_exceptions=True)
            self._fill(sample, line, ear)
            await line.close()

    async def _write(self, line: Line) -> None:
        turn = self._turn
        # Text that is known is one message.
        pieces = fragments(turn.text) if turn.words_per_s else (turn.text,)
        async for piece in paced(pieces, turn.words_per_s):
            await line.send(piece)
            self._text_s = min(self._text_s, self._clock())
            if piece.rstrip().endswith(_ENDINGS):
                self._sentence_s = min(self._sentence_s, self._clock())
        await line.end()

    async def _cut(self, line: Line) -> None:
        """Interrupt, or leave, after so much of the speech was heard."""
        if self._turn.manner not in (Manner.BARGE_IN, Manner.ABRUPT):
            return
        await asyncio.sleep(self._turn.cut_s)
        self._cut_s = self._clock()
        if self._turn.manner is Manner.ABRUPT:
            line.abort()
        else:
            await line.interrupt(round(1000 * self._turn.cut_s))

    def _fill(self, sample: Sample, line: Line, ear: Ear | None) -> None:
        sample.queue_ms, sample.server_ms = line.queue_ms, line.server_ms
        if ear is None:
            return
        if self._text_s != math.inf:
            sample.first_byte_ms = _ms(ear.first_s - self._text_s)
            sample.first_audible_ms = _ms(ear.audible_s - self._text_s)
        sample.after_sentence_ms = _ms(ear.first_s - self._sentence_s)
        sample.gaps_ms = ear.gaps_ms
        sample.underruns = {buffer_ms: ear.underruns(buffer_ms) for buffer_ms in BUFFERS_MS}
        sample.audio_s = ear.audio_s
        sample.playing_s = ear.last_s - ear.first_s


def _ms(seconds: float) -> float | None:
    return round(1000 * seconds, 1) if math.isfinite(seconds) else None
