"""Where speech is cut when text that was not spoken yet is taken back: a pure function of what is known of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from voxgate.codecs.pcm import FRAME_MS

PAUSE_MS = 120
"""Silence between two words from which the break between two generations is not heard as one."""
NEAR_FRAMES = 4
"""How much later the speech is cut where that is in such a pause."""


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """A word of the text; times are in the frames that the talker made, those included that were cut off.

    `start` and `end` are offsets in the client's text, `plain_start` and `plain_end` in the text without markup.
    `start_ms` and `end_ms` are None for a word that is not spoken to its end in the audio so far.
    """

    start: int
    end: int
    plain_start: int
    plain_end: int
    start_ms: int | None
    end_ms: int | None


@dataclass(slots=True)
class GenerationSpan:
    """The frames and the text of a generation; offsets are those of the text without markup."""

    first_frame: int
    first_text: int
    """End of the text that its first token reaches to: with less it would have no token."""
    end_frame: int | None = None
    """None while it goes on."""
    text_end: int | None = None

    def holds(self, word: SpokenWord) -> bool:
        """Whether it speaks `word`, if no generation before does."""
        return self.text_end is None or word.plain_start < self.text_end


@dataclass(frozen=True, slots=True)
class Boundary:
    """A place for a cut: behind `frame` frames, which speak the text up to `plain_end`."""

    frame: int
    plain_end: int
    pause: bool
    """Whether it is in a pause."""
    generation_end: bool = False


def find_cut(
    words: Sequence[SpokenWord],
    generations: Sequence[GenerationSpan],
    end_of: Callable[[int], int],
    *,
    fixed_frames: int,
    known_frames: int,
    kept: int,
    final: bool,
) -> Boundary | None:
    """Returns where to cut; None where the word in progress is not known yet and may be waited for.

    `words`: those whose time is known, in order, and the next one. `end_of` converts an end of plain text to the
    client's. `fixed_frames`: frames that cannot be taken back. `known_frames`: frames in which words were looked for.
    `kept`: offset in the client's text up to which it is to be kept. `final`: nothing can be waited for, so that a word
    may have to be cut.

    Nothing fixed: all is taken back. Otherwise the cut is the last end of a word within the text to be kept; without
    one, the next that is possible, or one in a pause that follows at once.
    """
    if not fixed_frames:
        return Boundary(0, 0, pause=True)
    found = sorted(_boundaries(words, generations, known_frames), key=lambda each: each.frame)
    possible = [each for each in found if each.frame >= fixed_frames]
    within = [each for each in possible if end_of(each.plain_end) <= kept]
    if within:
        return within[-1]
    if possible and possible[0].frame <= known_frames:
        first = possible[0]
        near = (each for each in possible if each.frame <= first.frame + NEAR_FRAMES and each.pause)
        return next(near, first)
    return _within_word(words, generations, fixed_frames) if final else None


def _boundaries(
    words: Sequence[SpokenWord], generations: Sequence[GenerationSpan], known_frames: int
) -> list[Boundary]:
    found = [
        Boundary(each.end_frame, each.text_end, pause=True, generation_end=True)
        for each in generations
        if each.end_frame is not None and each.text_end is not None
    ]
    number = 0
    for word, after in zip(words, [*words[1:], None], strict=True):
        while number < len(generations) and not generations[number].holds(word):
            number += 1
        if number == len(generations) or word.end_ms is None:
            break
        generation = generations[number]
        if generation.text_end is not None and (after is None or not generation.holds(after)):
            continue  # it ends with this word
        divided = after is not None and after.start < word.end
        if divided or word.plain_end < generation.first_text:
            continue
        next_ms = word.end_ms if after is None or after.start_ms is None else max(word.end_ms, after.start_ms)
        last = known_frames if generation.end_frame is None else min(known_frames, generation.end_frame - 1)
        frame = max(generation.first_frame + 1, min(_frame_between(word.end_ms, next_ms), last))
        found.append(Boundary(frame, word.plain_end, pause=next_ms - word.end_ms >= PAUSE_MS))
    return found


def _frame_between(end_ms: int, next_ms: int) -> int:
    """Returns the frame boundary between two words: one frame behind the first where there is room, or the nearest."""
    first, last = -(-end_ms // FRAME_MS), next_ms // FRAME_MS
    return min(first + 1, last) if first <= last else round(end_ms / FRAME_MS)


def _within_word(words: Sequence[SpokenWord], generations: Sequence[GenerationSpan], fixed_frames: int) -> Boundary:
    """Returns the cut behind the fixed frames, wherever that is: the word there counts as spoken."""
    least = max(each.first_text for each in generations if each.first_frame < fixed_frames)
    for word in words:
        later = word.end_ms is None or word.end_ms > fixed_frames * FRAME_MS
        if later and word.plain_end >= least:
            return Boundary(fixed_frames, word.plain_end, pause=False)
    return Boundary(fixed_frames, max(least, words[-1].plain_end if words else 0), pause=False)
