"""Whether audio messages of an utterance are missing, also where it goes on after a hold."""

from __future__ import annotations

from dataclasses import replace

from .errors import ProtocolViolation
from .events import SAMPLE_BYTES, Audio, AudioFormat, Continued, Done


class Continuity:
    """Checks the audio messages of one utterance, each of which must follow the one before."""

    def __init__(self, utterance: str) -> None:
        self.next_seq = 0
        self.last_received = False
        """Whether the last message of the utterance has come."""
        self._utterance = utterance
        self._next_pts = 0
        self._rewound = False
        """Whether the next message was received before: its `pts` is not known any more."""
        self._skip_samples = 0

    def rewind(self, continued: Continued) -> None:
        """Expects messages from `continued.seq` on, which were received before. Raises ProtocolViolation."""
        if continued.seq > self.next_seq:
            raise ProtocolViolation(
                f"utterance {self._utterance}: seq of continued must be at most {self.next_seq}, got {continued.seq}"
            )
        if continued.seq < self.next_seq:
            self.next_seq, self._rewound, self.last_received = continued.seq, True, False
        self._skip_samples = continued.skip_samples

    def check(self, audio: Audio, format: AudioFormat) -> Audio:
        """Returns the message without what was heard before a hold. Raises ProtocolViolation if it does not follow."""
        problem = None
        if audio.seq != self.next_seq:
            problem = f"seq must be {self.next_seq}, got {audio.seq}"
        elif audio.pts != self._next_pts and not (self._rewound and audio.pts < self._next_pts):
            problem = f"pts must be {self._next_pts}, got {audio.pts}"
        elif audio.first != (audio.seq == 0):
            problem = "the flag of the first message is wrong"
        elif self.last_received:
            problem = "audio after the last message"
        elif (size := SAMPLE_BYTES.get(format.codec)) and len(audio.payload) != size * audio.samples:
            problem = f"{audio.samples} samples must have {size * audio.samples} bytes, got {len(audio.payload)}"
        if problem is not None:
            raise ProtocolViolation(f"utterance {self._utterance}, message {audio.seq}: {problem}")
        self.next_seq += 1
        self._next_pts, self._rewound = audio.pts + audio.samples, False
        self.last_received = audio.last
        return self._unheard(audio, format)

    def check_complete(self, done: Done, format: AudioFormat) -> None:
        """Raises ProtocolViolation when audio is missing at the end."""
        received = self._next_pts - format.pre_skip
        # Coded packets have a fixed length: the last one may end with padding.
        complete = received == done.samples if format.codec in SAMPLE_BYTES else received >= done.samples
        if not complete or not self.last_received:
            raise ProtocolViolation(f"utterance {self._utterance}: done after {received} of {done.samples} samples")

    def _unheard(self, audio: Audio, format: AudioFormat) -> Audio:
        skip, self._skip_samples = min(self._skip_samples, audio.samples), 0
        if not skip:
            return audio
        if (size := SAMPLE_BYTES.get(format.codec)) is None:
            return replace(audio, skip_samples=skip)
        return replace(audio, pts=audio.pts + skip, samples=audio.samples - skip, payload=audio.payload[size * skip :])
