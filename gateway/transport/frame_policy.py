"""How many frames a client may send: of all kinds, control frames, and frames before it has shown its key."""

from __future__ import annotations

from ..access.usage import TokenBucket

CONTROL_FRAMES_PER_S = 20.0
"""Rate of pings and unsolicited pongs: the library answers each ping at the gateway's expense, and a pong that answers
no ping serves only to keep the gateway busy."""
FRAGMENTS_PER_S = 60.0
"""Rate of frames that do not end their message, of which a burst holds the largest message: clients rarely divide their
messages, and parsing hundreds of empty frames a second from each of hundreds of sockets takes a whole core."""
MESSAGE_FRAMES = 256
"""Frames of one message: 256 bytes each in the largest message. Empty ones would take memory without limit."""
PENDING_FRAMES = 10
"""Frames of a first message with the key, and control frames before it."""
PENDING_BYTES = 8192
"""Bytes that are read of a first message with the key. What follows it at once may be longer: it waits for the key."""


class FramePolicy:
    """Counts the frames of one client. Synchronous; time is an argument."""

    def __init__(self, frames_per_s: float) -> None:
        self._frames = TokenBucket(frames_per_s)
        self._control_frames = TokenBucket(CONTROL_FRAMES_PER_S)
        self._fragments = TokenBucket(FRAGMENTS_PER_S)
        self._pending_left: int | None = None
        self._pending_bytes_left = PENDING_BYTES
        self._message_frames = 0
        """Frames of a message that has not ended."""

    def restrict(self) -> None:
        """The client has to show its key with the next frames: at most `PENDING_FRAMES`, of `PENDING_BYTES`."""
        self._pending_left = PENDING_FRAMES

    def lift(self) -> None:
        """The client has sent its first message."""
        self._pending_left = None

    def too_many_bytes(self, nbytes: int) -> bool:
        """Counts bytes of which none ends the first message; whether they are too many without a key."""
        if self._pending_left is None:
            return False
        self._pending_bytes_left -= nbytes
        return self._pending_bytes_left < 0

    def violation(self, now_s: float, *, control: bool = False, fin: bool | None = None) -> str | None:
        """Counts a frame, a ping or an unsolicited pong if `control`; returns why the client is disconnected, if so.

        `fin`: whether a frame of a message is its last; None for other frames.
        """
        if fin is not None:
            self._message_frames = 0 if fin else self._message_frames + 1
            if self._message_frames >= MESSAGE_FRAMES:
                return f"a message has more than {MESSAGE_FRAMES} frames"
        if self._pending_left is not None:
            self._pending_left -= 1
            if self._pending_left < 0:
                return "too many frames before the API key"
        if self._frames.take(now_s):
            return "too many frames"
        if control and self._control_frames.take(now_s):
            return "too many control frames"
        if fin is False and self._fragments.take(now_s):
            return "too many fragments"
        return None
