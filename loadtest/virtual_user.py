"""A player that only keeps time: when the audio of one utterance arrived, and where it would have run dry."""
# TODO-DOC What is said under load, and how fast it is written.
# TODO-DOC One simulated listener: writes text as a language model does, hears the speech, and keeps the times.

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

_AUDIBLE_S = 0.001
"""Nobody hears a shorter pause, and clocks are no better."""


@dataclass(slots=True)
class Playback:
    """Fed with every audio message as it arrives; times in seconds of any one clock."""

    sample_rate_hz: int
    arrivals: list[tuple[float, int, int]] = field(default_factory=list)
    """(when it arrived, its first sample, its samples)"""

    def arrive(self, at_s: float, pts: int, samples: int) -> None:
        if samples:
            self.arrivals.append((at_s, pts, samples))

    @property
    def audio_s(self) -> float:
        return sum(samples for _, _, samples in self.arrivals) / self.sample_rate_hz

    @property
    def longest_gap_ms(self) -> float:
        """Longest pause between two messages."""
        times = [at_s for at_s, _, _ in self.arrivals]
        return max((1000 * (later - earlier) for earlier, later in pairwise(times)), default=0.0)

    def underruns(self, buffer_ms: float) -> int:
        """How often a player that starts after `buffer_ms` would have had nothing to play.

        After an underrun it goes on as soon as there is audio, so that one late message counts once.
        """
        if not self.arrivals:
            return 0
        shift_s = self.arrivals[0][0] + buffer_ms / 1000
        count = 0
        for at_s, pts, _ in self.arrivals:
            due_s = shift_s + pts / self.sample_rate_hz
            if at_s - due_s > _AUDIBLE_S:
                count += 1
                shift_s += at_s - due_s
        return count


SENTENCES = (
    "The bakery on the corner sells fresh bread every morning, and the coffee is very good. ",
    "I found three restaurants near your hotel that are still open, and one of them has a garden. ",
    "Please remember to water the plants while I am away, and lock the door when you leave. ",
)


def passage(sentences: int, choice: random.Random) -> str:
    """A text of so many sentences, another one for each state of `choice`."""
    return "".join(choice.choice(SENTENCES) for _ in range(sentences))


def fragments(text: str) -> Sequence[str]:
    """`text` in the pieces a language model writes: a word with the space after it."""
    return re.findall(r"\S+\s*", text)


async def paced(pieces: Sequence[str], words_per_s: float) -> AsyncIterator[str]:
    """`pieces` as they are written; all at once when `words_per_s` is 0. A slow reader does not slow the writer."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    for index, piece in enumerate(pieces):
        if words_per_s:
            await asyncio.sleep(max(0.0, began_s + index / words_per_s - loop.time()))
        yield piece


AUDIBLE = 0.01
"""Full scale is 1; what is softer counts as silence."""
_SLOW_PAUSE_S = 1.5
"""Long enough to be noticed, not so long that our own gateway cuts the line for it (it may after 2 s)."""
_ENDINGS = (".", "!", "?")


@dataclass(frozen=True, slots=True)
class PlannedUtterance:
    """One utterance to come. `intended_s` is on the loop's clock; `cut_s`: when, in the speech, it is cut off."""

    stream: int
    text: str
    intended_s: float
    words_per_s: float = 25.0
    behaviour: ClientBehaviour = ClientBehaviour.PLAIN
    cut_s: float = 1.5
    timeout_s: float = 120.0


class ReceivedAudio:
    """Notes what arrives; s16le samples at `rate_hz`."""

    def __init__(self, rate_hz: int) -> None:
        self._playback = Playback(rate_hz)
        self._rate_hz = rate_hz
        self._samples = 0
        self.first_s = math.inf
        self.last_s = -math.inf
        self.audible_s = math.inf
        """When the first sound that is not silence is heard, by a player that starts with the first audio."""

    def add(self, pcm: bytes, at_s: float) -> None:
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


