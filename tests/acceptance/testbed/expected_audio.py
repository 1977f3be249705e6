"""Compares what a client received with the audio of the same text synthesized offline."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any

from fakes.pipeline.tone_synthesizer import FRAME_SAMPLES, tone_pcm
from fakes.waiting import DEADLINE_S
from voxgate.codecs.encode import PacketEncoder
from voxgate.codecs.format import OutputFormat
from voxgate.gateway.audio_header import AudioHeader
from voxgate.loadtest.virtual_user import Playback

RATE_HZ = 24_000
INITIAL_BURST_MESSAGES = 6
"""Messages that come at once when speech starts; the gaps between them say nothing about the pace."""
RECENT_MESSAGES = 64
"""More messages of 80 ms than may come again."""


@lru_cache(1024)
def expected_packets(text: str, seed: int, codec: str) -> tuple[str, int]:
    """SHA-256 of the tone synthesizer's packets for `text`, encoded in one go, and their number of samples."""
    encoder = PacketEncoder(OutputFormat(codec))
    pcm = tone_pcm(text, seed)
    packets = [
        *(packet for at in range(0, len(pcm), FRAME_SAMPLES) for packet in encoder.push(pcm[at : at + FRAME_SAMPLES])),
        *encoder.finish(),
    ]
    digest = hashlib.sha256(b"".join(packet.payload for packet in packets))
    return digest.hexdigest(), sum(packet.samples for packet in packets)


@dataclass(eq=False)
class ReceivedUtterance:
    """What a client received of one utterance. Times are those of the event loop."""

    text: str
    seed: int
    codec: str
    asked_s: float
    """When the utterance was asked for; in an open loop, when it was due."""
    over: asyncio.Future[str] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """"done", "interrupted", the code of an error, or "lost" with the socket."""
    started_s: float | None = None
    over_s: float | None = None
    end: dict[str, Any] = field(default_factory=dict)
    """The message that ended it."""
    playback: Playback = field(default_factory=lambda: Playback(RATE_HZ))
    may_be_lost: bool = False
    """Whether its session may end with its connection, because connections were lost one soon after the other."""
    disorder: str = ""
    """The first error in the numbering of its messages."""
    _digest: Any = field(default_factory=hashlib.sha256)
    _next_seq: int = 0
    _next_pts: int = 0
    _recent: dict[int, tuple[AudioHeader, int]] = field(default_factory=dict)
    """Header and hash of the `RECENT_MESSAGES` last messages, by number: these may come again after a hold."""
    _again_seq: int | None = None
    """Number of the next message that comes again."""

    def rewind(self, seq: int) -> None:
        """The utterance goes on after a hold: messages from `seq` on come again, unchanged."""
        if seq > self._next_seq:
            self.disorder = self.disorder or f"goes on with seq {seq}, not at most {self._next_seq}"
        self._again_seq = seq

    def _take_again(self, header: AudioHeader, payload: bytes) -> bool:
        if self._again_seq is None or self._again_seq >= self._next_seq:
            self._again_seq = None
            return False
        if header.seq != self._again_seq or self._recent.get(header.seq) != (header, hash(payload)):
            self.disorder = self.disorder or f"seq {header.seq} came again as another, {self._again_seq} was due"
        self._again_seq += 1
        return True

    def take(self, message: bytes, at_s: float) -> None:
        """Add an audio message."""
        header, payload = AudioHeader.unpack(message)
        if self._take_again(header, payload):
            return
        if (header.seq, header.pts) != (self._next_seq, self._next_pts):
            self.disorder = self.disorder or f"seq {header.seq} pts {header.pts}, not {self._next_seq} {self._next_pts}"
        if self.over.done():
            self.disorder = self.disorder or f"audio after {self.over.result()}"
        self._next_seq = header.seq + 1
        self._next_pts = header.pts + header.samples
        self._recent[header.seq] = (header, hash(payload))
        self._recent.pop(header.seq - RECENT_MESSAGES, None)
        self._digest.update(payload)
        self.playback.arrive(at_s, header.pts, header.samples)

    def finish(self, how: str, at_s: float, message: dict[str, Any] | None = None) -> None:
        if not self.over.done():
            self.over_s, self.end = at_s, message or {}
            self.over.set_result(how)

    async def ended(self, within_s: float = DEADLINE_S) -> str:
        """Wait for the end. Returns the outcome; raises TimeoutError."""
        await all_ended([self], within_s)
        return self.outcome

    @property
    def outcome(self) -> str:
        """How it ended; "open" as long as it has not."""
        return self.over.result() if self.over.done() else "open"

    @property
    def first_audio_ms(self) -> float:
        return 1000 * (self.playback.arrivals[0][0] - self.asked_s) if self.playback.arrivals else float("inf")

    @property
    def gaps_ms(self) -> list[float]:
        """Times between consecutive messages, without the burst at the start."""
        gaps = [1000 * (later - earlier) for (earlier, _, _), (later, _, _) in pairwise(self.playback.arrivals)]
        return gaps[INITIAL_BURST_MESSAGES:]

    @property
    def mismatch(self) -> str:
        """How the received audio differs from the expected one; empty when it does not, as far as it came."""
        if self.disorder:
            return self.disorder
        if self.outcome != "done":
            return ""
        digest, samples = expected_packets(self.text, self.seed, self.codec)
        if self._next_pts != samples:
            return f"{self._next_pts} samples instead of {samples}"
        return "" if self._digest.hexdigest() == digest else "audio differs from the offline audio"


async def all_ended(utterances: Iterable[ReceivedUtterance], within_s: float = DEADLINE_S) -> None:
    """Wait until all utterances have ended. Raises TimeoutError."""
    _, still_open = await asyncio.wait([one.over for one in utterances], timeout=within_s)
    if still_open:
        raise TimeoutError(f"{len(still_open)} utterances did not end within {within_s:g} s")


def mismatches(utterances: Iterable[ReceivedUtterance]) -> list[str]:
    return [why for utterance in utterances if (why := utterance.mismatch)]


def percentile(values: list[float], percent: float) -> float:
    """0 for an empty list."""
    return sorted(values)[min(len(values) - 1, int(len(values) * percent / 100))] if values else 0.0
