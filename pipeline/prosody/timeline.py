"""Converts times between the talker's speech and the audio that the client gets."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace

from voxgate.codecs.pcm import SAMPLE_RATE_HZ

from ..interface import WordTime

SAMPLES_PER_MS = SAMPLE_RATE_HZ // 1000


@dataclass(frozen=True, slots=True)
class _Section:
    """Speech of one rate without a pause in it. Positions are in samples."""

    offset: int
    """Characters of the plain text before it."""
    speech: int
    """Where it begins in the speech."""
    audio: int
    """Where it begins in the audio, behind the pauses before it."""
    rate: float

    def to_speech(self, audio: int) -> int:
        """Converts a position in the audio; the silence before the section is at its beginning."""
        return self.speech + int(max(0, audio - self.audio) * self.rate)

    def to_audio(self, speech: int) -> int:
        return self.audio + round((speech - self.speech) / self.rate)


@dataclass(frozen=True, slots=True)
class TimelinePause:
    """Where a silence begins, in samples of the speech and of the audio."""

    speech: int
    audio: int


class Timeline:
    """The sections of one utterance, a piecewise linear map of time.

    *Speech* is what the talker made and was not cut off; *audio* is what the client gets, stretched and with pauses.
    """

    def __init__(self, rate: float) -> None:
        self._sections = [_Section(0, 0, 0, rate)]
        self._begins = [0]
        """Position in the audio at which the section before each one ends."""
        self.pauses: list[TimelinePause] = []
        """Silences before sections, in order."""
        self._offsets = [0]

    @property
    def rate(self) -> float:
        """Rate of the last section."""
        return self._sections[-1].rate

    def begin(self, offset: int, speech: int, silence: int, rate: float) -> None:
        """Begins a section behind `speech` samples of speech in all and `silence` samples of a pause.

        `offset`: characters of the plain text before it.
        """
        end = self._sections[-1].to_audio(speech)
        self._sections.append(_Section(offset, speech, end + silence, rate))
        self._begins.append(end)
        if silence:
            self.pauses.append(TimelinePause(speech, end))
        self._offsets.append(offset)

    def speech_samples(self, audio: int) -> int:
        """Returns how much speech lies in the first `audio` samples of the audio."""
        number = bisect_right(self._begins, audio) - 1
        speech = self._sections[number].to_speech(audio)
        return speech if number + 1 == len(self._sections) else min(speech, self._sections[number + 1].speech)

    def audio_samples(self, speech: int) -> int:
        """Returns where position `speech` of the speech is in the audio; between two sections, in the second."""
        number = bisect_right(self._sections, speech, key=lambda section: section.speech) - 1
        return self._sections[number].to_audio(speech)

    def audio_before(self, speech: int) -> int:
        """As `audio_samples`, but between two sections in the first."""
        number = max(0, bisect_left(self._sections, speech, key=lambda section: section.speech) - 1)
        return self._sections[number].to_audio(speech)

    def offset_at(self, speech: int) -> int:
        """Returns the characters of the plain text before the section at position `speech`, the second of two."""
        return self._sections[bisect_right(self._sections, speech, key=lambda section: section.speech) - 1].offset

    @property
    def stretched(self) -> bool:
        """Whether a section has another rate than the voice's own."""
        return any(section.rate != 1 for section in self._sections)

    def speech_ms(self, audio_ms: int) -> int:
        """Converts a time in the audio to one in the speech."""
        return self.speech_samples(audio_ms * SAMPLES_PER_MS) // SAMPLES_PER_MS

    def locate(self, words: Iterable[WordTime]) -> list[WordTime]:
        """Converts times of words from speech to audio; the words' offsets are those of the plain text."""
        if len(self._sections) == 1 and self.rate == 1:
            return list(words)
        return [self._locate(word) for word in words]

    def _locate(self, word: WordTime) -> WordTime:
        # The text decides the section: the times of words at its ends may lie a little outside.
        number = bisect_right(self._offsets, word.start) - 1
        section = self._sections[number]
        end = self._begins[number + 1] if number + 1 < len(self._sections) else None

        def convert(ms: int) -> int:
            audio = max(section.audio, section.to_audio(ms * SAMPLES_PER_MS))
            return (audio if end is None else min(audio, max(section.audio, end))) // SAMPLES_PER_MS

        return replace(word, start_ms=convert(word.start_ms), end_ms=convert(word.end_ms))
