"""What time does to a speaking utterance: its next packet, credit, notices, completion, slow-consumer timeout."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..errors import SlowConsumer
from ..messages.resumption import CheckpointMessage
from ..messages.server import StarvingMessage, WarningMessage
from ..observability.events import DONE
from .active_utterances import Termination
from .effects import EffectQueue, SendAudio, SendProbe
from .outbox import AudioPacket
from .pacer import TIMER_SLACK_S
from .protocol import WireProtocol
from .utterance import ServerUtterance

BURST_PACKETS = 8
"""Packets of speech without pacing that leave between two looks at all timers: as many as the codec's largest chunk has
frames."""
_SLOW_CLOSE_TIMEOUT_S = 0.25
"""Seconds for the closing handshake of a slow consumer, which will not read it in all likelihood."""


class UtteranceTimers:
    """Timers of one session's speaking utterances. Synchronous; time is an argument."""

    def __init__(
        self, protocol: WireProtocol, effects: EffectQueue, termination: Termination, timeout_s: float
    ) -> None:
        self.busy_until_s = 0.0
        """When the client will have played the utterance that was completed last."""
        self._burst_left = 0
        """Packets that may still leave before the next look at all timers."""
        self._protocol, self._effects, self._termination = protocol, effects, termination
        self._read_probe = ReadProbe()
        self._slow_consumer_timeout = SlowConsumerTimeout(self._read_probe, timeout_s)

    def update(self, utterance: ServerUtterance, now_s: float) -> None:
        """Sends the next packet if it is due, and completes the utterance after its last one."""
        self.send_checkpoint(utterance, now_s)
        warn_s, close_s = self._slow_consumer_timeout.deadlines_s(utterance)
        self._burst_left = 0
        if now_s + TIMER_SLACK_S < warn_s and (packet := utterance.take_due_packet(now_s)) is not None:
            self._send(utterance, packet, now_s)
            self._burst_left = BURST_PACKETS - 1
        utterance.credit(now_s)
        if (done := utterance.complete()) is not None:
            self.busy_until_s = utterance.pacer.played_out_s(now_s)
            self._termination.end(utterance, DONE)
            self._effects.send(done)
        else:
            if (generated := utterance.generated(now_s)) is not None:
                self._effects.send(generated)
            if now_s + TIMER_SLACK_S >= _starving_s(utterance):
                utterance.shortage.tell(now_s)
                audio_ms = utterance.shortage.audio_ms(now_s)
                self._effects.send(StarvingMessage(utterance=utterance.name, audio_ms=audio_ms))
            if now_s + TIMER_SLACK_S >= warn_s and self._read_probe.start(now_s):
                self._effects.add(SendProbe())  # no audio leaves after which one would follow
            reads = now_s - self._read_probe.unanswered_since_s() < SLOW_AFTER_S / 2
            self._check_slow_consumer(utterance, now_s, warn_s, close_s, reads=reads)

    def in_burst(self, active: Sequence[ServerUtterance]) -> bool:
        """Whether the only active utterance has no pacing, and packets to send before its last one.

        A look at all timers between two of them costs as much as to send one.
        """
        if not self._burst_left or len(active) != 1:
            return False
        (utterance,) = active
        changes = utterance.ended or utterance.hold.held or utterance.retraction.under_way
        return not (utterance.paced or changes) and utterance.outbox.waiting_packets > 1

    def continue_burst(self, active: Sequence[ServerUtterance], now_s: float) -> bool:
        """Sends the next packet of a burst; returns whether there was one."""
        if not self.in_burst(active) or (packet := active[0].take_due_packet(now_s)) is None:
            return False
        self._burst_left -= 1
        self._send(active[0], packet, now_s)
        return True

    def _send(self, utterance: ServerUtterance, packet: AudioPacket, now_s: float) -> None:
        if utterance.raw:
            message: str | bytes | None = packet.payload or None
        else:
            message = self._protocol.encode_audio(utterance.name, packet, now_s)
        self._effects.add(SendAudio(utterance, message, packet.header.pts))
        if message is not None and utterance.paced and self._read_probe.start(now_s):
            self._effects.add(SendProbe())

    def send_checkpoint(self, utterance: ServerUtterance, now_s: float) -> None:
        """Sends the parts of the utterance's checkpoint that are due; at infinity all, and then no more."""
        if utterance.speech is not None and utterance.retraction.rewinding is None:
            for part in utterance.trail.due(utterance.speech, now_s):
                self._effects.send(CheckpointMessage(utterance=utterance.name, part=part))

    def next_wake_s(self, utterance: ServerUtterance, now_s: float) -> float:
        """When `update` has something to do next without an event; infinity for never."""
        warn_s, close_s = self._slow_consumer_timeout.deadlines_s(utterance)
        if now_s + TIMER_SLACK_S >= warn_s and utterance.slow_warning_sent:
            return close_s
        return min(_next_event_s(utterance, now_s), _starving_s(utterance), warn_s)

    def on_write_blocked(self, utterance: ServerUtterance, now_s: float, since_s: float) -> None:
        """Applies the slow-consumer timeout to a write that has been blocked since `since_s`."""
        deadlines_s = self._slow_consumer_timeout.deadlines_since_s(since_s, utterance)
        self._check_slow_consumer(utterance, now_s, *deadlines_s)

    def on_idle_write_blocked(self, now_s: float, since_s: float) -> None:
        """As `on_write_blocked`, for a socket without an active utterance."""
        _, close_s = self._slow_consumer_timeout.deadlines_since_s(since_s, None)
        if now_s >= close_s:
            self._end_slow_consumer()

    def on_probe_answered(self) -> None:
        """The client has read everything sent before the last SendProbe."""
        self._read_probe.on_answered()

    def _check_slow_consumer(
        self, utterance: ServerUtterance, now_s: float, warn_s: float, close_s: float, *, reads: bool = False
    ) -> None:
        if now_s + TIMER_SLACK_S >= close_s:
            self._end_slow_consumer(reads=reads)
        elif now_s + TIMER_SLACK_S >= warn_s and not utterance.slow_warning_sent:
            utterance.slow_warning_sent = True
            message = "audio waits for the client to read and play it; generation is paused"
            self._effects.send(WarningMessage(code="slow_consumer", message=message, utterance=utterance.name))

    def on_detached(self) -> None:
        """The connection is lost and may be replaced: its client is not expected to read."""
        self._slow_consumer_timeout.attached_s = math.inf

    def on_attached(self, now_s: float) -> None:
        """A new connection replaces the lost one, on which no probe will be answered."""
        self._slow_consumer_timeout.attached_s = now_s
        self._read_probe.on_answered()

    def _end_slow_consumer(self, *, reads: bool = False) -> None:
        """Closes the socket of a slow client; gives it up where it can be resumed and its network may have stalled."""
        if not reads and (resumption := self._protocol.resumption) is not None:
            self._effects.lose_socket(resumption)
            return
        self._termination.fail_all(SlowConsumer("the client stopped reading or playing"))
        self._effects.close(self._protocol.slow_consumer_close_code, "slow consumer", _SLOW_CLOSE_TIMEOUT_S)


