"""What goes between the gateway and the process that makes one voice: a line of JSON, then bytes, either way."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from ..checkpoint import CheckpointError
from ..errors import (
    AudioTooLarge,
    AudioTooLong,
    AudioTooShort,
    BadVoice,
    ClippedAudio,
    CloningFailed,
    SilentAudio,
    UnreadableAudio,
    VoxgateError,
)
from .making import VoiceDraft

_ERRORS: dict[str, type[VoxgateError]] = {
    error.code: error
    for error in (
        AudioTooLarge,
        AudioTooLong,
        AudioTooShort,
        BadVoice,
        CheckpointError,
        ClippedAudio,
        SilentAudio,
        UnreadableAudio,
    )
}
"""What may be wrong with a recording or a checkpoint; anything else is a failure of the process."""


@dataclass(frozen=True, slots=True)
class CloningJob:
    """`folder`: the checkpoint's; `checkpoint`: what it is called; the recording follows."""

    folder: str
    checkpoint: str
    draft: VoiceDraft
    most_bytes: int
    most_s: float
    recording: bytes

    def to_bytes(self) -> bytes:
        head = asdict(self)
        recording: bytes = head.pop("recording")
        return json.dumps(head).encode() + b"\n" + recording

    @classmethod
    def from_bytes(cls, message: bytes) -> CloningJob:
        head, _, recording = message.partition(b"\n")
        values = json.loads(head)
        draft = values.pop("draft")
        draft["languages"] = tuple(draft["languages"])
        return cls(**values, draft=VoiceDraft(**draft), recording=recording)


def answer(voice_file: bytes) -> bytes:
    """The voice was made."""
    return b"{}\n" + voice_file


def error_answer(error: VoxgateError) -> bytes:
    """It was not."""
    return json.dumps({"code": error.code, "message": error.message, "param": error.param}).encode() + b"\n"


def voice_file_of(message: bytes) -> bytes:
    """The voice file of an answer. Raises the error that the process reported; CloningFailed when it said nothing."""
    head, line_feed, voice_file = message.partition(b"\n")
    if not line_feed:
        raise CloningFailed("the process that listens to recordings ended without an answer")
    report = json.loads(head)
    if report:
        kind = _ERRORS.get(report["code"], CloningFailed)
        raise kind(report["message"], param=report["param"])
    return voice_file
