"""One utterance without its session, and a speech that records its calls."""

from __future__ import annotations

import math

import numpy as np
from fakes.gateway.packet_encoder import FakeEncoder
from voxgate.codecs.format import OutputFormat
from voxgate.codecs.pcm import FRAME_SAMPLES
from voxgate.gateway.access.caller import Caller
from voxgate.gateway.access.keys import KeyLimits
from voxgate.gateway.session.admission import Ticket
from voxgate.gateway.session.utterance import ServerUtterance
from voxgate.pipeline.interface import FinishReason, Milestones, Speech, SpeechChunk, SpeechRequest


class RecordedSpeech(Speech):
    """A speech that records its calls and generates nothing."""

    seed = 7
    finish_reason: FinishReason | None = None
    waiting_for_text = False
    pronunciations = ()
    pauses = 0

    def __init__(self) -> None:
        self.calls: list[object] = []
        self.milestones = Milestones()

    def push_text(self, fragment: str) -> None:
        self.calls.append(fragment)

    def flush(self) -> None:
        self.calls.append("<flush>")

    def end(self) -> None:
        self.calls.append("<end>")

    def advance(self, frames: int) -> None:
        self.calls.append(frames)

    def spoken_until(self, played_ms: int) -> int:
        return played_ms // 100


def utterance(send_ahead_ms: int | None = 400) -> ServerUtterance:
    audio_format = OutputFormat("pcm")
    return ServerUtterance(
        "a",
        1,
        SpeechRequest("ada"),
        audio_format,
        FakeEncoder(audio_format),
        max_characters=20,
        send_ahead_ms=send_ahead_ms,
        outbox_ms=1000,
        words=False,
    )


def enqueue(queued: ServerUtterance, now_s: float) -> None:
    queued.enqueue(Ticket(Caller("k", KeyLimits()), math.inf, lambda *_: None, granted_s=now_s), now_s)


def speaking(send_ahead_ms: int | None = 400) -> tuple[ServerUtterance, RecordedSpeech]:
    """An utterance with an open speech, to which it has passed "Hello" at 1.0 s."""
    spoken, speech = utterance(send_ahead_ms), RecordedSpeech()
    spoken.add_text("Hello", 1.0)
    enqueue(spoken, 1.0)
    spoken.admit(speech)
    return spoken, speech


def push_audio(spoken: ServerUtterance, frames: int, first_frame: int = 0) -> None:
    spoken.on_audio(SpeechChunk(np.zeros(frames * FRAME_SAMPLES, np.float32), first_frame, frames))


def send_due(spoken: ServerUtterance, now_s: float) -> int:
    """Takes every packet that is due; returns how many."""
    count = 0
    while spoken.take_due_packet(now_s) is not None:
        count += 1
    return count
