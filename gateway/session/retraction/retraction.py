"""The retraction of one utterance: from the client's request, over the cut, to the speech that follows."""

from __future__ import annotations

import math
from dataclasses import dataclass

from voxgate.codecs.pcm import FRAME_MS, SAMPLE_RATE_HZ
from voxgate.pipeline.interface import CodeRun, Speech, SpeechCut

from ...errors import RateLimited, UtteranceEnded
from ...messages.server import RetractedMessage
from ..outbox import Outbox
from ..text.accepted_text import AcceptedText, TextMark
from .told import ToldTimes

WAIT_S = 0.5
"""Seconds that the end of a word is waited for, at most: a talker has made it by then, or is late in any case."""
RETRY_MS = 200
"""Milliseconds after which a second retraction of an utterance may be tried again."""


@dataclass(slots=True)
class PendingRetraction:
    """Text to be taken back, once it is known where the speech is to be cut."""

    kept: int
    """Offset in the text from which it is taken back, if that was not spoken."""
    end: TextMark
    """The text when the client asked: what comes later stays."""
    message_id: str | None
    deadline_s: float
    """When the end of a word is no longer waited for."""
    ended: bool
    """Whether that text was ended."""
    speech_over: bool = False
    """Whether no audio follows."""
    waits: bool = False
    """Whether nothing changes before more audio comes."""
    repeats: int = -1
    """Packets that were still to be made again when the speech last advanced."""
    advanced_s: float = 0.0
    """When that was."""
    looked_s: float = -math.inf
    """When it was last judged whether it had advanced."""


@dataclass(slots=True)
class Rewinding:
    """The utterance's speech is being closed, and another one follows with these codes."""

    past: tuple[CodeRun, ...]
    seed: int
    spoken_limit: int
    """Length of the text that the closed speech may have spoken."""
    closed: bool = False
    """Whether the old speech no longer uses its slot."""
    due: bool = False
    """Whether a slot was granted before that."""


