"""When each word is heard: the text is followed through the audio by what its letters should sound like.

The talker does not say which word it speaks. An ear (`ear.py`) knows what the words of a text should sound like, and
`follower.py` finds them in the speech; here words are told apart, given out once they are certain, and joined over the
generations (segments) of an utterance.
"""
# TODO-DOC What an utterance's word clock is told: its text, and the audio that is heard, with the codes it was made
# TODO-DOC of.

from __future__ import annotations

import re
from array import array
from collections import deque
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from voxgate.codecs.pcm import FRAME_SAMPLES, Pcm

from ..interface import WordTime
from .aligner import ForcedAligner
from .coarse import CoarseScorer
from .scorer import HOP_MS, AcousticScorer, Codes, Features

ORDINARY_PACE = 1.0
NO_CODES: Codes = np.zeros(0, np.int16)

_PACE_LEARNT = 0.3
"""How much of a segment's pace goes into the next: one odd segment must not spoil it."""
_PACE_CHANGE = (0.6, 1.6)

_WIDE = r"\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_WIDE}][^\w\s]*|[^\s{_WIDE}]+")
_PAUSES = re.compile(r"[,;:.?!…，、。！？；：—-][\"'”’)\]」』）】]*$")  # noqa: RUF001 - marks of other scripts


@dataclass(frozen=True, slots=True)
class _Word:
    text: str
    start: int
    end: int


