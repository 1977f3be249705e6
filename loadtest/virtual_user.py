"""A virtual user: writes text as a language model does, receives the speech on a simulated player, measures times."""

from __future__ import annotations

import asyncio
import math
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from .results import BUFFERS_MS, ClientBehaviour, Outcome, UtteranceResult
from .targets.connection import TargetConnection, TargetRefused

SENTENCES = (
    "The bakery on the corner sells fresh bread every morning, and the coffee is very good. ",
    "I found three restaurants near your hotel that are still open, and one of them has a garden. ",
    "Please remember to water the plants while I am away, and lock the door when you leave. ",
)
AUDIBLE_LEVEL = 0.01
"""Softer samples count as silence; full scale is 1."""
_MIN_UNDERRUN_S = 0.001
"""Shorter pauses are inaudible, and clocks are no more precise."""
_SLOW_PAUSE_S = 1.5
"""Long enough to fill buffers, shorter than the gateway's slow-consumer timeout (2 s at the least)."""
_SENTENCE_ENDS = (".", "!", "?")


def random_text(sentences: int, choice: random.Random) -> str:
    return "".join(choice.choice(SENTENCES) for _ in range(sentences))


def split_words(text: str) -> Sequence[str]:
    """Splits `text` into the pieces that a language model writes: words, each with the space after it."""
    return re.findall(r"\S+\s*", text)


async def at_pace(pieces: Sequence[str], words_per_s: float) -> AsyncIterator[str]:
    """Yields `pieces` at a constant pace; without pause when `words_per_s` is 0. Time lost is caught up."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    for index, piece in enumerate(pieces):
        if words_per_s:
            await asyncio.sleep(max(0.0, began_s + index / words_per_s - loop.time()))
        yield piece


@dataclass(frozen=True, slots=True)
class PlannedUtterance:
    """One utterance of the plan."""

    stream: int
    text: str
    intended_s: float
    """When to begin, on the event loop's clock."""
    words_per_s: float = 25.0
    behaviour: ClientBehaviour = ClientBehaviour.PLAIN
    cut_s: float = 1.5
    """Time from the first audio to the interrupt or the cut of the connection."""
    timeout_s: float = 120.0


