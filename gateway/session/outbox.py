"""Audio packets of one utterance that wait to be sent, and their numbering on the wire."""
# TODO-DOC What the gateway sees of audio coding: an encoder that turns PCM into the packets of a format.

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from voxgate.codecs.format import OutputFormat
from voxgate.codecs.pcm import Pcm

from ..messages import AudioHeader


class AudioPacket(NamedTuple):
    """A packet on its way out: what it is, and the encoder's bytes as they are."""

    header: AudioHeader
    payload: bytes


class Outbox:
    """Numbers packets (`seq`, `pts`) as they leave. Bounded: the speech is read only while `has_room`."""

    def __init__(self, number: int, rate_hz: int, bound_ms: int) -> None:
        self._number = number
        self._bound_samples = bound_ms * rate_hz // 1000
        self._waiting: deque[tuple[bytes, int]] = deque()
        self._waiting_samples = 0
        self._seq = 0
        self._pts = 0
        self._closed = False
        self.sent_bytes = 0
        """Of audio, without headers."""

    @property
    def has_room(self) -> bool:
        return self._waiting_samples < self._bound_samples

    @property
    def next_samples(self) -> int | None:
        """Samples of the packet that leaves next, None when none waits."""
        return self._waiting[0][1] if self._waiting else None

    @property
    def drained(self) -> bool:
        """The message marked last has left."""
        return self._closed and not self._waiting

    @property
    def sent_messages(self) -> int:
        return self._seq

    def put(self, packets: Iterable[EncodedPacket]) -> None:
        for packet in packets:
            self._waiting.append((packet.payload, packet.samples))
            self._waiting_samples += packet.samples

    def close(self) -> None:
        """No packet follows. With none left to carry the mark, an empty last message will."""
        self._closed = True
        if not self._waiting:
            self._waiting.append((b"", 0))

    def drop(self) -> None:
        """Forget what waits; nothing leaves any more."""
        self._waiting.clear()
        self._waiting_samples = 0

    def take(self) -> AudioPacket:
        """The next packet, numbered."""
        payload, samples = self._waiting.popleft()
        self._waiting_samples -= samples
        header = AudioHeader(
            self._number,
            self._seq,
            self._pts,
            samples,
            first=self._seq == 0,
            last=self._closed and not self._waiting,
        )
        self._seq += 1
        self._pts += samples
        self.sent_bytes += len(payload)
        return AudioPacket(header, payload)


class EncodedPacket(Protocol):
    """One Opus packet, or a run of s16le samples."""

    @property
    def payload(self) -> bytes: ...

    @property
    def samples(self) -> int:
        """Samples the decoder puts out for it, at the format's rate."""


class AudioEncoder(Protocol):
    """One utterance's encoder. Not thread-safe."""

    @property
    def pre_skip(self) -> int:
        """Samples at the format's rate that the listener drops at the start."""

    @property
    def true_samples(self) -> int:
        """Samples of exact audio so far, without `pre_skip` and padding; final after `finish`."""

    def push(self, pcm: Pcm) -> Sequence[EncodedPacket]:
        """Encode `pcm`: float32 [n] in [-1, 1], 24 kHz mono; returns the packets that are full."""

    def finish(self) -> Sequence[EncodedPacket]:
        """The packets still held back. Nothing may be pushed afterwards."""


EncoderFactory = Callable[[OutputFormat], AudioEncoder]
"""Makes the encoder of one utterance."""
