"""Audio of one utterance that is encoded and waits to be sent, and the interface of the audio encoder."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from voxgate.codecs.format import OutputFormat
from voxgate.codecs.pcm import FRAME_SAMPLES, Pcm
from voxgate.pipeline.interface import SpeechChunk

from ..audio_header import AudioHeader


class EncodedPacket(Protocol):
    """One Opus packet, or a run of s16le samples."""

    @property
    def payload(self) -> bytes: ...

    @property
    def samples(self) -> int:
        """Samples that the decoder returns for it, at the format's rate."""


class AudioEncoder(Protocol):
    """Encoder of one utterance. Not thread-safe."""

    @property
    def pre_skip(self) -> int:
        """Samples at the format's rate that the client drops at the start."""

    @property
    def true_samples(self) -> int:
        """Samples of audio so far, without `pre_skip` and padding; final after `finish`."""

    def renew(self) -> AudioEncoder:
        """Returns an encoder that makes the same packets from the same audio, from the beginning."""

    def push(self, pcm: Pcm) -> Sequence[EncodedPacket]:
        """Encodes `pcm`: float32 [n] in [-1, 1], 24 kHz mono. Returns the packets that are complete."""

    def finish(self) -> Sequence[EncodedPacket]:
        """Returns the remaining packets. `push` must not be called afterwards."""


EncoderFactory = Callable[[OutputFormat], AudioEncoder]
"""Makes the encoder of one utterance. Raises codecs.format.FormatError for a format that is not offered."""


class AudioPacket(NamedTuple):
    """A packet that leaves: its header and the encoder's bytes."""

    header: AudioHeader
    payload: bytes


