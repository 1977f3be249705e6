"""Start and end of each word of an utterance in its audio, by streaming forced alignment.

The talker does not report which word it speaks. An `AcousticScorer` models how the words of a text sound, a
`ForcedAligner` finds them in the speech of one segment (one generation of the talker), and `WordAligner` splits the
text into words, emits each once its time is final, and joins the segments of an utterance.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from voxgate.codecs.pcm import Pcm

from ..interface import WordTime
from ..text.sanitize import join_halves
from .aligner import ForcedAligner
from .coarse import CoarseScorer
from .scorer import HOP_MS, AcousticScorer, Codes, Features

ORDINARY_PACE = 1.0
"""Durations equal to the expected ones."""
NO_CODES: Codes = np.zeros(0, np.int16)

_PACE_LEARNING_RATE = 0.3
"""Weight of a segment's measured pace in the pace of the next: one odd segment must not distort it."""
_PACE_CHANGE_RANGE = (0.6, 1.6)
"""Measured pace of a segment, relative to the expected one, is clipped to this range."""

_WIDE = r"\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
"""Kana and Chinese characters: scripts without blanks between words; each character counts as a word."""
_WORD = re.compile(rf"[{_WIDE}][^\w\s]*|[^\s{_WIDE}]+")
_PAUSE_MARK = re.compile(r"[,;:.?!…，、。！？；：—-][\"'”’)\]」』）】]*$")  # noqa: RUF001 - marks of other scripts


class WordTiming(Protocol):
    """Word times of one utterance, fed in the order of events; `WordAligner` documents the methods."""

    @property
    def pace(self) -> float: ...
    def push_text(self, source: str, committed_chars: int) -> None: ...
    def push_audio(self, pcm: Pcm, codes: Codes = NO_CODES) -> None: ...
    def end_segment(self, source_end: int | None = None) -> None: ...
    def finish(self) -> None: ...
    def take_words(self) -> list[WordTime]: ...
    def catch_up(self) -> bool: ...
    def spoken_until(self, played_ms: int) -> int: ...
    def words_so_far(self) -> list[KnownWord]: ...


@dataclass(frozen=True, slots=True)
class KnownWord:
    """A word, with its time in the audio, final or not; None for a word that is not spoken to its end so far."""

    start: int
    end: int
    start_ms: int | None = None
    end_ms: int | None = None


@dataclass(frozen=True, slots=True)
class _Word:
    text: str
    start: int
    end: int

    @property
    def punctuated(self) -> bool:
        """Whether a mark at the end of the word asks for a pause."""
        return bool(_PAUSE_MARK.search(self.text))