class VirtualUser:
    """Speaks one utterance over one connection.

    `clock`, in seconds, times the speech; the event loop's own clock may be precise to milliseconds only.
    """

    def __init__(
        self,
        utterance: PlannedUtterance,
        open_connection: Callable[[], Awaitable[TargetConnection]],
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._utterance = utterance
        self._open_connection = open_connection
        self._loop = asyncio.get_running_loop()
        self._clock = clock or self._loop.time
        self._text_s = math.inf
        self._sentence_s = math.inf
        self._cut_s = math.inf

    async def run(self) -> UtteranceResult:
        """Returns the result, also of a failure. Cancelling closes the connection."""
        result = UtteranceResult(self._utterance.stream, self._utterance.behaviour)
        await asyncio.sleep(max(0.0, self._utterance.intended_s - self._loop.time()))
        began_s = self._loop.time()
        result.late_ms = 1000 * (began_s - self._utterance.intended_s)
        try:
            async with asyncio.timeout(self._utterance.timeout_s):
                connection = await self._open_connection()
                result.connect_ms = 1000 * (self._loop.time() - began_s)
                await self._converse(connection, result)
        except TargetRefused as refused:
            result.outcome, result.code = Outcome.REFUSED, refused.code
        except TimeoutError:
            result.code = "timeout"
        except Exception as error:  # the targets' libraries raise errors of their own for a lost connection
            result.code = type(error).__name__
        return result

    async def _converse(self, connection: TargetConnection, result: UtteranceResult) -> None:
        received: ReceivedAudio | None = None
        writing = asyncio.create_task(self._write(connection))
        cutting: asyncio.Task[None] | None = None
        try:
            async for pcm in connection.audio():
                now_s = self._clock()
                if received is None:
                    received = ReceivedAudio(connection.rate_hz)
                    cutting = asyncio.create_task(self._cut(connection))
                    if self._utterance.behaviour is ClientBehaviour.SLOW:
                        await connection.stall(_SLOW_PAUSE_S)
                received.add(pcm, now_s)
            if self._cut_s == math.inf:
                await writing
                result.outcome = Outcome.DONE if received is not None else Outcome.FAILED
                result.code = "" if received is not None else "no_audio"
            else:
                result.outcome = Outcome.INTERRUPTED
                result.cancel_ms = 1000 * (self._clock() - self._cut_s)
        except Exception:
            if self._utterance.behaviour is not ClientBehaviour.ABRUPT or self._cut_s == math.inf:
                raise
            result.outcome = Outcome.DROPPED
        finally:
            for task in filter(None, (writing, cutting)):
                task.cancel()
            await asyncio.gather(*filter(None, (writing, cutting)), return_exceptions=True)
            self._fill(result, connection, received)
            await connection.close()

    async def _write(self, connection: TargetConnection) -> None:
        text, words_per_s = self._utterance.text, self._utterance.words_per_s
        pieces = split_words(text) if words_per_s else (text,)
        async for piece in at_pace(pieces, words_per_s):
            await connection.send(piece)
            self._text_s = min(self._text_s, self._clock())
            if piece.rstrip().endswith(_SENTENCE_ENDS):
                self._sentence_s = min(self._sentence_s, self._clock())
        await connection.end()

    async def _cut(self, connection: TargetConnection) -> None:
        """Interrupts the speech or cuts the connection at the planned time."""
        if self._utterance.behaviour not in (ClientBehaviour.BARGE_IN, ClientBehaviour.ABRUPT):
            return
        await asyncio.sleep(self._utterance.cut_s)
        self._cut_s = self._clock()
        if self._utterance.behaviour is ClientBehaviour.ABRUPT:
            connection.abort()
        else:
            await connection.interrupt(round(1000 * self._utterance.cut_s))

    def _fill(self, result: UtteranceResult, connection: TargetConnection, received: ReceivedAudio | None) -> None:
        result.queue_ms, result.server_ms = connection.queue_ms, connection.server_ms
        if received is None:
            return
        if self._text_s != math.inf:
            result.first_byte_ms = _ms(received.first_s - self._text_s)
            result.first_audible_ms = _ms(received.audible_s - self._text_s)
        result.after_sentence_ms = _ms(received.first_s - self._sentence_s)
        result.gaps_ms = [round(gap_ms, 1) for gap_ms in received.playback.gaps_ms]
        result.underruns = {buffer_ms: received.playback.underruns(buffer_ms) for buffer_ms in BUFFERS_MS}
        result.audio_s = received.playback.audio_s
        result.receiving_s = received.last_s - received.first_s


class ReceivedAudio:
    """Records arriving s16le mono samples: their times, and when the first one becomes audible."""

    def __init__(self, rate_hz: int) -> None:
        self.playback = Playback(rate_hz)
        self._rate_hz = rate_hz
        self._samples = 0
        self.first_s = math.inf
        self.last_s = -math.inf
        self.audible_s = math.inf
        """When a player that starts with the first audio plays the first sample that is not silence."""

    def add(self, pcm: bytes, arrival_s: float) -> None:
        samples = len(pcm) // 2
        self.first_s = min(self.first_s, arrival_s)
        self.last_s = arrival_s
        if self.audible_s == math.inf:
            audible = np.abs(np.frombuffer(pcm, "<i2").astype(np.int32)) > AUDIBLE_LEVEL * 32768
            if audible.any():
                offset_s = (self._samples + int(audible.argmax())) / self._rate_hz
                self.audible_s = max(arrival_s, self.first_s + offset_s)
        self.playback.arrive(arrival_s, self._samples, samples)
        self._samples += samples


@dataclass(slots=True)
class Playback:
    """A simulated player, given the arrival of each audio message in seconds of any clock."""

    sample_rate_hz: int
    arrivals: list[tuple[float, int, int]] = field(default_factory=list)
    """(arrival time, first sample, number of samples) of each message."""

    def arrive(self, arrival_s: float, pts: int, samples: int) -> None:
        if samples:
            self.arrivals.append((arrival_s, pts, samples))

    @property
    def audio_s(self) -> float:
        return sum(samples for _, _, samples in self.arrivals) / self.sample_rate_hz

    @property
    def gaps_ms(self) -> list[float]:
        """Times between consecutive messages."""
        times = [arrival_s for arrival_s, _, _ in self.arrivals]
        return [1000 * (later - earlier) for earlier, later in pairwise(times)]

    def underruns(self, buffer_ms: float) -> int:
        """How often a player that starts `buffer_ms` after the first message has nothing to play."""
        return len(self.silences_s(buffer_ms))

    def silences_s(self, buffer_ms: float) -> list[float]:
        """How long each of its underruns lasts.

        After an underrun it continues with the next audio, so that one late message counts once.
        """
        silences: list[float] = []
        if not self.arrivals:
            return silences
        shift_s = self.arrivals[0][0] + buffer_ms / 1000
        for arrival_s, pts, _ in self.arrivals:
            due_s = shift_s + pts / self.sample_rate_hz
            if arrival_s - due_s > _MIN_UNDERRUN_S:
                silences.append(arrival_s - due_s)
                shift_s += arrival_s - due_s
        return silences


def _ms(seconds: float) -> float | None:
    return round(1000 * seconds, 1) if math.isfinite(seconds) else None