class Retraction:
    """The state of one utterance's retraction, at most one at a time. Synchronous; time is an argument.

    `begin`, then `take_back` once `can_cut`. If a speech was cut, it is then to be closed (`rewinding`), and `follow`
    comes with the speech behind it.
    """

    def __init__(self, utterance: str, text: AcceptedText, outbox: Outbox, told: ToldTimes, rate_hz: int) -> None:
        """`rate_hz`: of the audio format."""
        self.pending: PendingRetraction | None = None
        """Text to be taken back once the place of the cut is known."""
        self.rewinding: Rewinding | None = None
        """Set while another speech is to follow the present one."""
        self._former: tuple[Speech, int] | None = None
        """The speech before the present one, and the length of the text that it may have spoken; it answers while the
        present one repeats what was sent."""
        self._utterance, self._text, self._outbox, self._told = utterance, text, outbox, told
        self._rate_hz = rate_hz

    @property
    def under_way(self) -> bool:
        """Whether text is to be taken back, or another speech is to follow: the present one gets no more text."""
        return self.pending is not None or self.rewinding is not None

    @property
    def can_cut(self) -> bool:
        """Whether the speech has made again what was sent elsewhere, or before the last retraction."""
        return self.rewinding is None and not self._outbox.repeating

    def stuck_s(self, speech: Speech | None, now_s: float) -> float:
        """Judges `speech`: returns for how long it has spoken all its text and yet not made again what was sent.

        The client then has audio that its text does not give, or pretends to.
        """
        pending, repeats = self.pending, self._outbox.repeats
        assert pending is not None  # `begin` was called
        if repeats != pending.repeats or self.rewinding is not None or speech is None or not speech.waiting_for_text:
            pending.repeats, pending.advanced_s = repeats, now_s
        pending.looked_s = now_s
        return now_s - pending.advanced_s

    def text_to_pass(self, *, ended: bool) -> tuple[TextMark, bool]:
        """Returns up to where a speech gets the text, and whether that is ended; `ended`: whether all of it is."""
        if self.pending is None:
            return self._text.end, ended
        return self.pending.end, self.pending.ended

    def begin(self, characters: int, message_id: str | None, now_s: float, *, ended: bool, speech_over: bool) -> None:
        """All text but `characters`, in the client's units, is to be taken back.

        `ended`: whether the text was ended; `speech_over`: whether all of its audio was made. Raises UtteranceEnded
        where the end of the audio was sent, RateLimited while another retraction is pending; then nothing changes.
        """
        if self.pending is not None:
            raise RateLimited("a retraction must follow the answer to the one before", retry_after_ms=RETRY_MS)
        if self._outbox.last_skipped or (speech_over and not self._outbox.reopen()):
            raise UtteranceEnded(f"the audio of utterance {self._utterance!r} has been sent to its end")
        kept = min(self._text.offsets.code_points(characters), self._text.length)
        self.pending = PendingRetraction(kept, self._text.end, message_id, now_s + WAIT_S, ended, speech_over)

    def take_back(self, speech: Speech | None, cut: SpeechCut | None) -> RetractedMessage:
        """Takes the text back; returns the answer. `cut`: where `speech` ends; None where none is open."""
        pending, self.pending = self.pending, None
        assert pending is not None  # `begin` was called
        kept, flush_at = pending.kept, None
        if cut is not None and cut.divides:
            kept, flush_at = max(kept, cut.characters), cut.characters
        elif cut is not None and pending.ended and kept == pending.end.characters:
            flush_at = kept  # as the end was: what follows is another generation
        void_from = kept
        if cut is not None:  # what follows may continue the word before
            void_from = self._text.word_begin(cut.characters if cut.divides else kept)
        removed = self._text.take_back(kept, pending.end, flush_at)
        self._text.pass_again()
        samples = None
        if cut is None:
            if self._told.anything:  # by another gateway, ahead of audio that was not received
                void_from = samples = 0
                self._told.rewind(0, 0)
        else:
            assert speech is not None
            self.rewinding = Rewinding(cut.past, speech.seed, cut.characters if cut.divides else kept)
            self._outbox.rewind(cut.settled_samples if cut.divides else math.inf)
            self._told.rewind(void_from, cut.samples * 1000 // SAMPLE_RATE_HZ if cut.divides else math.inf)
            samples = cut.samples * self._rate_hz // SAMPLE_RATE_HZ if cut.divides else None
        of = self._text.offsets.of
        return RetractedMessage(
            id=pending.message_id,
            utterance=self._utterance,
            characters=of(kept),
            text=removed,
            void_from=of(void_from),
            flush_at=of(flush_at) if flush_at else None,
            samples=samples,
            audio_ms=None if samples is None else samples * 1000 // self._rate_hz,
        )

    def on_closed(self) -> Rewinding:
        """The speech that was cut is closed."""
        assert self.rewinding is not None  # it was begun
        self.rewinding.closed = True
        return self.rewinding

    def follow(self, cut_off: Speech) -> None:
        """Another speech replaces the one that was cut, and repeats what was sent of it."""
        assert self.rewinding is not None
        self._former = cut_off, self.rewinding.spoken_limit
        self.rewinding = None

    def on_audio(self) -> None:
        """Audio comes."""
        if not self._outbox.repeating:
            self._former = None
        if self.pending is not None:
            self.pending.waits = False

    def on_finished(self) -> bool:
        """No audio follows; returns whether text can still be taken back, which may change that."""
        if self.pending is None or self._outbox.repeating:
            return False
        self.pending.speech_over, self.pending.waits = True, False
        return True

    def drop(self) -> PendingRetraction | None:
        """Forgets the retraction that is pending, which comes too late; returns it."""
        late, self.pending = self.pending, None
        return late

    def speech_heard(self, speech: Speech | None) -> tuple[Speech | None, int]:
        """Returns the speech that knows the text of the audio that was sent, and how much of the text it has at most.

        `speech`: the present one.
        """
        if self._former is not None and self._outbox.repeating:
            return self._former
        return speech, self._text.length if self.rewinding is None else self.rewinding.spoken_limit

    def frames_to_credit(self, played: int) -> int:
        """Of `played` frames, returns those of the present speech; those that it repeats count when they are there."""
        if self.rewinding is not None:
            return 0
        if self._former is None or not self._outbox.repeating:
            return played
        return min(played, self._outbox.repeated_samples * 1000 // (FRAME_MS * self._rate_hz))
