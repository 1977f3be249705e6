"""The life of one utterance as a table; an event that is not in it raises and changes nothing.

queued ──admit──▶ speaking ──end──▶ ending ──spoken──▶ draining ──drained──▶ done ──interrupt──▶ interrupted
   └──end──▶ queued_ended ──admit──────▲
(from every state before done: interrupt ──▶ interrupted, fail ──▶ failed)
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    QUEUED = "queued"
    """Waits for a talker slot; its text is open."""
    QUEUED_ENDED = "queued_ended"
    """Waits for a talker slot; its text is complete."""
    SPEAKING = "speaking"
    """Speaks; its text is open."""
    ENDING = "ending"
    """Speaks; its text is complete."""
    DRAINING = "draining"
    """The talker has finished and given its slot back; packets wait to be sent."""
    DONE = "done"
    """Everything is sent; the listener may still be hearing the last of it."""
    INTERRUPTED = "interrupted"
    FAILED = "failed"


class Event(StrEnum):
    ADMIT = "admit"
    TEXT = "text"
    FLUSH = "flush"
    END = "end"
    SPOKEN = "spoken"
    DRAINED = "drained"
    INTERRUPT = "interrupt"
    FAIL = "fail"


_ABORT = {Event.INTERRUPT: State.INTERRUPTED, Event.FAIL: State.FAILED}

TABLE: dict[State, dict[Event, State]] = {
    State.QUEUED: {
        Event.ADMIT: State.SPEAKING,
        Event.TEXT: State.QUEUED,
        Event.FLUSH: State.QUEUED,
        Event.END: State.QUEUED_ENDED,
        **_ABORT,
    },
    State.QUEUED_ENDED: {Event.ADMIT: State.ENDING, **_ABORT},
    State.SPEAKING: {
        Event.TEXT: State.SPEAKING,
        Event.FLUSH: State.SPEAKING,
        Event.END: State.ENDING,
        # The cap against endless speech can end it while the text is still open.
        Event.SPOKEN: State.DRAINING,
        **_ABORT,
    },
    State.ENDING: {Event.SPOKEN: State.DRAINING, **_ABORT},
    State.DRAINING: {Event.DRAINED: State.DONE, **_ABORT},
    # What was sent is ahead of the listener by the lead: a barge-in can come after the last packet.
    State.DONE: {Event.INTERRUPT: State.INTERRUPTED},
    State.INTERRUPTED: {},
    State.FAILED: {},
}

OVER = frozenset({State.DONE, State.INTERRUPTED, State.FAILED})
"""States in which nothing more is sent but, after DONE, the answer to an interrupt."""


class IllegalEvent(Exception):
    """`event` has no place in `state`; nothing was changed."""

    def __init__(self, state: State, event: Event) -> None:
        super().__init__(f"no {event} in state {state}")
        self.state = state
        self.event = event


def follow(state: State, event: Event) -> State:
    """The state after `event`. Raises IllegalEvent."""
    try:
        return TABLE[state][event]
    except KeyError:
        raise IllegalEvent(state, event) from None
