"""One utterance between its client and its speech: text in, numbered audio out at playback speed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from voxgate.codecs.format import OutputFormat
from voxgate.codecs.pcm import FRAME_MS, FRAME_SAMPLES, SAMPLE_RATE_HZ
from voxgate.pipeline.errors import EmptyText, TextTooLong
from voxgate.pipeline.interface import Milestones, Speech, SpeechChunk, SpeechCut, SpeechRequest, VisemeTime, WordTime

from ..errors import NotHeld, RateLimited, UtteranceEnded
from ..messages import (
    ContinuedMessage,
    DoneMessage,
    GeneratedMessage,
    InterruptedMessage,
    RetractedMessage,
    StartedFormat,
    StartedMessage,
    StarvingMessage,
    VisemesMessage,
    WordsMessage,
)
from ..observability.events import UtteranceRecord
from .admission import Ticket
from .checkpoints.trail import NO_TRAIL
from .interruption.hold import Hold
from .lifecycle import ENDED, Event, State, follow
from .outbox import AudioEncoder, AudioPacket, Outbox
from .pacer import TIMER_SLACK_S, Pacer
from .retraction.accepted_text import AcceptedText, TextMark
from .retraction.progress import WAIT_S, PendingRetraction, Rewinding
from .retraction.told import ShapesInOrder, TimesInOrder, Told
from .slots.speakable import SpeakableText
from .text_shortage import TextShortage

_UNDERRUN_MIN_S = 0.01
"""Shorter underruns are timer jitter, which a player's buffer absorbs."""
_DURATION_FACTOR = 3
"""Longest time of an utterance, in durations of its audio."""
_TEXT_LATENCY_S = 0.3
"""Time from new text to audio. An underrun within this time after the talker waited for text is the client's."""


RETRY_MS = 200
"""Milliseconds after which a second retraction of an utterance may be tried again."""