def _next_event_s(utterance: ServerUtterance, now_s: float) -> float:
    """When the utterance has a packet to send, or playback to report, or its hold is over; infinity for never."""
    if utterance.hold.held:
        return utterance.hold.until_s
    samples = utterance.outbox.next_samples
    if samples is not None:
        return utterance.pacer.due_s(samples, now_s)
    if utterance.queued and utterance.speech is None:
        return math.inf
    if utterance.speech_closed:  # drained here: the client had got all audio elsewhere
        return now_s if utterance.outbox.drained else math.inf
    # Frames played and not credited yet are due now: after an underrun nothing else would wake it.
    return now_s if utterance.credit_due(now_s) else utterance.pacer.next_frame_s(now_s)


def _starving_s(utterance: ServerUtterance) -> float:
    """When the client is to be told that text is missing; infinity while none is."""
    due_s = utterance.shortage.due_s()
    if due_s == math.inf or utterance.hold.held or not utterance.open_text:
        return math.inf
    speech = utterance.listening_speech
    return due_s if speech is not None and speech.waiting_for_text else math.inf


SLOW_AFTER_S = 1.0
"""Seconds without reading or playing after which a client is warned."""
UNPACED_TIMEOUT_FACTOR = 10
"""Factor on the timeout of unpaced utterances.

A player that has enough audio may stop reading for a while, and a kernel whose buffers are full accepts more only after
a good part of them was read, which takes a player seconds.
"""


