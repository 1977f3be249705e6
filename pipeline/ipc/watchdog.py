"""Decides when a silent process counts as hung."""

from __future__ import annotations

import math

MAX_LOOK_DELAY_S = 0.1
"""Seconds. A look that comes later than this was delayed by the watching process itself."""


class HeartbeatWatchdog:
    """Measures silence from the first unanswered request on. Synchronous; time comes in as an argument.

    Silence alone proves nothing: an idle process sends nothing. So the clock runs only while a request is open. The
    watching process may be stopped or busy too, with the answer unread in its socket: the time by which a look comes
    late is not counted, and a look that comes more than `max_look_delay_s` late restarts the clock.

    `limit_s`: how long an open request may stay unanswered, in addition to the work that the process has before it.
    """

    def __init__(self, limit_s: float, max_look_delay_s: float = MAX_LOOK_DELAY_S) -> None:
        self._limit_s, self._max_look_delay_s = limit_s, max_look_delay_s
        self._open_since_s: float | None = None
        self._last_message_s = -math.inf

    def on_request(self, now_s: float) -> None:
        """A request was sent that must be answered. Further ones do not restart the clock."""
        if self._open_since_s is None:
            self._open_since_s = now_s

    def on_message(self, now_s: float, *, pending: bool = False) -> None:
        """The process sent something, whatever it was; `pending`: other requests are still unanswered."""
        self._last_message_s = now_s
        self._open_since_s = now_s if pending else None

    def probe_due(self, now_s: float, interval_s: float) -> bool:
        """Whether to send a heartbeat request: none is open, and nothing has arrived for `interval_s`."""
        return self._open_since_s is None and now_s - self._last_message_s >= interval_s

    def due_s(self, slowest_s: float = 0.0) -> float:
        """When the process counts as hung, infinity while no request is open.

        `slowest_s`: what the work before the answer can take.
        """
        return math.inf if self._open_since_s is None else self._open_since_s + self._limit_s + slowest_s

    def expired(self, now_s: float, planned_s: float, slowest_s: float = 0.0) -> bool:
        """Whether the process hangs; `planned_s` is when this look was to take place."""
        delay_s = max(0.0, now_s - planned_s)
        if self._open_since_s is not None:
            late = delay_s > self._max_look_delay_s
            self._open_since_s = now_s if late else min(now_s, self._open_since_s + delay_s)
        return now_s >= self.due_s(slowest_s)