class ServerUtterance:
    """The state of one utterance; synchronous, with time as an argument.

    A method that the state does not allow (see `lifecycle`) raises IllegalEvent and changes nothing. `send_ahead_ms` is
    the pacer's lead, None without pacing; `outbox_ms` bounds the audio that waits to be sent. `starving_ms`: as of
    `TextShortage`. `kept_ms`: as of `Hold`; 0 for an utterance that is never held.
    """

    def __init__(
        self,
        name: str,
        number: int,
        request: SpeechRequest,
        audio_format: OutputFormat,
        encoder: AudioEncoder,
        *,
        max_characters: int,
        send_ahead_ms: int | None,
        outbox_ms: int,
        words: bool,
        raw: bool = False,
        starving_ms: int | None = None,
        kept_ms: int = 0,
        utf16: bool = False,
        traceparent: str | None = None,
    ) -> None:
        self.name = name
        """The client's name for it."""
        self.number = number
        """Its number in audio headers, unique on the socket."""
        self.id = ""
        """Its name in logs and traces, unique over all gateways."""
        self.request = request
        self.words = words
        """Whether the client wants word times."""
        self.raw = raw
        """Whether its audio is sent without headers."""
        self.trail = NO_TRAIL
        """Its checkpoints."""
        self.told_words, self.told_visemes = Told(), Told()
        self.word_times, self._shapes = TimesInOrder(), ShapesInOrder()
        self.retraction: PendingRetraction | None = None
        """Text to be taken back once the place of the cut is known."""
        self.rewinding: Rewinding | None = None
        """Set while another speech is to follow the present one."""
        self._former: tuple[Speech, int] | None = None
        """The speech before the present one, and the length of the text that it may have spoken; it answers while the
        present one repeats what was sent."""
        self._traceparent = traceparent
        self.paced = send_ahead_ms is not None
        self.outbox = Outbox(number, audio_format.sample_rate_hz, outbox_ms)
        self.pacer = Pacer(audio_format.sample_rate_hz, send_ahead_ms)
        self._shortage = TextShortage(self.pacer, self.outbox, audio_format.sample_rate_hz, starving_ms)
        self.hold = Hold(self.pacer, self.outbox, audio_format.sample_rate_hz, kept_ms, paced=self.paced)
        self.state = State.OPEN
        self.ticket: Ticket | None = None
        self.speech: Speech | None = None
        """Open once it has a talker slot; kept afterwards, because it maps playback time to text."""
        self.speech_closed = False
        """Whether the speech is closed or about to be, and its slot released."""
        self.slow_warning_sent = False
        self.record_emitted = False
        self._format = audio_format
        self._encoder = encoder
        self._max_characters = max_characters
        self.text = AcceptedText(utf16=utf16)
        self._passed = TextMark()
        """Text that the speech has got."""
        self._speakable = SpeakableText(request.markup)
        self._heard_ms = 0
        """Milliseconds that the client had heard when it interrupted."""
        self._frames = 0
        self._pushed_samples = 0
        """Samples of speech that were encoded."""
        self._frames_credited = 0
        self._started_s = 0.0
        self._queued_s: float | None = None
        self._granted_s: float | None = None
        """When it first got a slot."""
        self._sent_before_slot = 0
        """Samples sent before it got its present slot."""
        self._milestones: Milestones | None = None
        """Of the speech that made the first audio, if it is not the present one."""
        self.lost_s: float | None = None
        """Since when it waits for the next engine; None while it does not."""
        self.renewed = False
        """Whether the next engine was there before its loss was noticed."""
        self.continued = 0
        """Times it went on after the loss of the engine."""
        self._seam = False
        """Whether the next packet may be late because of such a loss."""
        self._silence_s = 0.0
        """Time without audio because of such losses."""
        self._first_text_s: float | None = None
        self._first_packet_s: float | None = None
        self._active_s = 0.0
        """When the client last sent text or was last sent audio."""
        self._text_gap_s = -math.inf
        """When the talker last had to wait for text."""
        self._length_told = False
        self._underruns = 0
        self._underrun_s = 0.0

    @property
    def characters(self) -> int:
        """Length of the text accepted so far, in the client's units."""
        return self.text.offsets.of(self.text.length)

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def queued(self) -> bool:
        """Whether it waits for a talker slot."""
        return self.ticket is not None and not self.ticket.granted and not self.speech_closed

    @property
    def queue_deadline_s(self) -> float:
        """When a queued utterance has waited too long; infinity otherwise."""
        return self.ticket.deadline_s if self.ticket is not None and self.queued else math.inf

    def open(self, utterance_id: str, now_s: float) -> None:
        """Begins its life, without a slot."""
        self.id = utterance_id
        self._started_s = self._active_s = now_s

    def enqueue(self, ticket: Ticket, now_s: float) -> None:
        """Sets its ticket, which it gets once `needs_slot` was reported."""
        self.state = follow(self.state, Event.ENQUEUE)
        self.ticket = ticket
        self._sent_before_slot = self.pacer.sent_samples
        if self._queued_s is None:
            self._queued_s = now_s

    # From the client

    def check_text(self, fragment: str) -> State:
        """Returns the state after `fragment`. Raises TextTooLong, IllegalEvent."""
        received = self.text.length + len(fragment)
        state = follow(self.state, Event.TEXT)
        if received > self._max_characters:
            raise TextTooLong(self._max_characters, received)
        return state

    def add_text(self, fragment: str, now_s: float) -> bool:
        """Appends text; returns whether the utterance now has to ask for a slot (`enqueue`).

        Raises TextTooLong; then nothing of the fragment is accepted.
        """
        state = self.check_text(fragment)
        if not fragment:
            return False  # language models begin with an empty fragment, which does not start the time to first audio
        if (speech := self._listening_speech) is not None:
            self._note_text_gap(speech, now_s)
            speech.push_text(fragment)
        self.text.add(fragment)
        if speech is not None:
            self._passed = self.text.end
        if self._first_text_s is None:
            self._first_text_s = now_s
        self._active_s = now_s
        self._shortage.on_text(now_s)
        self.state = state
        return self.needs_slot_again or (state is State.OPEN and self._speakable.push(fragment))

    @property
    def needs_slot_again(self) -> bool:
        """Whether it has given its slot up and now has to ask for one (`enqueue`)."""
        if self.hold.held or self.ticket is not None or self.state not in (State.SUSPENDED, State.SUSPENDED_ENDED):
            return False
        return (speech := self._listening_speech) is not None and speech.needs_slot

    @property
    def _listening_speech(self) -> Speech | None:
        """The speech that gets the client's text now; None while none is open, or another one will follow."""
        return self.speech if self.retraction is None and self.rewinding is None else None

    @property
    def text_needs_slot(self) -> bool:
        """Whether a flush or the end of the text has to be preceded by `enqueue`."""
        return self.state is State.OPEN and self._speakable.complete()

    def flush(self, now_s: float) -> None:
        """Has the text so far spoken without waiting for more."""
        state = follow(self.state, Event.FLUSH)
        self.text.flush()
        if (speech := self._listening_speech) is not None:
            self._note_text_gap(speech, now_s)
            speech.flush()
            self._passed = self.text.end
        self._shortage.on_text(now_s)
        self.state = state

    def end(self, now_s: float) -> None:
        """Ends the text. Raises EmptyText when there is nothing to say; the caller then fails the utterance."""
        if self.state is State.OPEN:
            raise EmptyText("the utterance must have text to speak")
        state = follow(self.state, Event.END)
        if (speech := self._listening_speech) is not None:
            self._note_text_gap(speech, now_s)
            speech.end()
        self.state = state

    def _note_text_gap(self, speech: Speech, now_s: float) -> None:
        if self._first_packet_s is not None and speech.waiting_for_text:
            self._text_gap_s = now_s

    def interrupt(self, played_ms: int | None, now_s: float) -> None:
        """Stops the utterance where the client has played it. Without `played_ms`, the playback clock decides."""
        self.state = follow(self.state, Event.INTERRUPT)
        if not self.hold.held:
            sent_ms = self._ms(self.pacer.sent_samples)
            heard_ms = self._ms(self.pacer.position_samples(now_s)) if played_ms is None else min(played_ms, sent_ms)
            self._heard_ms = heard_ms
        self.outbox.drop()
        self.hold.drop()

    def begin_hold(self, played_ms: int | None, unsent: int | None, hold_ms: int, now_s: float) -> None:
        """Stops the utterance as `interrupt` does, for `hold_ms`; of one that is held, the position stays.

        `unsent`: the first sample of packets that were taken and not sent.
        """
        self.state = follow(self.state, Event.HOLD)
        position = 0
        if not self.hold.held:
            pre_skip, clock = self._encoder.pre_skip, self.pacer.position_samples(now_s)
            reached = max(self.pacer.sent_samples, clock)
            if unsent is not None:
                reached = min(reached, unsent)
            heard_ms = self._ms(max(0, clock - pre_skip)) if played_ms is None else played_ms
            self._heard_ms = min(heard_ms, self._ms(max(0, reached - pre_skip)))
            # Of whole milliseconds, so that the client knows the very sample.
            position = min(self._heard_ms * self._format.sample_rate_hz // 1000 + pre_skip, reached)
        self.hold.begin(position, hold_ms, now_s)

    def end_hold(self, now_s: float) -> ContinuedMessage:
        """Goes on from where the hold began; returns the message that says with which packet. Raises NotHeld."""
        state = follow(self.state, Event.CONTINUE)
        if not self.hold.held:
            raise NotHeld(f"utterance {self.name!r} must be held to be continued, and it speaks")
        self.state = state
        seam = self.hold.end(now_s)
        self._active_s = min(now_s, self._active_s + seam.held_s)
        if seam.moved:
            self._heard_ms = self._ms(max(0, seam.position_samples - self._encoder.pre_skip))
        return ContinuedMessage(
            utterance=self.name, seq=seam.seq, skip_samples=seam.skip_samples, played_ms=self._heard_ms
        )

    def find_spoken_text(self) -> bool:
        """Does a part of the work for `interrupted`; returns whether more is left for later turns of the event loop."""
        speech, _ = self._speech_heard
        return speech is not None and bool(self._heard_ms) and speech.catch_up()

    @property
    def _speech_heard(self) -> tuple[Speech | None, int]:
        """The speech that knows the text of the audio that was sent, and how much of the text it may have spoken."""
        if self._former is not None and self.outbox.repeating:
            return self._former
        return self.speech, self.text.length if self.rewinding is None else self.rewinding.spoken_limit

    def interrupted(self, *, with_text: bool) -> InterruptedMessage:
        """Returns the answer to an interrupt, with the text that was heard; without `with_text`, all as remaining."""
        text = str(self.text)
        speech, limit = self._speech_heard
        spoken = speech.spoken_until(self._heard_ms) if with_text and speech and self._heard_ms else 0
        spoken = max(0, min(spoken, limit, len(text)))
        return InterruptedMessage(
            utterance=self.name,
            played_ms=self._heard_ms,
            text_spoken=text[:spoken],
            text_remaining=text[spoken:],
            hold_ms=self.hold.hold_ms,
        )

    # Text that is taken back

    def retract(self, characters: int, message_id: str | None, now_s: float) -> None:
        """Opens the text again, of which all but `characters` are to be taken back, in the client's units.

        `take_back` follows once `can_cut`. Raises UtteranceEnded where the end of the audio was sent, RateLimited.
        """
        state = follow(self.state, Event.RETRACT)
        if self.retraction is not None:
            raise RateLimited("a retraction must follow the answer to the one before", retry_after_ms=RETRY_MS)
        if self.outbox.last_skipped or (self.state is State.DRAINING and not self.outbox.reopen()):
            raise UtteranceEnded(f"the audio of utterance {self.name!r} has been sent to its end")
        kept = min(self.text.offsets.code_points(characters), self.text.length)
        ended = self.state in (State.ENDING, State.QUEUED_ENDED, State.SUSPENDED_ENDED, State.DRAINING)
        self.retraction = PendingRetraction(kept, self.text.end, message_id, now_s + WAIT_S, ended)
        self.retraction.speech_over = self.state is State.DRAINING
        self._length_told = False
        self.state = state

    @property
    def can_cut(self) -> bool:
        """Whether the speech has made again what was sent elsewhere, or before the last retraction."""
        return self.rewinding is None and not self.outbox.repeating

    def take_back(self, cut: SpeechCut | None) -> RetractedMessage:
        """Takes the text back; returns the answer. `cut`: where the present speech ends; None where none is open.

        Then it is to be closed, and `reopen` follows.
        """
        pending, self.retraction = self.retraction, None
        assert pending is not None  # `retract` was called
        kept, flush_at = pending.kept, None
        if cut is not None and cut.divides:
            kept, flush_at = max(kept, cut.characters), cut.characters
        elif cut is not None and pending.ended and kept == pending.end.characters:
            flush_at = kept  # as the end was: what follows is another generation
        void_from = kept if cut is None else cut.characters if cut.divides else self.text.word_begin(kept)
        removed = self.text.take_back(kept, pending.end, flush_at)
        samples = None
        if cut is not None:
            assert self.speech is not None
            self._rewind(self.speech, cut, kept, void_from)
            samples = cut.samples * self._format.sample_rate_hz // SAMPLE_RATE_HZ if cut.divides else None
        else:
            self._passed = TextMark()
        of = self.text.offsets.of
        return RetractedMessage(
            id=pending.message_id,
            utterance=self.name,
            characters=of(kept),
            text=removed,
            void_from=of(void_from),
            flush_at=of(flush_at) if flush_at else None,
            samples=samples,
            audio_ms=None if samples is None else self._ms(samples),
        )

    def _rewind(self, speech: Speech, cut: SpeechCut, kept: int, void_from: int) -> None:
        if self._milestones is None and speech.milestones.first_pcm_s is not None:
            self._milestones = speech.milestones
        self.outbox.rewind(cut.settled_samples if cut.divides else math.inf)
        self._encoder = self._encoder.renew()
        self._pushed_samples = self._frames = self._frames_credited = 0
        self.told_words.rewind(void_from)
        cut_ms = cut.samples * 1000 // SAMPLE_RATE_HZ if cut.divides else math.inf
        self.word_times.rewind(void_from, cut_ms)
        self.told_visemes.rewind(cut_ms)
        self._shapes.rewind(cut_ms)
        self.rewinding = Rewinding(cut.past, speech.seed, cut.characters if cut.divides else kept)
        if self.has_slot:
            self.state = follow(self.state, Event.SUSPEND)

    def has_nothing_to_queue_for(self) -> bool:
        """Judges the text that is left anew; returns whether it waits for a slot without anything to say."""
        self._speakable = SpeakableText(self.request.markup)
        return not self._speakable.push(str(self.text)) and self.state is State.QUEUED

    def withdraw(self) -> Ticket | None:
        """Its text was taken back before it got a slot; returns the ticket to release."""
        self.state = follow(self.state, Event.WITHDRAW)
        ticket, self.ticket = self.ticket, None
        return ticket

    def on_rewound(self) -> Rewinding:
        """The old speech is closed, and with it its ticket if the utterance was drained."""
        assert self.rewinding is not None  # it was begun
        self.rewinding.closed = True
        if self.speech_closed:
            self.ticket, self.speech_closed = None, False
        return self.rewinding

    def reopen(self, speech: Speech) -> None:
        """Passes the text to the speech that follows; `resume` comes next. Raises EmptyText."""
        assert self.speech is not None
        assert self.rewinding is not None
        self._former = self.speech, self.rewinding.spoken_limit
        self.speech, self.rewinding, self._passed = speech, None, TextMark()
        self._pass_text(speech, ended=self.state in (State.SUSPENDED_ENDED, State.QUEUED_ENDED))

    # From the pipeline

    def admit(self, speech: Speech) -> StartedMessage:
        """Passes queued text to the opened `speech`; returns the message that announces it. Raises EmptyText."""
        state = follow(self.state, Event.ADMIT)
        self.speech = speech
        if self.ticket is not None:
            self._granted_s = self.ticket.granted_s
        self._pass_text(speech, ended=state is State.ENDING)
        self.state = state
        rate_hz = self._format.sample_rate_hz
        return StartedMessage(
            utterance=self.name,
            number=self.number,
            voice=self.request.voice,
            language=self.request.language,
            seed=speech.seed,
            format=StartedFormat(
                codec=self._format.codec,
                sample_rate=rate_hz,
                bitrate=self._format.bitrate if self._format.has_bitrate else None,
                packet_ms=self._format.packet_ms,
                pre_skip=self._encoder.pre_skip,
            ),
            packet_samples=self._format.packet_ms * rate_hz // 1000,
        )

    def _pass_text(self, speech: Speech, *, ended: bool) -> None:
        """Passes the text that the speech has not got, up to a retraction that is pending. Raises EmptyText."""
        end = self.text.end
        if self.retraction is not None:
            end, ended = self.retraction.end, self.retraction.ended
        for piece in self.text.pieces(self._passed, end):
            if piece is None:
                speech.flush()
            else:
                speech.push_text(piece)
        self._passed = end
        if ended:
            speech.end()

    def suspend(self) -> None:
        """Its slot is to be given up; `on_suspended` or `resume` follows."""
        self.state = follow(self.state, Event.SUSPEND)

    def on_suspended(self) -> Ticket | None:
        """Its slot is given up; returns the ticket to release."""
        ticket, self.ticket = self.ticket, None
        return ticket

    @property
    def has_slot(self) -> bool:
        """Whether it has a slot in the engine, as far as is known."""
        return self.state in (State.SPEAKING, State.ENDING)

    @property
    def awaits_slot(self) -> bool:
        """Whether it goes on as soon as its ticket has a slot."""
        return self.lost_s is not None or self.state in (State.QUEUED, State.QUEUED_ENDED)

    def lose(self, now_s: float) -> None:
        """Its slot was lost with the engine; `resume` follows."""
        if self.has_slot:
            self.state = follow(self.state, Event.SUSPEND)
        self.lost_s, self._seam = now_s, True

    def resume(self, now_s: float) -> None:
        """It has a slot again, or keeps its own."""
        self.state = follow(self.state, Event.ADMIT)
        self.renewed = False
        if self.lost_s is not None:
            self.lost_s = None
            self.continued += 1
            self._active_s = now_s

    def on_audio(self, chunk: SpeechChunk) -> None:
        """Encodes a chunk into the outbox, frame by frame, so that it is known which frame completes a packet."""
        self._frames += chunk.frames
        if not self.outbox.repeating:
            self._former = None
        for begin in range(0, len(chunk.pcm), FRAME_SAMPLES):
            pcm = chunk.pcm[begin : begin + FRAME_SAMPLES]
            self._pushed_samples += len(pcm)
            self.outbox.put(self._encoder.push(pcm), self._pushed_samples)
        if self.retraction is not None:
            self.retraction.waits = False

    def on_finished(self) -> PendingRetraction | None:
        """Encodes the rest: no chunk follows, unless text is to be taken back.

        Returns a retraction that comes too late: the client has audio from elsewhere that only the end gives.
        """
        late = self.retraction
        if late is not None and not self.outbox.repeating:
            late.speech_over, late.waits = True, False
            return None
        self.retraction = None
        self.state = follow(self.state, Event.SPOKEN)
        self.outbox.put(self._encoder.finish())
        self.outbox.close()
        return late

    def generated(self, now_s: float) -> GeneratedMessage | None:
        """Returns how long the utterance is, once: when its speech is complete and audio of it has to wait."""
        waiting = self.outbox.next_samples
        if self.state is not State.DRAINING or self._length_told or waiting is None:
            return None
        if self.pacer.due_s(waiting, now_s) <= now_s + TIMER_SLACK_S:
            return None
        self._length_told = True
        samples = self._encoder.true_samples
        return GeneratedMessage(utterance=self.name, samples=samples, audio_ms=self._ms(samples))

    def words_message(self, words: Sequence[WordTime]) -> WordsMessage | None:
        """Returns the message for words whose times are known now; None where the client has all of them."""
        of = self.text.offsets.of
        unknown = self.told_words.unknown(words, lambda word: word.start)
        timed = map(self.word_times.place, unknown)
        placed = [replace(word, start=of(word.start), end=of(word.end)) for word in timed]
        return WordsMessage.of(self.name, placed) if placed else None

    def visemes_message(self, visemes: Sequence[VisemeTime]) -> VisemesMessage | None:
        """Returns the message for mouth shapes that are known now; None where the client has all of them."""
        unknown = self.told_visemes.unknown(visemes, lambda viseme: viseme.start_ms)
        placed = self._shapes.place(unknown)
        return VisemesMessage.of(self.name, placed) if placed else None

    def fail(self) -> bool:
        """Ends the utterance with an error; returns whether audio had been sent."""
        self.state = follow(self.state, Event.FAIL)
        self.outbox.drop()
        self.hold.drop()
        return self.outbox.sent_messages > 0

    # To the client, as time passes

    def take_due_packet(self, now_s: float) -> AudioPacket | None:
        """Removes the next packet from the outbox if it is due."""
        samples = self.outbox.next_samples
        if samples is None or self.hold.held or self.pacer.due_s(samples, now_s) > now_s + TIMER_SLACK_S:
            return None
        underrun_s = self.pacer.send(samples, now_s)
        text_was_late = now_s - underrun_s <= self._text_gap_s + _TEXT_LATENCY_S
        if self._seam and samples:
            self._silence_s += underrun_s
            self._seam = self.lost_s is not None
        elif underrun_s > _UNDERRUN_MIN_S and samples and not text_was_late:
            self._underruns += 1
            self._underrun_s += underrun_s
        if self._first_packet_s is None:
            self._first_packet_s = now_s
        self._active_s = now_s
        packet = self.outbox.take()
        self.hold.keep(packet, now_s)
        return packet

    def credit(self, now_s: float) -> None:
        """Reports newly played frames to the speech, which generates only so far ahead of them."""
        played = self._frames_to_credit(now_s)
        if played > self._frames_credited and self.speech is not None and not self.speech_closed:
            self._frames_credited = played
            self.speech.advance(played)

    def _frames_to_credit(self, now_s: float) -> int:
        """Frames of the speech that were played; those that it repeats count as played when they are there."""
        if self.rewinding is not None:
            return 0
        played = self.pacer.frames_played(now_s)
        if not self.outbox.repeating or self._former is None:
            return played
        return min(played, self.outbox.repeated_samples * 1000 // (FRAME_MS * self._format.sample_rate_hz))

    def complete(self) -> DoneMessage | None:
        """Completes the utterance once its last packet has left; returns the closing message, None before that."""
        if self.state is not State.DRAINING or not self.outbox.drained or self.hold.held:
            return None
        self.state = follow(self.state, Event.DRAINED)
        samples = self._encoder.true_samples
        reason = None if self.speech is None else self.speech.finish_reason
        ttfa_s = self._ttfa_s
        return DoneMessage(
            utterance=self.name,
            reason=reason.value if reason is not None else "end",
            characters=self.characters,
            frames=self._frames,
            samples=samples,
            audio_ms=self._ms(samples),
            ttfa_ms=None if ttfa_s is None else round(ttfa_s * 1000),
            pronunciations=tuple(self.speech.pronunciations) or None if self.speech is not None else None,
            pauses=0 if self.speech is None else self.speech.pauses,
        )

    @property
    def _ttfa_s(self) -> float | None:
        """Time to first audio: from the first text to the first packet."""
        if self._first_text_s is None or self._first_packet_s is None:
            return None
        return self._first_packet_s - self._first_text_s

    def to_record(self, protocol: str, key: str, outcome: str) -> UtteranceRecord:
        """Returns its figures for the observers."""
        return UtteranceRecord(
            id=self.id,
            protocol=protocol,
            key=key,
            outcome=outcome,
            voice=self.request.voice,
            codec=self._format.codec,
            characters=self.text.length,
            audio_s=self.pacer.sent_samples / self._format.sample_rate_hz,
            audio_bytes=self.outbox.sent_bytes,
            underruns=self._underruns,
            underrun_s=self._underrun_s,
            continued=self.continued,
            silence_s=self._silence_s,
            started_s=self._started_s,
            queued_s=self._queued_s,
            granted_s=self._granted_s,
            text_s=self._first_text_s,
            first_packet_s=self._first_packet_s,
            milestones=self._milestones or (self.speech.milestones if self.speech is not None else Milestones()),
            traceparent=self._traceparent,
        )

    def lead_s(self, now_s: float) -> float | None:
        """Seconds of audio sent and not played yet; None before the first packet, and while it is held."""
        if self._first_packet_s is None or self.hold.held:
            return None
        return (self.pacer.sent_samples - self.pacer.position_samples(now_s)) / self._format.sample_rate_hz

    def next_wake_s(self, now_s: float) -> float:
        """When it next has something to do without a message or a chunk; infinity for never."""
        if self.ended:
            return math.inf
        if self.hold.held:
            return min(self.hold.until_s, self.queue_deadline_s)
        return min(self._next_audio_s(now_s), self.queue_deadline_s)

    def _next_audio_s(self, now_s: float) -> float:
        """When it has a packet to send, or playback to report."""
        samples = self.outbox.next_samples
        if samples is not None:
            return self.pacer.due_s(samples, now_s)
        if self.queued and self.speech is None:
            return math.inf
        if self.speech_closed:  # drained here: the client had got all audio elsewhere
            return now_s if self.outbox.drained else math.inf
        # Frames played and not credited yet are due now: after an underrun nothing else would wake it.
        return now_s if self._frames_to_credit(now_s) > self._frames_credited else self.pacer.next_frame_s(now_s)

    def text_deadline_s(self, timeout_s: float) -> float:
        """When it has waited `timeout_s` for text without sending audio; infinity once its text is complete."""
        return self._active_s + timeout_s if self._open_text and not self.hold.held else math.inf

    @property
    def _open_text(self) -> bool:
        """Whether its client has text to send, and a slot is not what is missing."""
        return self.state in (State.OPEN, State.SPEAKING, State.SUSPENDED) and self.lost_s is None

    def starved_from_s(self, silence_s: float, total_s: float) -> float:
        """When it has held its slot for nothing for too long; infinity while it does not wait for text.

        That is `silence_s` after the last text and the last audio sent, or `total_s` in all since it got the slot. One
        that is held speaks for nothing as one that waits for text does, from the moment at which it was held.
        """
        granted_s = None if self.ticket is None else self.ticket.granted_s
        if granted_s is None or self.speech is None or self.speech_closed or not self.has_slot:
            return math.inf
        if (speech := self._listening_speech) is None:
            return math.inf
        since_s = self._active_s
        if self.hold.held:
            since_s = self.hold.slot_judged_s
        elif self.state is not State.SPEAKING or self.outbox.next_samples is not None or not speech.waiting_for_text:
            return math.inf
        audio_s = (self.pacer.sent_samples - self._sent_before_slot) / self._format.sample_rate_hz
        return min(max(since_s, granted_s) + silence_s, granted_s + audio_s + total_s)

    def starving_s(self) -> float:
        """When its client is to be told that text is missing; infinity while none is."""
        if (speech := self._listening_speech) is None or self.hold.held:
            return math.inf
        if not self._open_text or not speech.waiting_for_text:
            return math.inf
        return self._shortage.due_s()

    def starving(self, now_s: float) -> StarvingMessage | None:
        """Returns the message that tells the client that text is missing; None while that is not due."""
        if now_s + TIMER_SLACK_S < self.starving_s():
            return None
        self._shortage.tell(now_s)
        return StarvingMessage(utterance=self.name, audio_ms=self._shortage.audio_ms(now_s))

    def deadline_s(self, timeout_s: float) -> float:
        """When it has to be over: `timeout_s` and three times the audio sent so far after its start."""
        audio_s = self.pacer.sent_samples / self._format.sample_rate_hz
        return self._started_s + timeout_s + _DURATION_FACTOR * audio_s

    def stalled_since_s(self) -> float:
        """When the client stopped to play with audio still to come; infinity while it plays, or is to wait."""
        if self.hold.held:
            return math.inf
        return self.pacer.stalled_since_s() if self.outbox.next_samples is not None else math.inf

    def _ms(self, samples: int) -> int:
        return samples * 1000 // self._format.sample_rate_hz
