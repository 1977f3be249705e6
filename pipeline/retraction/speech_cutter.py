"""What an utterance knows of its generations, words and pauses, in the terms in which a cut is found."""

from __future__ import annotations

from voxgate.codecs.pcm import FRAME_MS, FRAME_SAMPLES, SAMPLE_RATE_HZ

from ..alignment.word_timing import KnownWord, WordTiming
from ..prosody.timeline import Timeline
from ..text.lexicon.filter import TextFilter
from ..text.token_queue import TokenQueue
from .cut import Boundary, GenerationSpan, SpokenWord, find_cut

STRETCH_SAMPLES = SAMPLE_RATE_HZ // 10
"""Speech on which stretched audio depends beyond its own position, at most."""


class SpeechCutter:
    """Finds where one utterance can be cut. Synchronous; it changes nothing of the utterance."""

    def __init__(self, timing: WordTiming, text_filter: TextFilter, timeline: Timeline) -> None:
        self._timing, self._filter, self._timeline = timing, text_filter, timeline
        self._generations: list[GenerationSpan] = []

    def begin_generation(self, frames: int, tokens: TokenQueue) -> None:
        """The next generation begins behind `frames` frames, with the first of `tokens`, if there is one."""
        first = tokens.next_end if tokens.has_text() else 0
        self._generations.append(GenerationSpan(frames, first))

    def end_generation(self, frames: int, source_end: int) -> None:
        """The present generation ended: so many frames are made in all, and speak the text up to that offset."""
        last = self._generations[-1]
        last.end_frame, last.text_end = frames, source_end

    def keeps_all_read(self, text: str, tokens: TokenQueue, characters: int) -> bool:
        """Whether the first `characters` characters hold all that the talker has read, whatever follows them.

        Text that follows at once may change the last word, and with it its tokens.
        """
        if tokens.last is None:
            return False
        read = self._filter.spans.end(tokens.last.source_end)
        return characters >= len(text) or any(map(str.isspace, text[read:characters]))

    def find(self, samples: int, cut_off: int, known_frames: int, kept: int, *, final: bool) -> Boundary | None:
        """As `find_cut`. `samples`: audio that cannot be taken back. `cut_off`: frames of silence that were cut off."""
        speech = self._timeline.speech_samples(samples)
        if speech and self._timeline.stretched:
            speech += STRETCH_SAMPLES
        fixed_frames = -(-speech // FRAME_SAMPLES) + cut_off if speech else 0
        words = [self._word(each, cut_off * FRAME_MS) for each in self._timing.words_so_far()]
        return find_cut(
            words,
            self._generations,
            self._filter.spans.end,
            fixed_frames=min(fixed_frames, known_frames),
            known_frames=known_frames,
            kept=kept,
            final=final,
        )

    def locate(self, text: str, cut: Boundary, samples: int, cut_off: int) -> tuple[int, int, int]:
        """Returns what of `SpeechCut` a cut gives: `characters`, behind white space, `samples` and `settled_samples`.

        `samples`: audio that cannot be taken back. A pause at the cut of which a part is among them is kept whole.
        """
        speech = max(0, cut.frame - cut_off) * FRAME_SAMPLES
        audio, behind_pause = self._timeline.audio_before(speech), self._timeline.audio_samples(speech)
        if (cut.generation_end or not cut.frame) and audio < min(samples, behind_pause):
            end, audio = self._filter.spans.start(self._timeline.offset_at(speech)), behind_pause
        else:
            end = self._filter.spans.end(cut.plain_end)
        while end and end < len(text) and text[end].isspace():
            end += 1
        return end, audio, audio - STRETCH_SAMPLES if self._timeline.stretched else audio

    def _word(self, word: KnownWord, cut_off_ms: int) -> SpokenWord:
        spans = self._filter.spans
        start, end = spans.start(word.start), spans.end(word.end)
        if word.start_ms is None or word.end_ms is None:
            return SpokenWord(start, end, word.start, word.end, None, None)
        return SpokenWord(start, end, word.start, word.end, word.start_ms + cut_off_ms, word.end_ms + cut_off_ms)
