"""The life of an utterance as a table: an event that the table lacks raises IllegalEvent and changes nothing.

open ──enqueue──▶ queued ──admit──▶ speaking ──end──▶ ending ──spoken──▶ draining ──drained──▶ done ──interrupt──▶ …
                     └──end──▶ queued_ended ──admit──────▲
speaking ──suspend──▶ suspended ──enqueue──▶ queued
                          └──end──▶ suspended_ended ──enqueue──▶ queued_ended
(suspended ──admit──▶ speaking; ending ──suspend──▶ suspended_ended ──admit──▶ ending)
(retract: ending ──▶ speaking; queued_ended ──▶ queued; suspended_ended, draining ──▶ suspended)
(queued ──withdraw──▶ open)
(from every state before done: interrupt ──▶ interrupted, fail ──▶ failed)
Being held is no state: it stops what is sent, while text, slot and engine go through the same states. Only done goes
back, because there is something to send again: done ──hold──▶ draining.
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """What an utterance is doing."""

    OPEN = "open"
    """Has nothing to say yet, and asks for no slot; accepts text."""
    QUEUED = "queued"
    """Waits for a talker slot; accepts text."""
    QUEUED_ENDED = "queued_ended"
    """Waits for a talker slot; its text is complete."""
    SPEAKING = "speaking"
    """Generates speech; accepts text."""
    ENDING = "ending"
    """Generates speech; its text is complete."""
    SUSPENDED = "suspended"
    """Has no slot in the engine; accepts text. It waited for text while others waited for a slot, and asks again with
    its next text; or it was held then, and asks again when it goes on; or the engine was lost, and it keeps its place
    for the next one; or text was taken back, and another speech follows in its slot."""
    SUSPENDED_ENDED = "suspended_ended"
    """As SUSPENDED; its text is complete."""
    DRAINING = "draining"
    """The talker has finished and its slot is free; audio packets are still to be sent."""
    DONE = "done"
    """All audio is sent; the client may still be playing the last of it."""
    INTERRUPTED = "interrupted"
    FAILED = "failed"


class Event(StrEnum):
    """What happens to an utterance."""

    ENQUEUE = "enqueue"
    """It asks for a talker slot, with its first speakable text."""
    ADMIT = "admit"
    """It gets a talker slot, of this engine or the next, or keeps the one that it was to give up."""
    SUSPEND = "suspend"
    """It gives its slot up, or has lost it with the engine."""
    TEXT = "text"
    FLUSH = "flush"
    RETRACT = "retract"
    """The client takes text back that was not spoken yet: its text is open again."""
    WITHDRAW = "withdraw"
    """Text that waited for a slot was taken back, so that nothing is left to say."""
    END = "end"
    """The client has sent all text."""
    SPOKEN = "spoken"
    """The talker has finished."""
    DRAINED = "drained"
    """The last audio packet has left."""
    HOLD = "hold"
    """The client stops it for a while, or for longer than before."""
    CONTINUE = "continue"
    """A held one goes on."""
    INTERRUPT = "interrupt"
    FAIL = "fail"


_ABORT = {Event.INTERRUPT: State.INTERRUPTED, Event.FAIL: State.FAILED}


def _held(state: State) -> dict[Event, State]:
    """The hold of an utterance that has not ended, which leaves its state as it is."""
    return {Event.HOLD: state, Event.CONTINUE: state}


TABLE: dict[State, dict[Event, State]] = {
    State.OPEN: {
        Event.ENQUEUE: State.QUEUED,
        Event.TEXT: State.OPEN,
        Event.FLUSH: State.OPEN,
        Event.RETRACT: State.OPEN,
        # Without text there is no end: the utterance fails.
        **_held(State.OPEN),
        **_ABORT,
    },
    State.QUEUED: {
        Event.ADMIT: State.SPEAKING,
        Event.TEXT: State.QUEUED,
        Event.FLUSH: State.QUEUED,
        Event.RETRACT: State.QUEUED,
        Event.WITHDRAW: State.OPEN,
        Event.END: State.QUEUED_ENDED,
        Event.SPOKEN: State.DRAINING,
        **_held(State.QUEUED),
        **_ABORT,
    },
    # Text that came while it was suspended may turn out to have nothing to speak.
    State.QUEUED_ENDED: {
        Event.ADMIT: State.ENDING,
        Event.SPOKEN: State.DRAINING,
        **_held(State.QUEUED_ENDED),
        Event.RETRACT: State.QUEUED,
        **_ABORT,
    },
    State.SPEAKING: {
        Event.TEXT: State.SPEAKING,
        Event.FLUSH: State.SPEAKING,
        Event.RETRACT: State.SPEAKING,
        Event.END: State.ENDING,
        # The frame limit can end the speech before the client has ended the text.
        Event.SPOKEN: State.DRAINING,
        Event.SUSPEND: State.SUSPENDED,
        **_held(State.SPEAKING),
        **_ABORT,
    },
    State.SUSPENDED: {
        Event.TEXT: State.SUSPENDED,
        Event.FLUSH: State.SUSPENDED,
        Event.RETRACT: State.SUSPENDED,
        Event.END: State.SUSPENDED_ENDED,
        Event.ENQUEUE: State.QUEUED,
        Event.ADMIT: State.SPEAKING,
        Event.SPOKEN: State.DRAINING,
        **_held(State.SUSPENDED),
        **_ABORT,
    },
    State.SUSPENDED_ENDED: {
        Event.ENQUEUE: State.QUEUED_ENDED,
        Event.RETRACT: State.SUSPENDED,
        Event.ADMIT: State.ENDING,
        Event.SPOKEN: State.DRAINING,
        **_held(State.SUSPENDED_ENDED),
        **_ABORT,
    },
    State.ENDING: {
        Event.SPOKEN: State.DRAINING,
        Event.SUSPEND: State.SUSPENDED_ENDED,
        **_held(State.ENDING),
        Event.RETRACT: State.SPEAKING,
        **_ABORT,
    },
    State.DRAINING: {
        Event.DRAINED: State.DONE,
        Event.RETRACT: State.SUSPENDED,
        **_held(State.DRAINING),
        **_ABORT,
    },
    # Audio is sent ahead of playback, so the client may interrupt after the last packet was sent.
    State.DONE: {Event.HOLD: State.DRAINING, Event.INTERRUPT: State.INTERRUPTED},
    State.INTERRUPTED: {},
    State.FAILED: {},
}

ENDED = frozenset({State.DONE, State.INTERRUPTED, State.FAILED})
"""States in which nothing is sent any more, except the answer to an interrupt after DONE."""


class IllegalEvent(Exception):
    """`event` is not allowed in `state`; nothing was changed."""

    def __init__(self, state: State, event: Event) -> None:
        super().__init__(f"no {event} in state {state}")
        self.state = state
        self.event = event


def follow(state: State, event: Event) -> State:
    """Returns the state after `event`. Raises IllegalEvent."""
    try:
        return TABLE[state][event]
    except KeyError:
        raise IllegalEvent(state, event) from None