class Outbox:
    """Packets of one utterance, numbered as they leave.

    Holds `bound_ms` of audio plus one chunk: the speech is read only while `has_room`.
    """

    def __init__(self, number: int, rate_hz: int, bound_ms: int) -> None:
        self._number = number
        self._bound_samples = bound_ms * rate_hz // 1000
        self._waiting: deque[tuple[bytes, int, float]] = deque()
        """Payload and samples of each packet, and samples of speech that were encoded when it was complete."""
        self._again: deque[AudioPacket] = deque()
        """Packets that leave once more, before the others."""
        self.fixed_samples: float = 0
        """Samples of speech, at its own rate, that decide what was sent; infinity once an end was sent."""
        self._repeats = 0
        """Packets still to come that were put before a `rewind`."""
        self.repeated_samples = 0
        """Samples of such packets that came."""
        self.waiting_samples = 0
        """Samples of all packets that wait."""
        self._seq = 0
        self._pts = 0
        self._closed = False
        self._skipped = 0
        """Packets still to come that the client has got elsewhere."""
        self._on_skip: Callable[[int], None] = lambda _: None
        self.last_skipped = False
        """Whether the client has got the last one."""
        self.sent_bytes = 0
        """Bytes of audio sent, without headers."""

    @property
    def has_room(self) -> bool:
        return self.waiting_samples < self._bound_samples

    @property
    def next_samples(self) -> int | None:
        """Samples of the packet that leaves next; None when the outbox is empty."""
        if self._again:
            return self._again[0].header.samples
        return self._waiting[0][1] if self._waiting else None

    @property
    def waiting_packets(self) -> int:
        """Packets that wait."""
        return len(self._again) + len(self._waiting)

    @property
    def next_seq(self) -> int:
        """Number of the packet that leaves next."""
        return self._again[0].header.seq if self._again else self._seq + self._skipped

    @property
    def next_pts(self) -> int:
        """Samples before the packet that leaves next, as far as they are known."""
        return self._again[0].header.pts if self._again else self._pts

    @property
    def drained(self) -> bool:
        """Whether the packet marked as last has left."""
        return self._closed and not self._waiting and not self._again

    @property
    def sent_messages(self) -> int:
        return self._seq

    @property
    def repeating(self) -> bool:
        """Whether packets are still to come that the client has got."""
        return bool(self._repeats or self._skipped)

    @property
    def repeats(self) -> int:
        """Packets still to come that the client has got."""
        return self._repeats + self._skipped

    def skip(self, packets: int, on_skip: Callable[[int], None], *, last: bool = False) -> None:
        """Drops the next packets, which the client has got elsewhere, the `last` of all included or not.

        `on_skip` is called with the samples of each.
        """
        self._skipped, self._on_skip, self.last_skipped = packets, on_skip, last

    def put(self, packets: Iterable[EncodedPacket], samples: float = math.inf) -> None:
        """Appends packets, complete after so many samples of speech; infinity for those of its end."""
        for packet in packets:
            if self._repeats:
                self._repeats -= 1
                self.repeated_samples += packet.samples
                continue
            if self._skipped:
                self._skip_one(packet.samples)
                self.fixed_samples = samples
                continue
            self._waiting.append((packet.payload, packet.samples, samples))
            self.waiting_samples += packet.samples

    def put_back(self, packets: Sequence[AudioPacket]) -> None:
        """Has packets that have left leave once more, unchanged, before all that wait."""
        self._again.extendleft(reversed(packets))
        self.waiting_samples += sum(packet.header.samples for packet in packets)

    def close(self) -> None:
        """Marks the final packet as last; appends an empty one if none waits to carry the mark."""
        self._closed = True
        if self._skipped:
            self._skip_one(0)
        elif not self._waiting and not self.last_skipped:
            self._waiting.append((b"", 0, math.inf))

    def reopen(self) -> bool:
        """Drops the end of the stream, so that more may follow; returns False, dropping nothing, if some was sent."""
        if self.fixed_samples == math.inf:
            return False
        self._closed = False
        self._drop_behind(math.inf)
        return True

    def rewind(self, samples: float) -> None:
        """Drops the packets that more than `samples` of speech decide. The stream is put again from its first packet.

        Packets that were sent, or still wait, are then dropped.
        """
        self._drop_behind(samples)
        self._repeats, self.repeated_samples = self._seq + len(self._waiting), 0

    def _drop_behind(self, samples: float) -> None:
        while self._waiting and (self._waiting[-1][2] > samples or self._waiting[-1][2] == math.inf):
            self.waiting_samples -= self._waiting.pop()[1]

    def _skip_one(self, samples: int) -> None:
        self._skipped -= 1
        self._seq += 1
        self._pts += samples
        self._on_skip(samples)

    def drop(self) -> None:
        """Discards all packets that wait."""
        self._waiting.clear()
        self._again.clear()
        self.waiting_samples = 0

    def take(self) -> AudioPacket:
        """Removes and numbers the next packet; one that was put back has its number."""
        if self._again:
            packet = self._again.popleft()
            self.waiting_samples -= packet.header.samples
            self.sent_bytes += len(packet.payload)
            return packet
        payload, samples, self.fixed_samples = self._waiting.popleft()
        self.waiting_samples -= samples
        last = self._closed and not self._waiting
        if last:
            self.fixed_samples = math.inf
        header = AudioHeader(
            self._number,
            self._seq,
            self._pts,
            samples,
            first=self._seq == 0,
            last=last,
        )
        self._seq += 1
        self._pts += samples
        self.sent_bytes += len(payload)
        return AudioPacket(header, payload)


class SpeechEncoder:
    """Encodes the speech of one utterance into its outbox. Synchronous."""

    def __init__(self, encoder: AudioEncoder, outbox: Outbox) -> None:
        self.pre_skip = encoder.pre_skip
        """As of `AudioEncoder`."""
        self.frames = 0
        """Frames of the present speech."""
        self._encoder, self._outbox = encoder, outbox
        self._samples = 0
        """Samples of the present speech that were encoded."""

    @property
    def true_samples(self) -> int:
        """As of `AudioEncoder`."""
        return self._encoder.true_samples

    def push(self, chunk: SpeechChunk) -> None:
        """Encodes a chunk frame by frame, so that it is known which frame completes a packet."""
        self.frames += chunk.frames
        for begin in range(0, len(chunk.pcm), FRAME_SAMPLES):
            pcm = chunk.pcm[begin : begin + FRAME_SAMPLES]
            self._samples += len(pcm)
            self._outbox.put(self._encoder.push(pcm), self._samples)

    def finish(self) -> None:
        """Encodes the rest: no chunk follows."""
        self._outbox.put(self._encoder.finish())
        self._outbox.close()

    def renew(self) -> None:
        """Another speech follows, which begins again."""
        self._encoder = self._encoder.renew()
        self.frames = self._samples = 0
