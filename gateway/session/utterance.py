"""One utterance between its client and its `Speech`: text in, numbered audio out, at the listener's pace."""

from __future__ import annotations

import math

from voxgate.codecs.format import OutputFormat
from voxgate.pipeline.errors import EmptyText, TextTooLong
from voxgate.pipeline.interface import Milestones, Speech, SpeechChunk, SpeechRequest

from ..messages import DoneMessage, InterruptedMessage, StartedFormat, StartedMessage
from ..observability.events import UtteranceRecord
from .admission import Ticket
from .lifecycle import OVER, Event, State, follow
from .outbox import AudioEncoder, AudioPacket, Outbox
from .pacer import TIMER_SLACK_S, Pacer

_DRY_MIN_S = 0.01
"""Less than this is the jitter of timers, which no player hears."""
_TEXT_LATENCY_S = 0.3
"""Speech that had to wait for text comes so long after it: a clock that runs dry meanwhile is not our fault."""


class ServerUtterance:
    """Sans-I/O. Every method that the state does not allow raises IllegalEvent and changes nothing."""

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
    ) -> None:
        self.name = name
        self.number = number
        self.id = ""
        self.request = request
        self.words = words
        self.ticket: Ticket | None = None
        self.speech: Speech | None = None
        self.speech_closed = False
        """Its speech is closed, or on the way to be, and its slot with it."""
        self.warned = False
        self.observed = False
        """Its record was given out."""
        self.paced = send_ahead_ms is not None
        self.outbox = Outbox(number, audio_format.sample_rate_hz, outbox_ms)
        self.pacer = Pacer(audio_format.sample_rate_hz, send_ahead_ms)
        self.state = State.QUEUED
        self._format = audio_format
        self._encoder = encoder
        self._max_characters = max_characters
        self._text: list[str] = []
        self._characters = 0
        self._waiting: list[str | None] = []
        """Text, and None for a flush, that came before the slot did."""
        self._frames = 0
        self._frames_credited = 0
        self._started_s = 0.0
        self._text_s: float | None = None
        self._active_s = 0.0
        """When its client last wrote, or last heard something."""
        self._waited_s = -math.inf
        """When speech last had to wait for text."""
        self._first_packet_s: float | None = None
        self._underruns = 0
        self._dry_s = 0.0

    @property
    def over(self) -> bool:
        return self.state in OVER

    @property
    def queued(self) -> bool:
        """It waits for a slot."""
        return self.ticket is not None and not self.ticket.granted

    def join(self, ticket: Ticket, id: str, now_s: float) -> None:
        """It holds a slot or waits for one, and is called `id` in logs and traces."""
        self.ticket = ticket
        self.id = id
        self._started_s = self._active_s = now_s

    # From the client

    def check_text(self, fragment: str) -> State:
        """The state once the fragment is taken. Raises TextTooLong, IllegalEvent."""
        received = self._characters + len(fragment)
        state = follow(self.state, Event.TEXT)
        if received > self._max_characters:
            raise TextTooLong(self._max_characters, received)
        return state

    def add_text(self, fragment: str, now_s: float) -> None:
        """Raises TextTooLong; then nothing of the fragment is taken."""
        state = self.check_text(fragment)
        if not fragment:
            return  # as language models send first: nothing is waited for since then
        if self.speech is not None:
            self._note_waiting(self.speech, now_s)
            self.speech.push_text(fragment)
        elif self._waiting and (last := self._waiting[-1]) is not None:
            self._waiting[-1] = last + fragment
        else:
            self._waiting.append(fragment)
        self._text.append(fragment)
        self._characters += len(fragment)
        if self._text_s is None:
            self._text_s = now_s
        self._active_s = now_s
        self.state = state

    def flush(self, now_s: float) -> None:
        state = follow(self.state, Event.FLUSH)
        if self.speech is not None:
            self._note_waiting(self.speech, now_s)
            self.speech.flush()
        elif self._waiting and self._waiting[-1] is not None:
            self._waiting.append(None)
        self.state = state

    def end(self, now_s: float) -> None:
        """Raises EmptyText; the utterance is then to fail."""
        state = follow(self.state, Event.END)
        if self.speech is not None:
            self._note_waiting(self.speech, now_s)
            self.speech.end()
        elif not self._characters:
            raise EmptyText("the utterance ended without any text")
        self.state = state

    def _note_waiting(self, speech: Speech, now_s: float) -> None:
        if self._first_packet_s is not None and speech.waiting_for_text:
            self._waited_s = now_s

    def interrupt(self, played_ms: int | None, now_s: float) -> InterruptedMessage:
        """Stop; returns what was heard. Without `played_ms` the playback clock answers."""
        self.state = follow(self.state, Event.INTERRUPT)
        sent_ms = self._ms(self.pacer.sent_samples)
        heard_ms = self._ms(self.pacer.position_samples(now_s)) if played_ms is None else min(played_ms, sent_ms)
        text = "".join(self._text)
        spoken = self.speech.spoken_until(heard_ms) if self.speech is not None and heard_ms else 0
        spoken = max(0, min(spoken, len(text)))
        self.outbox.drop()
        return InterruptedMessage(
            utterance=self.name, played_ms=heard_ms, text_spoken=text[:spoken], text_remaining=text[spoken:]
        )

    # From the pipeline

    def admit(self, speech: Speech) -> StartedMessage:
        """A slot is there and `speech` is open in it: hand over what waited. Raises EmptyText."""
        state = follow(self.state, Event.ADMIT)
        self.speech = speech
        for fragment in self._waiting:
            if fragment is None:
                speech.flush()
            else:
                speech.push_text(fragment)
        self._waiting.clear()
        if state is State.ENDING:
            speech.end()
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

    def on_audio(self, chunk: SpeechChunk) -> None:
        """Encode a chunk into the outbox."""
        self._frames += chunk.frames
        self.outbox.put(self._encoder.push(chunk.pcm))

    def on_finished(self) -> None:
        """The talker has finished: no chunk follows."""
        self.state = follow(self.state, Event.SPOKEN)
        self.outbox.put(self._encoder.finish())
        self.outbox.close()

    def fail(self) -> bool:
        """Give up; returns whether audio had been sent."""
        self.state = follow(self.state, Event.FAIL)
        self.outbox.drop()
        return self.outbox.sent_messages > 0

    # To the client, in time

    def release(self, now_s: float) -> AudioPacket | None:
        """The next packet if it is due, and None if not."""
        samples = self.outbox.next_samples
        if samples is None or self.pacer.due_s(samples, now_s) > now_s + TIMER_SLACK_S:
            return None
        dry_s = self.pacer.send(samples, now_s)
        if dry_s > _DRY_MIN_S and samples and now_s - dry_s > self._waited_s + _TEXT_LATENCY_S:
            self._underruns += 1
            self._dry_s += dry_s
        if self._first_packet_s is None:
            self._first_packet_s = now_s
        self._active_s = now_s
        return self.outbox.take()

    def credit(self, now_s: float) -> None:
        """Tell the talker how far the listener has come."""
        heard = self.pacer.frames_heard(now_s)
        if heard > self._frames_credited and self.speech is not None and not self.speech_closed:
            self._frames_credited = heard
            self.speech.advance(heard)

    def drained(self) -> DoneMessage | None:
        """The closing message, once the last audio message has left."""
        if self.state is not State.DRAINING or not self.outbox.drained:
            return None
        assert self.speech is not None
        self.state = follow(self.state, Event.DRAINED)
        samples = self._encoder.true_samples
        reason = self.speech.finish_reason
        ttfa_s = None if self._text_s is None or self._first_packet_s is None else self._first_packet_s - self._text_s
        return DoneMessage(
            utterance=self.name,
            reason=reason.value if reason is not None else "end",
            characters=self._characters,
            frames=self._frames,
            samples=samples,
            audio_ms=self._ms(samples),
            ttfa_ms=None if ttfa_s is None else round(ttfa_s * 1000),
        )

    def record(self, protocol: str, key: str, outcome: str) -> UtteranceRecord:
        """What it came to, for those who watch the gateway."""
        return UtteranceRecord(
            id=self.id,
            protocol=protocol,
            key=key,
            outcome=outcome,
            voice=self.request.voice,
            codec=self._format.codec,
            characters=self._characters,
            audio_s=self.pacer.sent_samples / self._format.sample_rate_hz,
            audio_bytes=self.outbox.sent_bytes,
            underruns=self._underruns,
            underrun_s=self._dry_s,
            started_s=self._started_s,
            granted_s=None if self.ticket is None else self.ticket.granted_s,
            text_s=self._text_s,
            first_packet_s=self._first_packet_s,
            milestones=self.speech.milestones if self.speech is not None else Milestones(),
        )

    def lead_s(self, now_s: float) -> float | None:
        """How much was sent and not heard yet; None before its first packet."""
        if self._first_packet_s is None:
            return None
        return (self.pacer.sent_samples - self.pacer.position_samples(now_s)) / self._format.sample_rate_hz

    def next_wake_s(self, now_s: float) -> float:
        """When there is next something to do for it without a message or a chunk; infinity for never."""
        if self.over:
            return math.inf
        if self.ticket is not None and self.queued:
            return self.ticket.deadline_s
        samples = self.outbox.next_samples
        if samples is not None:
            return self.pacer.due_s(samples, now_s)
        if self.speech_closed:
            return math.inf
        # What was heard and not told yet is due now: a stream that ran dry has nothing else to wake it.
        return now_s if self.pacer.frames_heard(now_s) > self._frames_credited else self.pacer.next_frame_s(now_s)

    def waits_for_text_until_s(self, limit_s: float) -> float:
        """When it has waited for text, in silence, as long as it may; infinity where its text is complete."""
        return self._active_s + limit_s if self.state is State.SPEAKING else math.inf

    def stalled_since_s(self) -> float:
        """When the listener stopped playing with audio still to come; infinity if it plays."""
        return self.pacer.stalled_since_s() if self.outbox.next_samples is not None else math.inf

    def _ms(self, samples: int) -> int:
        return samples * 1000 // self._format.sample_rate_hz