class SlowConsumerTimeout:
    """Decides when a client is warned and when its socket is closed.

    It judges by blocked writes, by acks that stopped, and by unanswered read probes. A client with a lead of more than
    `SLOW_AFTER_S` has so much more time, because its listener does not hear that it reads nothing.
    """

    def __init__(self, probe: ReadProbe, timeout_s: float) -> None:
        self._read_probe = probe
        self._timeout_s = timeout_s
        self.attached_s = -math.inf
        """When the present connection began; infinity while there is none. Nothing before it counts."""

    def deadlines_since_s(self, since_s: float, utterance: ServerUtterance | None) -> tuple[float, float]:
        """When to warn and when to close a client that has read nothing since `since_s`."""
        timeout_s = self._timeout_s * (1 if utterance is None or utterance.paced else UNPACED_TIMEOUT_FACTOR)
        since_s = max(since_s, self.attached_s) + _buffered_s(utterance)
        return since_s + SLOW_AFTER_S, since_s + timeout_s

    def deadlines_s(self, utterance: ServerUtterance) -> tuple[float, float]:
        """When to warn and when to close the client of `utterance` as things stand; infinity while it keeps up.

        Probes say nothing about an unpaced utterance, whose client may stop reading when it has enough.
        """
        if utterance.hold.held:  # nothing was sent to a client that had it held, and so nothing to be read
            return math.inf, math.inf
        stalled_s = math.inf if utterance.outbox.next_samples is None else utterance.pacer.stalled_since_s()
        probed = utterance.paced and utterance.speech is not None
        unanswered_s = self._read_probe.unanswered_since_s() if probed else math.inf
        if stalled_s == unanswered_s == math.inf:
            return math.inf, math.inf
        stalled_s = max(stalled_s, self.attached_s)
        unanswered_s = max(unanswered_s, self.attached_s, utterance.hold.continued_s)
        warn_s, close_s = stalled_s + SLOW_AFTER_S, stalled_s + self._timeout_s
        # The client may have stopped reading up to one probe interval before the unanswered probe.
        unanswered_timeout_s = max(self._timeout_s - PROBE_INTERVAL_S, SLOW_AFTER_S)
        unanswered_s += _buffered_s(utterance)
        return min(warn_s, unanswered_s + SLOW_AFTER_S), min(close_s, unanswered_s + unanswered_timeout_s)


def _buffered_s(utterance: ServerUtterance | None) -> float:
    """How much longer than `SLOW_AFTER_S` the client has audio left to play although it reads nothing."""
    return 0.0 if utterance is None else max(0.0, utterance.pacer.send_ahead_s - SLOW_AFTER_S)


PROBE_INTERVAL_S = 1.0
"""Least time between read probes: a ping costs more than its bytes."""


class ReadProbe:
    """Finds out whether the client of one socket still reads. Synchronous; time is an argument.

    TCP does not tell: kernel buffers accept a minute of audio for a client that has stopped reading. But a client
    reads in order, so the pong of a ping proves that everything sent before the ping was read.
    """

    def __init__(self) -> None:
        self._sent_s: float | None = None
        """When the unanswered probe was sent."""
        self._read_until_s = -math.inf
        """When the last answered probe was sent: the client has read everything sent before."""

    def start(self, now_s: float) -> bool:
        """Called when audio leaves; returns whether a probe is to follow it."""
        if self._sent_s is not None or now_s - self._read_until_s < PROBE_INTERVAL_S:
            return False
        self._sent_s = now_s
        return True

    def on_answered(self) -> None:
        """The client answered the probe."""
        if self._sent_s is not None:
            self._read_until_s, self._sent_s = self._sent_s, None

    def unanswered_since_s(self) -> float:
        """When the unanswered probe was sent; infinity without one."""
        return math.inf if self._sent_s is None else self._sent_s
