"""How long an utterance may wait for a slot, wait for text, and last."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from fakes.gateway.lone_utterance import push_audio, send_due, speaking, utterance
from voxgate.gateway.access.caller import Caller
from voxgate.gateway.access.keys import KeyLimits
from voxgate.gateway.errors import UtteranceTimeout
from voxgate.gateway.session.active_utterances import Termination
from voxgate.gateway.session.admission import Admission, Ticket
from voxgate.gateway.session.deadlines import UtteranceDeadlines
from voxgate.gateway.session.effects import EffectQueue
from voxgate.gateway.settings import Settings
from voxgate.pipeline.errors import AtCapacity


class Ends:
    """Deadlines whose utterances end with errors that are kept, and whose messages are kept."""

    def __init__(self, text_idle_timeout_s: float = 30, utterance_timeout_s: float = 60) -> None:
        self.errors: list[Exception] = []
        self.sent: list[Any] = []
        settings = SimpleNamespace(text_idle_timeout_s=text_idle_timeout_s, utterance_timeout_s=utterance_timeout_s)
        self.deadlines = UtteranceDeadlines(
            cast(Settings, settings),
            cast(Admission, SimpleNamespace(capacity_error=lambda text, reached: AtCapacity(text, reached=reached))),
            cast(EffectQueue, SimpleNamespace(send=self.sent.append)),
            cast(Termination, SimpleNamespace(fail=lambda _, error: self.errors.append(error))),
        )


def test_longest_life_grows_with_the_audio_sent() -> None:
    ends, (spoken, _) = Ends(text_idle_timeout_s=1000), speaking(send_ahead_ms=None)
    spoken.open("s.1", 1.0)
    assert ends.deadlines.next_wake_s(spoken) == 61.0
    push_audio(spoken, 10)
    send_due(spoken, 2.0)
    end_s = 61.0 + 3 * 0.8
    assert ends.deadlines.next_wake_s(spoken) == pytest.approx(end_s)
    assert not ends.deadlines.end_overlong(spoken, end_s - 0.1)
    assert ends.errors == []
    assert ends.deadlines.end_overlong(spoken, end_s)
    assert [type(error) for error in ends.errors] == [UtteranceTimeout]


def test_text_deadline_counts_from_the_last_text_or_audio() -> None:
    ends, (spoken, _) = Ends(utterance_timeout_s=1000), speaking()
    assert ends.deadlines.next_wake_s(spoken) == 31.0
    push_audio(spoken, 1)
    send_due(spoken, 5.0)
    assert ends.deadlines.next_wake_s(spoken) == 35.0
    assert not ends.deadlines.ends_text(spoken, 34.9)
    assert ends.sent == []
    assert ends.deadlines.ends_text(spoken, 35.0)
    assert [message.code for message in ends.sent] == ["text_waited_out"]
    spoken.end(36.0)
    assert not ends.deadlines.ends_text(spoken, 1000.0)


def test_queue_deadline_is_that_of_the_ticket_until_it_is_granted() -> None:
    ends, waiting = Ends(), utterance()
    waiting.open("s.1", 1.0)
    waiting.add_text("Hello", 1.0)
    ticket = Ticket(Caller("k", KeyLimits()), 6.0, lambda *_: None)
    waiting.enqueue(ticket, 1.0)
    assert ends.deadlines.next_wake_s(waiting) == 6.0
    assert not ends.deadlines.end_queued(waiting, 5.9)
    assert ends.deadlines.end_queued(waiting, 6.0)
    assert [type(error) for error in ends.errors] == [AtCapacity]
    ticket.granted_s = 5.0
    assert not ends.deadlines.end_queued(waiting, 1000.0)
