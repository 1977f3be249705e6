"""What time brings an utterance: its next packet, credit for what was heard, its end; a warning, and the end, for who
takes nothing."""
# TODO-DOC How long a client may take no audio: first it is warned, then it is cut.
# TODO-DOC Whether a client still reads what it is sent. TCP does not tell: kernel buffers take a minute of audio from
# TODO-DOC a client that has stopped reading. But a pong comes only after everything sent before its ping was read, so
# TODO-DOC pings follow the audio, and the last one answered is the proof.

from __future__ import annotations

import math

from .. import messages
from ..errors import SlowConsumer
from ..observability.events import DONE
from .active_utterances import Termination
from .effects import EffectQueue, SendAudio, SendProbe
from .protocol import WireProtocol
from .utterance import ServerUtterance

_STALLED_PATIENCE_S = 0.25
"""Who does not read will not answer a closing handshake either."""


class UtteranceTimers:
    """Of one session's utterances that are spoken. Synchronous; time comes in as an argument."""

    def __init__(
        self, protocol: WireProtocol, effects: EffectQueue, termination: Termination, timeout_s: float
    ) -> None:
        self.busy_until_s = 0.0
        """When the listener has heard the utterance that was done last."""
        self._protocol, self._effects, self._termination = protocol, effects, termination
        self._read_probe = ReadProbe()
        self._slow_consumer_timeout = SlowConsumerTimeout(self._read_probe, timeout_s)

    def update(self, utterance: ServerUtterance, now_s: float) -> None:
        """Send the next packet, if it is due, and end what has come to its end."""
        slow_s, cut_s = self._slow_consumer_timeout.deadlines_s(utterance)
        if now_s < slow_s and (packet := utterance.release(now_s)) is not None:
            message = self._protocol.encode_audio(utterance.name, packet, now_s)
            self._effects.add(SendAudio(utterance, message))
            if message is not None and utterance.paced and self._read_probe.ask(now_s):
                self._effects.add(SendProbe())
        utterance.credit(now_s)
        if (done := utterance.drained()) is not None:
            self.busy_until_s = utterance.pacer.played_out_s(now_s)
            self._termination.leave(utterance, DONE)
            self._effects.send(done)
        else:
            self._judge(utterance, now_s, slow_s, cut_s)

    def next_wake_s(self, utterance: ServerUtterance, now_s: float) -> float:
        """When there is next something to do for it without any event; infinity for never."""
        slow_s, cut_s = self._slow_consumer_timeout.deadlines_s(utterance)
        if now_s >= slow_s and utterance.warned:
            return cut_s
        return min(utterance.next_wake_s(now_s), slow_s)

    def blocked(self, utterance: ServerUtterance, now_s: float, since_s: float) -> None:
        """A write has waited for the client since `since_s`."""
        self._judge(utterance, now_s, *self._slow_consumer_timeout.deadlines_since_s(since_s, paced=utterance.paced))

    def on_probe_answered(self) -> None:
        """The client has read all that was sent before the last SendProbe."""
        self._read_probe.answered()

    def _judge(self, utterance: ServerUtterance, now_s: float, slow_s: float, cut_s: float) -> None:
        """Warn about, then give up, a client that takes no audio."""
        if now_s >= cut_s:
            self._termination.fail_all(SlowConsumer("the client stopped reading"))
            self._effects.close(self._protocol.slow_consumer_close_code, "slow consumer", _STALLED_PATIENCE_S)
        elif now_s >= slow_s and not utterance.warned:
            utterance.warned = True
            message = "audio waits for the client to read and play it; generation is paused"
            self._effects.send(messages.WarningMessage(code="slow_consumer", message=message, utterance=utterance.name))


SLOW_AFTER_S = 1.0
"""A client that has not read, or played, for so long is warned."""
UNPACED_TIMEOUT_FACTOR = 10
"""Where audio is sent as fast as it is made, a client may take nothing for so many times as long. A kernel whose
buffers are full asks for more only when a good part of them was read; a player takes seconds for that."""


class SlowConsumerTimeout:
    """Judges by what the network reports: writes that wait, acks that stop, probes that are not answered."""

    def __init__(self, probe: ReadProbe, timeout_s: float) -> None:
        self._read_probe = probe
        self._limit_s = timeout_s

    def deadlines_since_s(self, since_s: float, *, paced: bool = True) -> tuple[float, float]:
        """When a client that takes nothing since `since_s` counts as slow, and when it is cut.

        One that takes audio as fast as it is made has more of it than it plays, and may stop reading for a while.
        """
        return since_s + SLOW_AFTER_S, since_s + self._limit_s * (1 if paced else UNPACED_TIMEOUT_FACTOR)

    def deadlines_s(self, utterance: ServerUtterance) -> tuple[float, float]:
        """The same for the listener of `utterance` as it stands; infinity while it takes its audio.

        A client that takes audio as fast as it is made may stop reading when it has enough: only a write that waits
        tells of it.
        """
        stalled_s = utterance.stalled_since_s()
        silent_s = self._read_probe.silent_since_s() if utterance.paced and utterance.speech is not None else math.inf
        if stalled_s == silent_s == math.inf:
            return math.inf, math.inf
        slow_s, cut_s = self.deadlines_since_s(stalled_s)
        unread_limit_s = max(self._limit_s - PROBE_S, SLOW_AFTER_S)
        return min(slow_s, silent_s + SLOW_AFTER_S), min(cut_s, silent_s + unread_limit_s)


PROBE_S = 1.0
"""Pings are so far apart while audio leaves; a message costs more than its bytes."""


class ReadProbe:
    """Of one socket. Synchronous; time comes in as an argument."""

    def __init__(self) -> None:
        self._asked_s: float | None = None
        """When the ping left that has no answer yet."""
        self._proven_s = -math.inf
        """When the last ping left that was answered: until then, at least, the client read."""

    def ask(self, now_s: float) -> bool:
        """Audio leaves now: whether a ping is to follow it. Then `answered` is to be called when its pong comes."""
        if self._asked_s is not None or now_s - self._proven_s < PROBE_S:
            return False
        self._asked_s = now_s
        return True

    def answered(self) -> None:
        if self._asked_s is not None:
            self._proven_s, self._asked_s = self._asked_s, None

    def silent_since_s(self) -> float:
        """Since when a ping has had no answer; infinity if all have. It may have stopped reading `PROBE_S` before."""
        return math.inf if self._asked_s is None else self._asked_s
