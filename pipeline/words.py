"""When each word is heard: an estimate from the text's length and the pauses in the audio.

The talker does not say which word it speaks. Within one generation (a segment) words take time in proportion
to their weight, about one a letter; silences are left out of that time, and a long one fixes the nearest
punctuation mark in it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from .speech import SAMPLE_RATE_HZ, Pcm, WordTime

DEFAULT_MS_PER_WEIGHT = 52.0
"""English at an ordinary pace, about 19 letters and blanks a second of sound."""

_WINDOW = SAMPLE_RATE_HZ // 50
_WINDOW_MS = 20
_PAUSE_MS = 200
_MARGIN_MS = 160
"""Speech that must follow a word before it is given out; a pause may still move what is nearer."""
_SILENCE_RMS = 0.008
_SILENCE_RATIO = 0.06

_WIDE = r"\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_WIDE}][^\w\s]*|[^\s{_WIDE}]+")
_PAUSES = re.compile(r"[,;:.?!…，、。！？；：—-][\"'”’)\]」』）】]*$")  # noqa: RUF001 - marks of other scripts


@dataclass(frozen=True, slots=True)
class _Word:
    text: str
    start: int
    end: int
    weight: float
    pauses: bool


class SpokenClock:
    """Word times of one utterance, in milliseconds of its audio; fed in the order things happen."""

    def __init__(self, ms_per_weight: float = DEFAULT_MS_PER_WEIGHT) -> None:
        self._pace = ms_per_weight
        """Expected, learnt from segment to segment."""
        self._source = ""
        self._scanned = 0
        self._words: list[_Word] = []
        self._times: list[WordTime] = []
        self._given = 0
        self._finished = False
        self._audio_ms = 0.0
        self._rest: Pcm = np.zeros(0, np.float32)
        self._loudest = 0.0
        self._begin_segment()

    @property
    def ms_per_weight(self) -> float:
        """The pace in force; a good first value for the next utterance of the same voice."""
        return self._pace

    def text(self, source: str, committed_chars: int) -> None:
        """The client's text so far, of which `committed_chars` characters have gone to the talker."""
        self._source = source
        self._scan(committed_chars, whole=False)

    def audio(self, pcm: Pcm) -> None:
        """The next audio, float32 [n] at 24 kHz."""
        pcm = np.concatenate([self._rest, pcm]) if len(self._rest) else pcm
        count = len(pcm) // _WINDOW
        windows = pcm[: count * _WINDOW].reshape(count, _WINDOW)
        self._rest = pcm[count * _WINDOW :].copy()
        for power in np.einsum("ij,ij->i", windows, windows) / _WINDOW:
            self._hear(float(power) ** 0.5)

    def segment_end(self, source_end: int | None = None) -> None:
        """One generation is complete: the audio so far speaks the text up to `source_end` (None: all
        committed).
        """
        end = len(self._source) if source_end is None else source_end
        self._scan(end, whole=True)
        last = len(self._times)
        while last < len(self._words) and self._words[last].start < end:
            last += 1
        self._close_segment(last)
        self._begin_segment()

    def finish(self) -> None:
        """Text and audio are complete; every word has its time from now on."""
        self._scan(len(self._source), whole=True)
        self._close_segment(len(self._words))
        self._begin_segment()
        self._finished = True

    def take_words(self) -> list[WordTime]:
        """Words whose time is certain enough since the last call, in order, never revised."""
        while len(self._times) < len(self._words):
            word = self._words[len(self._times)]
            end = self._place(self._fixed[0] + word.weight)
            if end + _MARGIN_MS > self._active_ms():
                break
            self._fix(word, end)
        taken = self._times[self._given :]
        self._given = len(self._times)
        return taken

    def spoken_until(self, played_ms: int) -> int:
        """Offset of the first character not yet heard at `played_ms`; it moves from word to word."""
        for time in self._times:
            if time.end_ms > played_ms:
                return time.start
        weight = self._fixed[0]
        for word in self._words[len(self._times) :]:
            weight += word.weight
            end = self._place(weight)
            if end > self._active_ms() or self._wall_ms(end) > played_ms:
                return word.start
        if self._finished:
            return len(self._source)
        return self._words[-1].end if self._words else 0

    # Text

    def _scan(self, until: int, *, whole: bool) -> None:
        for match in _WORD.finditer(self._source, self._scanned):
            settled = match.end() <= until and match.end() < len(self._source)
            if not settled and not (whole and match.start() < until):
                return
            self._words.append(
                _Word(match[0], match.start(), match.end(), _weight(match[0]), bool(_PAUSES.search(match[0])))
            )
            self._scanned = match.end()

    # Audio: time is counted in active milliseconds, with the pauses left out

    def _begin_segment(self) -> None:
        self._sounds: list[list[float]] = []
        """Stretches of speech, [begin, end] in milliseconds of the utterance's audio."""
        self._segment_ms = self._audio_ms
        self._fixed = (0.0, 0.0)
        """Weight and active time of the last word given out."""
        self._anchors: list[tuple[float, float]] = []
        """Pauses ahead of it that were matched to punctuation, likewise."""
        self._segment_weight = 0.0

    def _hear(self, rms: float) -> None:
        begin = self._audio_ms
        self._audio_ms += _WINDOW_MS
        self._loudest = max(self._loudest, rms)
        if rms < max(_SILENCE_RMS, _SILENCE_RATIO * self._loudest):
            return
        if self._sounds and begin - self._sounds[-1][1] < _PAUSE_MS:
            self._sounds[-1][1] = self._audio_ms
            return
        if self._sounds:
            self._anchor()
        self._sounds.append([begin, self._audio_ms])

    def _anchor(self) -> None:
        """A pause just ended: match it to the nearest punctuation mark, if one is near."""
        at = self._active_ms()
        from_weight, from_ms = self._anchors[-1] if self._anchors else self._fixed
        expected = from_weight + (at - from_ms) / self._pace
        best: tuple[float, float] | None = None
        weight = self._fixed[0]
        for word in self._words[len(self._times) :]:
            weight += word.weight
            if word.pauses and weight > from_weight:
                miss = abs(weight - expected)
                if miss <= max(8.0, 0.35 * (expected - from_weight)) and (best is None or miss < best[0]):
                    best = (miss, weight)
        if best is not None:
            self._anchors.append((best[1], at))

    def _active_ms(self) -> float:
        return sum(end - begin for begin, end in self._sounds)

    def _wall_ms(self, active_ms: float) -> float:
        for begin, end in self._sounds:
            if active_ms <= end - begin:
                return begin + active_ms
            active_ms -= end - begin
        return self._sounds[-1][1] if self._sounds else self._segment_ms

    # Words in time

    def _place(self, weight: float) -> float:
        """Active time at which `weight` has been spoken."""
        from_weight, from_ms = self._fixed
        for to_weight, to_ms in self._anchors:
            if weight <= to_weight:
                return from_ms + (to_ms - from_ms) * (weight - from_weight) / (to_weight - from_weight)
            from_weight, from_ms = to_weight, to_ms
        return from_ms + (weight - from_weight) * self._pace

    def _fix(self, word: _Word, end: float) -> None:
        begin_ms = self._onset_ms(self._fixed[1])
        if self._times:
            begin_ms = max(begin_ms, self._times[-1].end_ms)
        end_ms = max(begin_ms, round(self._wall_ms(end)))
        self._times.append(WordTime(word.text, word.start, word.end, begin_ms, end_ms))
        self._fixed = (self._fixed[0] + word.weight, end)
        self._anchors = [anchor for anchor in self._anchors if anchor[0] > self._fixed[0]]

    def _onset_ms(self, active_ms: float) -> int:
        """As `_wall_ms`, but after a pause rather than before it."""
        for begin, end in self._sounds:
            if active_ms < end - begin:
                return round(begin + active_ms)
            active_ms -= end - begin
        return round(self._sounds[-1][1] if self._sounds else self._segment_ms)

    def _close_segment(self, last: int) -> None:
        """Spread the words up to index `last` over what is left of the segment's audio."""
        words = self._words[len(self._times) : last]
        total = self._fixed[0] + sum(word.weight for word in words)
        active = self._active_ms()
        self._anchors = [a for a in self._anchors if a[0] < total and a[1] < active]
        if total > self._fixed[0]:
            self._anchors.append((total, active))
        for word in words:
            self._fix(word, self._place(self._fixed[0] + word.weight))
        if total and active:
            # One odd segment must not spoil the pace.
            self._pace += 0.3 * (min(max(active / total, 0.6 * self._pace), 1.6 * self._pace) - self._pace)


def _weight(word: str) -> float:
    """About the number of letters it takes to spell the word as it is spoken."""
    spelled = len(word) > 1 and word.isupper() and not set(word) & set("AEIOUY")
    weight = 1.0
    for char in word:
        if char.isdigit():
            weight += 4
        elif char.isalpha():
            weight += 3 if spelled or char >= "\u3040" else 1
        elif char in "$€£%&+=@":
            weight += 5
    return weight
