from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from fakes.gateway.lone_utterance import push_audio, send_due, speaking
from voxgate.gateway.session.admission import Admission
from voxgate.gateway.session.pacer import TIMER_SLACK_S
from voxgate.gateway.session.slots.starvation import LOOK_INTERVAL_S, MAX_STARVED_S, Starvation
from voxgate.gateway.session.slots.starvation import STARVED_S as SILENCE_S
from voxgate.gateway.session.utterance import ServerUtterance

STARVED_S = 6.36


def starving() -> ServerUtterance:
    """An utterance whose talker waits for text since its last audio; it starves from STARVED_S on."""
    spoken, speech = speaking()
    speech.waiting_for_text = True
    spoken.active_s = STARVED_S - SILENCE_S
    return spoken


UTTERANCE = starving()


def starvation(queued: int) -> Starvation:
    return Starvation(cast(Admission, SimpleNamespace(queued=queued)), 60.0)


@pytest.mark.parametrize("early_s", [0.0, 2e-14, TIMER_SLACK_S / 2, TIMER_SLACK_S * 2, 1.0])
@pytest.mark.parametrize("queued", [0, 1])
def test_a_look_that_is_due_never_asks_for_another_at_the_same_time(early_s: float, queued: int) -> None:
    """Timers fire up to TIMER_SLACK_S early: a look then would otherwise follow the other without a pause."""
    judge, now_s = starvation(queued), STARVED_S - early_s
    look_s = judge.next_look_s(UTTERANCE, now_s)
    assert look_s > now_s + TIMER_SLACK_S or judge.gives_way(UTTERANCE, now_s)


def test_an_utterance_gives_way_only_to_others_and_only_when_it_starves() -> None:
    assert starvation(1).gives_way(UTTERANCE, STARVED_S)
    assert not starvation(1).gives_way(UTTERANCE, STARVED_S - 0.1)
    assert not starvation(0).gives_way(UTTERANCE, STARVED_S + 9)
    assert starvation(0).next_look_s(UTTERANCE, STARVED_S + 9) == STARVED_S + 9 + LOOK_INTERVAL_S


def test_an_utterance_with_text_or_audio_does_not_starve() -> None:
    for change in ("text", "audio", "end"):
        spoken, speech = speaking()
        speech.waiting_for_text = change != "text"
        if change == "audio":
            push_audio(spoken, 1)
        if change == "end":
            spoken.end(1.0)
        assert not starvation(1).gives_way(spoken, 1000.0), change


def test_a_trickle_of_text_holds_the_slot_only_so_long() -> None:
    spoken, speech = speaking()
    speech.waiting_for_text = True
    push_audio(spoken, 5)
    send_due(spoken, 1.0)
    spoken.active_s = 1000.0
    assert not starvation(1).gives_way(spoken, 1.0 + 0.4 + MAX_STARVED_S - 0.1)
    assert starvation(1).gives_way(spoken, 1.0 + 0.4 + MAX_STARVED_S)
