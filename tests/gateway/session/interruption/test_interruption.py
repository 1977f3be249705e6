from __future__ import annotations

from fakes.gateway.lone_utterance import push_audio, send_due, speaking


def test_interrupt_splits_the_text_at_the_playback_position() -> None:
    spoken, _ = speaking()
    push_audio(spoken, 10)
    send_due(spoken, 2.0)
    spoken.interrupt(None, 2.25)
    answer = spoken.interrupted(with_text=True)
    assert (answer.played_ms, answer.text_spoken, answer.text_remaining) == (251, "He", "llo")
    assert spoken.outbox.next_samples is None