class WordAligner:
    """Word times of one utterance, in milliseconds of its audio."""

    def __init__(self, pace: float = ORDINARY_PACE, scorer: AcousticScorer | None = None) -> None:
        """`scorer`: None for one that works with any voice."""
        self._pace = pace
        self.scorer: AcousticScorer = scorer or CoarseScorer()
        self._source = ""
        self._scanned_chars = 0
        """Characters of the source that were split into words."""
        self._last_word_open = False
        """Whether later text may still extend the last word."""
        self._words: list[_Word] = []
        self._times: list[WordTime] = []
        """Final times of the first words."""
        self._taken = 0
        """Number of these returned by `take_words`."""
        self._finished = False
        self._hops = 0
        """Hops aligned so far, over all segments."""
        self._begin_segment()

    @property
    def pace(self) -> float:
        """Ratio of measured to expected word durations; an initial value for the voice's next utterance."""
        return self._pace

    def push_text(self, source: str, committed_chars: int) -> None:
        """Set the client's text so far, of which the first `committed_chars` characters were given to the talker."""
        self._source = source
        self._scan(committed_chars, whole=False)

    def push_audio(self, pcm: Pcm, codes: Codes = NO_CODES) -> None:
        """Align the next audio: float32 [n] at 24 kHz, and the codebook 0 codes of its frames, int16 [frames]."""
        self.push_features(self.scorer.extract_features(pcm, codes))

    def push_features(self, features: Features) -> None:
        """Align the next audio, given the features that `scorer` extracted from it."""
        self._hops += self._aligner.push(features)

    def end_segment(self, source_end: int | None = None) -> None:
        """End a generation, whose audio speaks the text up to offset `source_end` (None: all of it)."""
        end = len(self._source) if source_end is None else source_end
        self._scan(end, whole=True)
        last = len(self._times)
        while last < len(self._words) and self._words[last].start < end:
            last += 1
        self._close_segment(last)
        self._begin_segment()

    def finish(self) -> None:
        """End the utterance; from now on every word has its time."""
        self.end_segment()
        self._finished = True

    def take_words(self) -> list[WordTime]:
        """Words whose times became final since the last call, in order."""
        while len(self._times) < len(self._words) - self._last_word_open:
            number = len(self._times) - self._segment_word
            span = self._aligner.committed_span(number)
            if span is None:
                break
            self._append_time(span)
            self._aligner.commit(number, span[1])
        taken = self._times[self._taken :]
        self._taken = len(self._times)
        return taken

    def catch_up(self) -> bool:
        """Returns False: nothing is left to do before `spoken_until`."""
        return False

    def spoken_until(self, played_ms: int) -> int:
        """Offset of the first character not yet spoken at `played_ms`; it advances by whole words."""
        for time in self._times:
            if time.end_ms > played_ms:
                return time.start
        path = self._aligner.path()
        for number in range(len(self._times), len(self._words)):
            span = self._aligner.span(number - self._segment_word, path) if path else None
            if span is None or self._ms(span[1]) > played_ms:
                return self._words[number].start
        if self._finished:
            return len(self._source)
        return self._words[-1].end if self._words else 0

    def words_so_far(self) -> list[KnownWord]:
        """Return the words that are spoken to their end, and the next one."""
        known = [KnownWord(time.start, time.end, time.start_ms, time.end_ms) for time in self._times]
        path = self._aligner.path()
        for number in range(len(self._times), len(self._words)):
            word = self._words[number]
            span = self._aligner.span(number - self._segment_word, path) if path else None
            if span is None:
                return [*known, KnownWord(word.start, word.end)]
            begin_ms = max(self._ms(span[0]), (known[-1].end_ms or 0) if known else 0)
            known.append(KnownWord(word.start, word.end, begin_ms, max(begin_ms, self._ms(span[1]))))
        return known

    def _scan(self, until: int, *, whole: bool) -> None:
        """Split the source up to offset `until` into words.

        With `whole`, a word that begins before `until` is complete; without, the last word stays open while later text
        may extend it.
        """
        for match in _WORD.finditer(self._source, self._scanned_chars):
            if match.end() > until and not (whole and match.start() < until):
                return
            word = _Word(match[0], match.start(), match.end())
            if self._last_word_open:
                added = word.text[len(self._words[-1].text) :]
                self._words[-1] = word
                if added:
                    self._aligner.extend_word(added, punctuated=word.punctuated)
            else:
                self._words.append(word)
                self._add_to_aligner(len(self._words) - 1)
            self._last_word_open = not whole and match.end() == len(self._source)
            if self._last_word_open:
                return
            self._scanned_chars = match.end()

    def _begin_segment(self) -> None:
        """Start a new aligner with the words that have no time yet."""
        self._segment_word = len(self._times)
        self._segment_hop = self._hops
        self._aligner = ForcedAligner(self.scorer, self._pace)
        for number in range(self._segment_word, len(self._words)):
            self._add_to_aligner(number)

    def _add_to_aligner(self, number: int) -> None:
        word, before = self._words[number], self._words[number - 1].text if number else ""
        self._aligner.add_word(word.text, before=before, punctuated=word.punctuated)

    def _close_segment(self, last: int) -> None:
        """Give times to the words before number `last` in the rest of the segment's audio, and update the pace."""
        if last <= len(self._times):
            return
        path = self._aligner.path(last - 1 - self._segment_word)
        if path is None:
            self._spread(last)
            return
        expected_hops, measured_hops = 0.0, 0
        for number in range(len(self._times), last):
            begin, end = self._aligner.span(number - self._segment_word, path) or self._remaining_span()
            expected_hops += self._aligner.expected_hops(number - self._segment_word)
            measured_hops += end - begin
            self._append_time((begin, end))
        if measured_hops:
            least, most = _PACE_CHANGE_RANGE
            change = min(max(measured_hops / expected_hops, least), most) - 1
            self._pace *= 1 + _PACE_LEARNING_RATE * change

    def _spread(self, last: int) -> None:
        """Divide the rest of the audio by expected durations, where it is too short to be aligned."""
        words = range(len(self._times), last)
        begin, end = self._remaining_span()
        total_hops = sum(self._aligner.expected_hops(number - self._segment_word) for number in words)
        done_hops, last_end = 0.0, begin
        for number in words:
            done_hops += self._aligner.expected_hops(number - self._segment_word)
            self._append_time((last_end, last_end := begin + int((end - begin) * done_hops / total_hops)))

    def _remaining_span(self) -> tuple[int, int]:
        """The hops of the segment after the last word that has a time, counted from the segment's start."""
        last_ms = self._times[-1].end_ms if self._times else 0
        return max(0, last_ms // HOP_MS - self._segment_hop), self._hops - self._segment_hop

    def _append_time(self, span: tuple[int, int]) -> None:
        word = self._words[len(self._times)]
        begin_ms = max(self._ms(span[0]), self._times[-1].end_ms if self._times else 0)
        text, end_ms = join_halves(word.text), max(begin_ms, self._ms(span[1]))
        self._times.append(WordTime(text, word.start, word.end, begin_ms, end_ms))

    def _ms(self, hop: int) -> int:
        """Time in the utterance of a hop counted from the segment's start."""
        return (self._segment_hop + hop) * HOP_MS