class WordAligner:
    """Word times of one utterance, in milliseconds of its audio; fed in the order things happen."""

    def __init__(self, pace: float = ORDINARY_PACE, ear: AcousticScorer | None = None) -> None:
        """`ear`: by default one that can follow any voice."""
        self._pace = pace
        self.ear: AcousticScorer = ear or CoarseScorer()
        self._source = ""
        self._scanned = 0
        """Characters of it that words were looked for in."""
        self._open = False
        """The last word may still grow."""
        self._words: list[_Word] = []
        self._times: list[WordTime] = []
        """Of the first words: what is certain."""
        self._given = 0
        """Of these, given out."""
        self._finished = False
        self._moments = 0
        """Features so far, of `HOP_MS` each."""
        self._begin_segment()

    @property
    def pace(self) -> float:
        """How long words take against the ordinary; a good first value for the next utterance of the same voice."""
        return self._pace

    def text(self, source: str, committed_chars: int) -> None:
        """The client's text so far, of which `committed_chars` characters have gone to the talker."""
        self._source = source
        self._scan(committed_chars, whole=False)

    def audio(self, pcm: Pcm, codes: Codes = NO_CODES) -> None:
        """The next audio, float32 [n] at 24 kHz, and the first code of each of its frames, int16 [frames]."""
        self.hear(self.ear.hear(pcm, codes))

    def hear(self, heard: Features) -> None:
        """As `audio`, for what `ear` has heard already."""
        self._moments += self._follower.hear(heard)

    def segment_end(self, source_end: int | None = None) -> None:
        """One generation is complete: the audio so far speaks the text up to `source_end` (None: all of it)."""
        end = len(self._source) if source_end is None else source_end
        self._scan(end, whole=True)
        last = len(self._times)
        while last < len(self._words) and self._words[last].start < end:
            last += 1
        self._close_segment(last)
        self._begin_segment()

    def finish(self) -> None:
        """Text and audio are complete; every word has its time from now on."""
        self.segment_end()
        self._finished = True

    def take_words(self) -> list[WordTime]:
        """Words whose time is certain enough since the last call, in order, never revised."""
        while len(self._times) < len(self._words) - self._open:
            number = len(self._times) - self._segment_word
            span = self._follower.certain(number)
            if span is None:
                break
            self._fix(span)
            self._follower.settle(number, span[1])
        taken = self._times[self._given :]
        self._given = len(self._times)
        return taken

    def spoken_until(self, played_ms: int) -> int:
        """Offset of the first character not yet heard at `played_ms`; it moves from word to word."""
        for time in self._times:
            if time.end_ms > played_ms:
                return time.start
        path = self._follower.path()
        for number in range(len(self._times), len(self._words)):
            span = self._follower.span(number - self._segment_word, path) if path else None
            if span is None or self._ms(span[1]) > played_ms:
                return self._words[number].start
        if self._finished:
            return len(self._source)
        return self._words[-1].end if self._words else 0

    def _scan(self, until: int, *, whole: bool) -> None:
        """Take in the words up to `until`; the last one stays open while text to come may be part of it."""
        for match in _WORD.finditer(self._source, self._scanned):
            if match.end() > until and not (whole and match.start() < until):
                return
            word = _Word(match[0], match.start(), match.end())
            if self._open:
                grown = word.text[len(self._words[-1].text) :]
                self._words[-1] = word
                if grown:
                    self._follower.extend_word(grown, pauses=_pauses(word))
            else:
                self._words.append(word)
                self._follow(len(self._words) - 1)
            self._open = not whole and match.end() == len(self._source)
            if self._open:
                return
            self._scanned = match.end()

    # Segments

    def _begin_segment(self) -> None:
        """The words that have no time yet are spoken from here on."""
        self._segment_word = len(self._times)
        self._segment_moment = self._moments
        self._follower = ForcedAligner(self.ear, self._pace)
        for number in range(self._segment_word, len(self._words)):
            self._follow(number)

    def _follow(self, number: int) -> None:
        word, before = self._words[number], self._words[number - 1].text if number else ""
        self._follower.add_word(word.text, before=before, pauses=_pauses(word))

    def _close_segment(self, last: int) -> None:
        """Place the words up to number `last` in what is left of the segment's audio."""
        if last <= len(self._times):
            return
        path = self._follower.path(last - 1 - self._segment_word)
        if path is None:
            self._spread(last)
            return
        expected, spoken = 0.0, 0
        for number in range(len(self._times), last):
            begin, end = self._follower.span(number - self._segment_word, path) or self._rest()
            expected += self._follower.expected_hops(number - self._segment_word)
            spoken += end - begin
            self._fix((begin, end))
        if spoken:
            least, most = _PACE_CHANGE
            self._pace *= 1 + _PACE_LEARNT * (min(max(spoken / expected, least), most) - 1)

    def _spread(self, last: int) -> None:
        """The audio is too short to follow: share it out by expected length."""
        words = range(len(self._times), last)
        begin, end = self._rest()
        total = sum(self._follower.expected_hops(number - self._segment_word) for number in words)
        done, last_end = 0.0, begin
        for number in words:
            done += self._follower.expected_hops(number - self._segment_word)
            self._fix((last_end, last_end := begin + int((end - begin) * done / total)))

    def _rest(self) -> tuple[int, int]:
        """The moments of the segment behind the last word that has its time."""
        last_ms = self._times[-1].end_ms if self._times else 0
        return max(0, last_ms // HOP_MS - self._segment_moment), self._moments - self._segment_moment

    # Words in time; moments count from the segment's begin

    def _fix(self, span: tuple[int, int]) -> None:
        word = self._words[len(self._times)]
        begin_ms = max(self._ms(span[0]), self._times[-1].end_ms if self._times else 0)
        self._times.append(WordTime(word.text, word.start, word.end, begin_ms, max(begin_ms, self._ms(span[1]))))

    def _ms(self, moment: int) -> int:
        return (self._segment_moment + moment) * HOP_MS


def _pauses(word: _Word) -> bool:
    return bool(_PAUSES.search(word.text))


class WordTimingFeed:
    """Remembers of what was made all that the clock needs once it is heard."""

    def __init__(self, clock: WordTiming) -> None:
        self._clock = clock
        self._first_codes = array("h")
        """Of every frame made."""
        self._segments: deque[tuple[int, int]] = deque()
        """Of every generation that is over, and not heard to its end: the frames made by then, the text read."""

    def made(self, first_code: int) -> None:
        """Another frame was."""
        self._first_codes.append(first_code)

    def segment_made(self, source_end: int) -> None:
        """A generation is over; it has said the text up to there."""
        self._segments.append((len(self._first_codes), source_end))

    def hear(self, pcm: Pcm, made: int) -> None:
        """Float32 [n * 1920], given out next: of the frames made, number `made` and those after it."""
        end = made + len(pcm) // FRAME_SAMPLES
        codes = np.array(self._first_codes[made:end], np.int16)
        while self._segments and self._segments[0][0] <= end:
            frames, source_end = self._segments.popleft()
            cut = max(0, frames - made)
            self._clock.audio(pcm[: cut * FRAME_SAMPLES], codes[:cut])
            self._clock.segment_end(source_end)
            pcm, codes, made = pcm[cut * FRAME_SAMPLES :], codes[cut:], made + cut
        self._clock.audio(pcm, codes)


class WordTiming(Protocol):
    """What an utterance tells as it goes on, and what it is asked; `WordAligner` says what each means."""

    @property
    def pace(self) -> float: ...
    def text(self, source: str, committed_chars: int) -> None: ...
    def audio(self, pcm: Pcm, codes: Codes = NO_CODES) -> None: ...
    def segment_end(self, source_end: int | None = None) -> None: ...
    def finish(self) -> None: ...
    def take_words(self) -> list[WordTime]: ...
    def spoken_until(self, played_ms: int) -> int: ...
