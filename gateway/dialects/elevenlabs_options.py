"""What an ElevenLabs client asks for in a URL, and how it is told that this is not offered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal

from ...codecs.format import AudioFormat
from ...pipeline.errors import BadMessage, UnsupportedFormat, VoxgateError
from ..http.reply import Reply, json_reply, retry_headers, status_of
from ..messages import Failed, FormatFields, Start
from ..opening import Offer
from .endpoint import Handshake
from .languages import language_named

DEFAULT_FORMAT = "mp3_44100_128"
INACTIVITY_S = 20.0
INACTIVITY_LIMIT_S = 180.0

_MP3 = ((22050, (32,)), (24000, (48,)), (44100, (32, 64, 96, 128, 192)))

FORMATS: Mapping[str, AudioFormat] = {
    **{f"pcm_{rate}": AudioFormat("pcm", rate) for rate in (8000, 16000, 22050, 24000, 32000, 44100, 48000)},
    "ulaw_8000": AudioFormat("mulaw", 8000),
    "alaw_8000": AudioFormat("alaw", 8000),
    **{f"opus_48000_{kbit}": AudioFormat("ogg_opus", 48000, 1000 * kbit) for kbit in (32, 64, 96, 128, 192)},
    **{f"mp3_{rate}_{kbit}": AudioFormat("mp3", rate, 1000 * kbit) for rate, kbits in _MP3 for kbit in kbits},
}
"""`output_format` by name."""

_SLUGS = {
    "at_capacity": "too_many_concurrent_requests",
    "key_limit": "too_many_concurrent_requests",
    "rate_limited": "rate_limit_exceeded",
    "unauthorized": "invalid_api_key",
    "unknown_voice": "voice_not_found",
    "unsupported_format": "output_format_not_allowed",
    "too_many_utterances": "max_active_conversations",
    "text_too_long": "max_character_limit_exceeded",
}


@dataclass(frozen=True, slots=True)
class SpeechOptions:
    """One URL's: every context on its socket has the same."""

    voice: str
    language: str
    audio_format: AudioFormat
    auto_mode: bool = False
    """Every text is a sentence of its own."""
    absolute_times: bool = False
    inactivity_s: float = INACTIVITY_S
    seed: int | None = None

    def start(self, utterance: str, *, words: bool = True, pacing: Literal["playback", "none"] = "playback") -> Start:
        """The message that begins an utterance."""
        return Start(
            type="start",
            utterance=utterance,
            voice=self.voice,
            language=self.language,
            format=FormatFields.of(self.audio_format),
            seed=self.seed,
            words=words,
            pacing=pacing,
        )


def read_options(handshake: Handshake, offer: Offer) -> SpeechOptions:
    """Raises UnknownVoice, UnknownLanguage, UnsupportedFormat, BadMessage, EngineNotReady."""
    query = handshake.query
    voice = offer.find_voice(handshake.path["voice"])
    name = query.get("output_format", DEFAULT_FORMAT)
    if (audio_format := FORMATS.get(name)) is None:
        raise UnsupportedFormat(f"output_format is one of {', '.join(FORMATS)}", param="output_format")
    return SpeechOptions(
        voice,
        language_named(query.get("language_code"), offer.synthesizer.voices[voice].languages),
        audio_format,
        auto_mode=query.get("auto_mode") == "true",
        absolute_times=query.get("sync_alignment") == "true",
        inactivity_s=min(_number(query, "inactivity_timeout", INACTIVITY_S), INACTIVITY_LIMIT_S),
        seed=int(_number(query, "seed", 0)) if "seed" in query else None,
    )


def _number(query: Mapping[str, str], name: str, default: float) -> float:
    text = query.get(name, str(default))
    if not text.isascii() or not text.replace(".", "", 1).isdigit() or len(text) > 15:
        raise BadMessage(f"{name} is a number from 0", param=name)
    return float(text)


def slug_of(error: VoxgateError | Failed) -> str:
    """ElevenLabs' word for an error, where it has one; otherwise ours."""
    return _SLUGS.get(error.code, error.code)


def refuse(error: VoxgateError | Failed) -> Reply:
    """A refused handshake or request, as ElevenLabs' API refuses it."""
    status = HTTPStatus.NOT_FOUND if error.code == "unknown_voice" else status_of(error)
    detail = {"type": status.name.lower(), "code": error.code, "status": slug_of(error), "message": error.message}
    return json_reply(status, {"detail": detail}, retry_headers(error.retry_after_ms))