class VirtualUser:
    """Speaks to one line for one turn. `run` never raises but for being cancelled: what went wrong is in the sample.

    `clock` is what speech is timed by, in seconds; the loop's own may tell no less than milliseconds.
    """

    def __init__(
        self,
        turn: PlannedUtterance,
        open_connection: Callable[[], Awaitable[TargetConnection]],
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._turn = turn
        self._open_line = open_connection
        self._loop = asyncio.get_running_loop()
        self._clock = clock or self._loop.time
        self._text_s = math.inf
        self._sentence_s = math.inf
        self._cut_s = math.inf

    async def run(self) -> UtteranceResult:
        sample = UtteranceResult(self._turn.stream, self._turn.behaviour)
        await asyncio.sleep(max(0.0, self._turn.intended_s - self._loop.time()))
        began_s = self._loop.time()
        sample.late_ms = 1000 * (began_s - self._turn.intended_s)
        try:
            async with asyncio.timeout(self._turn.timeout_s):
                line = await self._open_line()
                sample.connect_ms = 1000 * (self._loop.time() - began_s)
                await self._converse(line, sample)
        except TargetRefused as refused:
            sample.outcome, sample.code = Outcome.REFUSED, refused.code
        except TimeoutError:
            sample.code = "timeout"
        except Exception as error:  # whatever a library raises for a lost line
            sample.code = type(error).__name__
        return sample

    async def _converse(self, line: TargetConnection, sample: UtteranceResult) -> None:
        received: ReceivedAudio | None = None
        writing = asyncio.create_task(self._write(line))
        cutting: asyncio.Task[None] | None = None
        try:
            async for pcm in line.audio():
                now_s = self._clock()
                if received is None:
                    received = ReceivedAudio(line.rate_hz)
                    cutting = asyncio.create_task(self._cut(line))
                    if self._turn.behaviour is ClientBehaviour.SLOW:
                        await line.stall(_SLOW_PAUSE_S)
                received.add(pcm, now_s)
            if self._cut_s == math.inf:
                await writing
                sample.outcome = Outcome.DONE if received is not None else Outcome.FAILED
                sample.code = "" if received is not None else "no_audio"
            else:
                sample.outcome = Outcome.INTERRUPTED
                sample.cancel_ms = 1000 * (self._clock() - self._cut_s)
        except Exception:
            if self._turn.behaviour is not ClientBehaviour.ABRUPT or self._cut_s == math.inf:
                raise
            sample.outcome = Outcome.DROPPED
        finally:
            for task in filter(None, (writing, cutting)):
                task.cancel()
            await asyncio.gather(*filter(None, (writing, cutting)), return_exceptions=True)
            self._fill(sample, line, received)
            await line.close()

    async def _write(self, line: TargetConnection) -> None:
        turn = self._turn
        # Text that is known is one message.
        pieces = fragments(turn.text) if turn.words_per_s else (turn.text,)
        async for piece in paced(pieces, turn.words_per_s):
            await line.send(piece)
            self._text_s = min(self._text_s, self._clock())
            if piece.rstrip().endswith(_ENDINGS):
                self._sentence_s = min(self._sentence_s, self._clock())
        await line.end()

    async def _cut(self, line: TargetConnection) -> None:
        """Interrupt, or leave, after so much of the speech was heard."""
        if self._turn.behaviour not in (ClientBehaviour.BARGE_IN, ClientBehaviour.ABRUPT):
            return
        await asyncio.sleep(self._turn.cut_s)
        self._cut_s = self._clock()
        if self._turn.behaviour is ClientBehaviour.ABRUPT:
            line.abort()
        else:
            await line.interrupt(round(1000 * self._turn.cut_s))

    def _fill(self, sample: UtteranceResult, line: TargetConnection, received: ReceivedAudio | None) -> None:
        sample.queue_ms, sample.server_ms = line.queue_ms, line.server_ms
        if received is None:
            return
        if self._text_s != math.inf:
            sample.first_byte_ms = _ms(received.first_s - self._text_s)
            sample.first_audible_ms = _ms(received.audible_s - self._text_s)
        sample.after_sentence_ms = _ms(received.first_s - self._sentence_s)
        sample.gaps_ms = received.gaps_ms
        sample.underruns = {buffer_ms: received.underruns(buffer_ms) for buffer_ms in BUFFERS_MS}
        sample.audio_s = received.audio_s
        sample.playing_s = received.last_s - received.first_s


def _ms(seconds: float) -> float | None:
    return round(1000 * seconds, 1) if math.isfinite(seconds) else None
