"""One utterance between its client and its speech: text in, numbered audio out at playback speed."""

from __future__ import annotations

from voxgate.codecs.format import OutputFormat
from voxgate.pipeline.errors import EmptyText, TextTooLong
from voxgate.pipeline.interface import PreparedSpeech, Speech, SpeechChunk, SpeechCut, SpeechRequest

from ..errors import NotHeld
from ..messages.server import (
    ContinuedMessage,
    DoneMessage,
    GeneratedMessage,
    InterruptedMessage,
    RetractedMessage,
    StartedFormat,
    StartedMessage,
)
from ..observability.utterance_figures import Change, UtteranceFigures
from .admission import Ticket
from .checkpoints.trail import NO_TRAIL
from .interruption.hold import Hold
from .interruption.interruption import Interruption
from .lifecycle import ENDED, Event, State, follow
from .outbox import AudioEncoder, AudioPacket, Outbox, SpeechEncoder
from .pacer import TIMER_SLACK_S, Pacer
from .retraction.retraction import PendingRetraction, Retraction, Rewinding
from .retraction.told import ToldTimes
from .slots.speakable import SpeakableText
from .text.accepted_text import AcceptedText
from .text.text_shortage import TextShortage


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
        self.traceparent = traceparent
        self.figures = UtteranceFigures()
        self.paced = send_ahead_ms is not None
        self.outbox = Outbox(number, audio_format.sample_rate_hz, outbox_ms)
        self.pacer = Pacer(audio_format.sample_rate_hz, send_ahead_ms)
        self.shortage = TextShortage(self.pacer, self.outbox, audio_format.sample_rate_hz, starving_ms)
        self.text = AcceptedText(utf16=utf16)
        self.told = ToldTimes(name)
        self.retraction = Retraction(name, self.text, self.outbox, self.told, audio_format.sample_rate_hz)
        self.hold = Hold(self.pacer, self.outbox, audio_format.sample_rate_hz, kept_ms, paced=self.paced)
        self._interruption = Interruption(
            name, self.hold, self.pacer, self.outbox, audio_format.sample_rate_hz, encoder.pre_skip
        )
        self.state = State.OPEN
        self.ticket: Ticket | None = None
        self.prepared_speech: PreparedSpeech | None = None
        """What was prepared of its first speech before it got a slot."""
        self.speech: Speech | None = None
        """Open once it has a talker slot; kept afterwards, because it maps playback time to text."""
        self.speech_closed = False
        """Whether the speech is closed or about to be, and its slot released."""
        self.slow_warning_sent = False
        self.record_emitted = False
        self.audio_format = audio_format
        self._encoder = SpeechEncoder(encoder, self.outbox)
        self._max_characters = max_characters
        self._speakable = SpeakableText(request.markup)
        self._frames_credited = 0
        self._sent_before_slot = 0
        """Samples sent before it got its present slot."""
        self.lost_s: float | None = None
        """Since when it waits for the next engine; None while it does not."""
        self.renewed = False
        """Whether the next engine was there before its loss was noticed."""
        self.active_s = 0.0
        """When the client last sent text or was last sent audio."""
        self._length_told = False

    @property
    def characters(self) -> int:
        """Length of the text accepted so far, in the client's units."""
        return self.text.offsets.of(self.text.length)

    @property
    def sent_in_slot_s(self) -> float:
        """Seconds of audio sent since it got its present slot."""
        return (self.pacer.sent_samples - self._sent_before_slot) / self.audio_format.sample_rate_hz

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def queued(self) -> bool:
        """Whether it waits for a talker slot."""
        return self.ticket is not None and not self.ticket.granted and not self.speech_closed

    def open(self, utterance_id: str, now_s: float) -> None:
        """Begins its life, without a slot."""
        self.id = utterance_id
        self.figures.started_s = self.active_s = now_s

    def enqueue(self, ticket: Ticket, now_s: float) -> None:
        """Sets its ticket, which it gets once `needs_slot` was reported."""
        self.state = follow(self.state, Event.ENQUEUE)
        self.ticket = ticket
        self._sent_before_slot = self.pacer.sent_samples
        self.figures.on_enqueue(now_s)

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
        if (speech := self.listening_speech) is not None:
            self._note_text_gap(speech, now_s)
            speech.push_text(fragment)
        self.text.add(fragment)
        if speech is not None:
            self.text.mark_passed()
        self.figures.on_text(now_s)
        self.active_s = now_s
        self.shortage.on_text(now_s)
        self.state = state
        return self.needs_slot_again or (state is State.OPEN and self._speakable.push(fragment))

    @property
    def needs_slot_again(self) -> bool:
        """Whether it has given its slot up and now has to ask for one (`enqueue`)."""
        if self.hold.held or self.ticket is not None or self.state not in (State.SUSPENDED, State.SUSPENDED_ENDED):
            return False
        # One of which text is to be taken back has to make again what was sent, before it can be cut.
        repeats = self.retraction.pending is not None and not self.retraction.can_cut
        speech = self.speech if repeats and self.retraction.rewinding is None else self.listening_speech
        return speech is not None and speech.needs_slot

    @property
    def listening_speech(self) -> Speech | None:
        """The speech that gets the client's text now; None while none is open, or another one will follow."""
        retraction = self.retraction
        return self.speech if retraction.pending is None and retraction.rewinding is None else None

    @property
    def text_needs_slot(self) -> bool:
        """Whether a flush or the end of the text has to be preceded by `enqueue`."""
        return self.state is State.OPEN and self._speakable.complete()

    def flush(self, now_s: float) -> None:
        """Has the text so far spoken without waiting for more."""
        state = follow(self.state, Event.FLUSH)
        self.text.flush()
        if (speech := self.listening_speech) is not None:
            self._note_text_gap(speech, now_s)
            speech.flush()
            self.text.mark_passed()
        self.shortage.on_text(now_s)
        self.state = state

    def end(self, now_s: float) -> None:
        """Ends the text. Raises EmptyText when there is nothing to say; the caller then fails the utterance."""
        if self.state is State.OPEN:
            raise EmptyText("the utterance must have text to speak")
        state = follow(self.state, Event.END)
        if (speech := self.listening_speech) is not None:
            self._note_text_gap(speech, now_s)
            speech.end()
        self.state = state

    def _note_text_gap(self, speech: Speech, now_s: float) -> None:
        if self.figures.first_packet_s is not None and speech.waiting_for_text:
            self.figures.on_text_gap(now_s)

    def interrupt(self, played_ms: int | None, now_s: float, unsent: int | None = None) -> None:
        """Stops the utterance where the client has played it. Without `played_ms`, the playback clock decides.

        `unsent`: the first sample of packets that were taken and not sent.
        """
        self.state = follow(self.state, Event.INTERRUPT)
        self._interruption.stop(played_ms, unsent, now_s)

    def begin_hold(self, played_ms: int | None, unsent: int | None, hold_ms: int, now_s: float) -> None:
        """Stops the utterance as `interrupt` does, for `hold_ms`; of one that is held, the position stays.

        `unsent`: the first sample of packets that were taken and not sent.
        """
        self.state = follow(self.state, Event.HOLD)
        self.figures.changes[Change.HELD] += 1
        self._interruption.hold(played_ms, unsent, hold_ms, now_s)

    def end_hold(self, now_s: float) -> ContinuedMessage:
        """Goes on from where the hold began; returns the message that says with which packet. Raises NotHeld."""
        state = follow(self.state, Event.CONTINUE)
        if not self.hold.held:
            raise NotHeld(f"utterance {self.name!r} must be held to be continued, and it speaks")
        self.state = state
        self.figures.changes[Change.CONTINUED] += 1
        continued, held_s = self._interruption.end_hold(now_s)
        self.active_s = min(now_s, self.active_s + held_s)
        return continued

    def find_spoken_text(self) -> bool:
        """Does a part of the work for `interrupted`; returns whether more is left for later turns of the event loop."""
        speech, _ = self.retraction.speech_heard(self.speech)
        return self._interruption.find_spoken_text(speech)

    def interrupted(self, *, with_text: bool) -> InterruptedMessage:
        """Returns the answer to an interrupt, with the text that was heard; without `with_text`, all as remaining."""
        speech, limit = self.retraction.speech_heard(self.speech)
        return self._interruption.message(str(self.text), speech if with_text else None, limit)

    # Text that is taken back

    def retract(self, characters: int, message_id: str | None, now_s: float) -> None:
        """Opens the text again, of which all but `characters` are to be taken back, in the client's units.

        `take_back` follows once `retraction.can_cut`. Raises UtteranceEnded where the end of the audio was sent,
        RateLimited.
        """
        state = follow(self.state, Event.RETRACT)
        over = self.state is State.DRAINING
        ended = over or self.state in (State.ENDING, State.QUEUED_ENDED, State.SUSPENDED_ENDED)
        self.retraction.begin(characters, message_id, now_s, ended=ended, speech_over=over)
        self._length_told = False
        self.state = state

    def take_back(self, cut: SpeechCut | None) -> RetractedMessage:
        """Takes the text back; returns the answer. `cut`: where the present speech ends; None where none is open.

        Then it is to be closed, and `reopen` follows.
        """
        message = self.retraction.take_back(self.speech, cut)
        self.figures.changes[Change.RETRACTED] += 1
        if self.speech is None:
            self.prepared_speech = None  # it may have read what was taken back
            return message
        self.figures.on_speech_replaced(self.speech.milestones)
        self._encoder.renew()
        self._frames_credited = 0
        if self.has_slot:
            self.state = follow(self.state, Event.SUSPEND)
        return message

    def has_nothing_to_queue_for(self) -> bool:
        """Judges again what text is left; returns whether it waits for a slot without anything to say."""
        self._speakable = SpeakableText(self.request.markup)
        return not self._speakable.push(str(self.text)) and self.state is State.QUEUED

    def withdraw(self) -> Ticket | None:
        """Its text was taken back before it got a slot; returns the ticket to release."""
        self.state = follow(self.state, Event.WITHDRAW)
        ticket, self.ticket = self.ticket, None
        return ticket

    def on_rewound(self) -> Rewinding:
        """The old speech is closed, and with it its ticket if the utterance was drained."""
        rewinding = self.retraction.on_closed()
        if self.speech_closed:
            self.ticket, self.speech_closed = None, False
        return rewinding

    def reopen(self, speech: Speech) -> None:
        """Passes the text to the speech that follows; `resume` comes next. Raises EmptyText."""
        assert self.speech is not None  # it was cut
        self.retraction.follow(self.speech)
        self.speech = speech
        self._pass_text(speech, ended=self.state in (State.SUSPENDED_ENDED, State.QUEUED_ENDED))

    # From the pipeline

    def admit(self, speech: Speech) -> StartedMessage:
        """Passes queued text to the opened `speech`; returns the message that announces it. Raises EmptyText."""
        state = follow(self.state, Event.ADMIT)
        self.speech = speech
        if self.ticket is not None:
            self.figures.granted_s = self.ticket.granted_s
        self._pass_text(speech, ended=state is State.ENDING)
        self.state = state
        rate_hz = self.audio_format.sample_rate_hz
        return StartedMessage(
            utterance=self.name,
            number=self.number,
            voice=self.request.voice,
            language=self.request.language,
            seed=speech.seed,
            format=StartedFormat(
                codec=self.audio_format.codec,
                sample_rate=rate_hz,
                bitrate=self.audio_format.bitrate if self.audio_format.has_bitrate else None,
                packet_ms=self.audio_format.packet_ms,
                pre_skip=self._encoder.pre_skip,
            ),
            packet_samples=self.audio_format.packet_ms * rate_hz // 1000,
        )

    def _pass_text(self, speech: Speech, *, ended: bool) -> None:
        """Passes the text that the speech has not got, up to a retraction that is pending. Raises EmptyText."""
        end, ended = self.retraction.text_to_pass(ended=ended)
        self.text.pass_to(speech, end)
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
        self.lost_s = now_s
        self.figures.on_loss()

    def resume(self, now_s: float) -> None:
        """It has a slot again, or keeps its own."""
        self.state = follow(self.state, Event.ADMIT)
        self.renewed = False
        if self.lost_s is not None:
            self.lost_s = None
            self.figures.on_continued()
            self.active_s = now_s

    def on_audio(self, chunk: SpeechChunk) -> None:
        """Encodes a chunk into the outbox."""
        self.retraction.on_audio()
        self._encoder.push(chunk)

    def on_finished(self) -> PendingRetraction | None:
        """Encodes the rest: no chunk follows, unless text is to be taken back.

        Returns a retraction that comes too late: the client has audio from elsewhere that only the end gives.
        """
        if self.retraction.on_finished():
            return None
        self.state = follow(self.state, Event.SPOKEN)
        self._encoder.finish()
        return self.retraction.drop()

    def generated(self, now_s: float) -> GeneratedMessage | None:
        """Returns how long the utterance is, once: when its speech is complete and audio of it has to wait."""
        if self.state is not State.DRAINING or self._length_told:
            return None
        waiting = self.outbox.next_samples
        if waiting is None or self.pacer.due_s(waiting, now_s) <= now_s + TIMER_SLACK_S:
            return None
        self._length_told = True
        samples = self._encoder.true_samples
        return GeneratedMessage(utterance=self.name, samples=samples, audio_ms=self._ms(samples))

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
        self.figures.on_packet(samples, underrun_s, now_s, lost=self.lost_s is not None)
        self.active_s = now_s
        packet = self.outbox.take()
        self.hold.keep(packet, now_s)
        return packet

    def credit(self, now_s: float) -> None:
        """Reports newly played frames to the speech, which generates only so far ahead of them."""
        played = self.retraction.frames_to_credit(self.pacer.frames_played(now_s))
        if played > self._frames_credited and self.speech is not None and not self.speech_closed:
            self._frames_credited = played
            self.speech.advance(played)

    def credit_due(self, now_s: float) -> bool:
        """Whether `credit` has frames to report."""
        return self.retraction.frames_to_credit(self.pacer.frames_played(now_s)) > self._frames_credited

    def complete(self) -> DoneMessage | None:
        """Completes the utterance once its last packet has left; returns the closing message, None before that."""
        if self.state is not State.DRAINING or not self.outbox.drained or self.hold.held:
            return None
        self.state = follow(self.state, Event.DRAINED)
        samples = self._encoder.true_samples
        reason = None if self.speech is None else self.speech.finish_reason
        ttfa_s = self.figures.ttfa_s
        return DoneMessage(
            utterance=self.name,
            reason=reason.value if reason is not None else "end",
            characters=self.characters,
            frames=self._encoder.frames,
            samples=samples,
            audio_ms=self._ms(samples),
            ttfa_ms=None if ttfa_s is None else round(ttfa_s * 1000),
            pronunciations=tuple(self.speech.pronunciations) or None if self.speech is not None else None,
            pauses=0 if self.speech is None else self.speech.pauses,
        )

    def lead_s(self, now_s: float) -> float | None:
        """Seconds of audio sent and not played yet; None before the first packet, and while it is held."""
        if self.figures.first_packet_s is None or self.hold.held:
            return None
        return (self.pacer.sent_samples - self.pacer.position_samples(now_s)) / self.audio_format.sample_rate_hz

    @property
    def open_text(self) -> bool:
        """Whether its client has text to send, and a slot is not what is missing."""
        return self.state in (State.OPEN, State.SPEAKING, State.SUSPENDED) and self.lost_s is None

    def _ms(self, samples: int) -> int:
        return samples * 1000 // self.audio_format.sample_rate_hz
