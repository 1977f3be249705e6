"""What time brings an utterance: its next packet, credit for what was heard, its end; a warning, and the end, for who
takes nothing."""

from __future__ import annotations

from . import messages
from .dialects.dialect import Dialect
from .effects import Probe, SendAudio
from .endings import Endings
from .errors import SlowConsumer
from .observer import DONE
from .outgoing import Outgoing
from .patience import Patience
from .reading import Reading
from .utterance import Utterance

_STALLED_PATIENCE_S = 0.25
"""Who does not read will not answer a closing handshake either."""


class Playout:
    """Of one session's utterances that are spoken. Synchronous; time comes in as an argument."""

    def __init__(self, dialect: Dialect, outgoing: Outgoing, endings: Endings, stall_limit_s: float) -> None:
        self.busy_until_s = 0.0
        """When the listener has heard the utterance that was done last."""
        self._dialect, self._outgoing, self._endings = dialect, outgoing, endings
        self._reading = Reading()
        self._patience = Patience(self._reading, stall_limit_s)

    def turn(self, utterance: Utterance, now_s: float) -> None:
        """Send the next packet, if it is due, and end what has come to its end."""
        slow_s, cut_s = self._patience.with_s(utterance)
        if now_s < slow_s and (packet := utterance.release(now_s)) is not None:
            message = self._dialect.audio(utterance.name, packet, now_s)
            self._outgoing.add(SendAudio(utterance, message))
            if message is not None and utterance.paced and self._reading.ask(now_s):
                self._outgoing.add(Probe())
        utterance.credit(now_s)
        if (done := utterance.drained()) is not None:
            self.busy_until_s = utterance.pacer.played_out_s(now_s)
            self._endings.leave(utterance, DONE)
            self._outgoing.send(done)
        else:
            self._judge(utterance, now_s, slow_s, cut_s)

    def next_turn_s(self, utterance: Utterance, now_s: float) -> float:
        """When there is next something to do for it without any event; infinity for never."""
        slow_s, cut_s = self._patience.with_s(utterance)
        if now_s >= slow_s and utterance.warned:
            return cut_s
        return min(utterance.next_wake_s(now_s), slow_s)

    def blocked(self, utterance: Utterance, now_s: float, since_s: float) -> None:
        """A write has waited for the client since `since_s`."""
        self._judge(utterance, now_s, *self._patience.after_s(since_s, paced=utterance.paced))

    def has_read(self) -> None:
        """The client has read all that was sent before the last Probe."""
        self._reading.answered()

    def _judge(self, utterance: Utterance, now_s: float, slow_s: float, cut_s: float) -> None:
        """Warn about, then give up, a client that takes no audio."""
        if now_s >= cut_s:
            self._endings.fail_all(SlowConsumer("the client stopped reading"))
            self._outgoing.close(self._dialect.slow_consumer, "slow consumer", _STALLED_PATIENCE_S)
        elif now_s >= slow_s and not utterance.warned:
            utterance.warned = True
            message = "audio waits for the client to read and play it; generation is paused"
            self._outgoing.send(messages.Warned(code="slow_consumer", message=message, utterance=utterance.name))
