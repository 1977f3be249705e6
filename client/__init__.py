"""Python client of the gateway's native protocol (`docs/protocol.md`). It needs nothing but `websockets`.

async with connect("ws://localhost:8000") as session, session.utterance(words=True) as utterance:
    await utterance.send("Hello ")
    await utterance.send("there.")
    await utterance.end()
    async for audio in utterance.audio():
        play(audio.payload)
"""

from .client import NO_RETRY, Client, Retry, say
from .errors import ClientError, ProtocolViolation, Refused, SessionLost, SpeechError, Unreachable
from .events import (
    Audio,
    AudioFormat,
    Continued,
    Done,
    Event,
    Generated,
    Interrupted,
    LimitsInfo,
    Notice,
    Queued,
    Reconnecting,
    Resumed,
    Retracted,
    SessionInfo,
    Started,
    Starving,
    Viseme,
    Visemes,
    Word,
    Words,
)
from .session import DEFAULT_URL, Session, connect
from .utterance import Utterance

__all__ = [
    "DEFAULT_URL",
    "NO_RETRY",
    "Audio",
    "AudioFormat",
    "Client",
    "ClientError",
    "Continued",
    "Done",
    "Event",
    "Generated",
    "Interrupted",
    "LimitsInfo",
    "Notice",
    "ProtocolViolation",
    "Queued",
    "Reconnecting",
    "Refused",
    "Resumed",
    "Retracted",
    "Retry",
    "Session",
    "SessionInfo",
    "SessionLost",
    "SpeechError",
    "Started",
    "Starving",
    "Unreachable",
    "Utterance",
    "Viseme",
    "Visemes",
    "Word",
    "Words",
    "connect",
    "say",
]
