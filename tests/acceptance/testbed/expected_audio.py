"""The one oracle: what a text is offline, and what a listener heard of it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any

from fakes.pipeline.tone_synthesizer import FRAME_SAMPLES, tone_pcm
from voxgate.codecs.encode import PacketEncoder
from voxgate.codecs.format import OutputFormat
from voxgate.gateway.messages import AudioHeader
from voxgate.loadtest.virtual_user import Playback

RATE_HZ = 24_000


@lru_cache(1024)
def offline(text: str, seed: int, codec: str) -> tuple[str, int]:
    """SHA-256 of the tone talker's packets for `text`, encoded at one go, and how many samples they are."""
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
    """What a client heard of one utterance; times are the loop's."""

    text: str
    seed: int
    codec: str
    asked_s: float
    """When it was asked for, or was to be: an open loop's clock."""
    over: asyncio.Future[str] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """"done", "interrupted", the code of an error, or "lost" with the socket."""
    number: int | None = None
    started_s: float | None = None
    over_s: float | None = None
    end: dict[str, Any] = field(default_factory=dict)
    """The message that ended it."""
    playback: Playback = field(default_factory=lambda: Playback(RATE_HZ))
    disorder: str = ""
    """The first thing wrong with its numbering."""
    _digest: Any = field(default_factory=hashlib.sha256)
    _next_seq: int = 0
    _next_pts: int = 0

    def hear(self, message: bytes, at_s: float) -> None:
        header, payload = AudioHeader.unpack(message)
        if (header.seq, header.pts) != (self._next_seq, self._next_pts):
            self.disorder = self.disorder or f"seq {header.seq} pts {header.pts}, not {self._next_seq} {self._next_pts}"
        if self.over.done():
            self.disorder = self.disorder or f"audio after {self.over.result()}"
        self._next_seq = header.seq + 1
        self._next_pts = header.pts + header.samples
        self._digest.update(payload)
        self.playback.arrive(at_s, header.pts, header.samples)

    def finish(self, how: str, at_s: float, message: dict[str, Any] | None = None) -> None:
        if not self.over.done():
            self.over_s, self.end = at_s, message or {}
            self.over.set_result(how)

    async def ended(self, within_s: float) -> str:
        """Wait for its end; returns how it ended. Raises TimeoutError."""
        await all_ended([self], within_s)
        return self.outcome

    @property
    def outcome(self) -> str:
        """How it ended; "open" when it has not."""
        return self.over.result() if self.over.done() else "open"

    @property
    def first_audio_ms(self) -> float:
        return 1000 * (self.playback.arrivals[0][0] - self.asked_s) if self.playback.arrivals else float("inf")

    @property
    def gaps_ms(self) -> list[float]:
        return [1000 * (later - earlier) for (earlier, _, _), (later, _, _) in pairwise(self.playback.arrivals)]

    @property
    def mismatch(self) -> str:
        """Why what was heard is not the text spoken offline; empty when it is, as far as it went."""
        if self.disorder:
            return self.disorder
        if self.outcome != "done":
            return ""
        digest, samples = offline(self.text, self.seed, self.codec)
        if self._next_pts != samples:
            return f"{self._next_pts} samples instead of {samples}"
        return "" if self._digest.hexdigest() == digest else "other audio than offline"


async def all_ended(heard: Iterable[ReceivedUtterance], within_s: float) -> None:
    """Raises TimeoutError, and leaves all as they are."""
    _, open_still = await asyncio.wait([one.over for one in heard], timeout=within_s)
    if open_still:
        raise TimeoutError(f"{len(open_still)} utterances did not end within {within_s:g} s")


def mismatches(heard: list[ReceivedUtterance]) -> list[str]:
    return [why for utterance in heard if (why := utterance.mismatch)]


def percentile(values: list[float], percent: float) -> float:
    """Of no values, 0."""
    return sorted(values)[min(len(values) - 1, int(len(values) * percent / 100))] if values else 0.0
