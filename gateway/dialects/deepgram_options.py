"""What a Deepgram client asks for in a URL, and how it is told that this is not offered."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ...codecs.format import AudioFormat, FormatError
from ...pipeline.errors import BadMessage, UnsupportedFormat, VoxgateError
from ..http.reply import Reply, json_reply, retry_headers, status_of
from ..messages import Failed, FormatFields, Start
from ..opening import Offer
from .endpoint import Handshake
from .speed import check_speed_in

_RAW = {"linear16": "pcm", "mulaw": "mulaw", "alaw": "alaw"}
"""Encodings on sockets, by our names."""
_DEFAULT_RATES = {"linear16": 24_000, "mulaw": 8000, "alaw": 8000, "mp3": 22_050, "opus": 48_000}
_DEFAULT_BIT_RATES = {"mp3": 48_000, "opus": 32_000}
_HEADER_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class SpeakOptions:
    """One URL's: every turn on its socket has the same."""

    voice: str
    audio_format: AudioFormat
    request_id: str

    def start(self, utterance: str, pacing: Literal["playback", "none"] = "playback") -> Start:
        """The message that begins an utterance."""
        wanted = FormatFields.of(self.audio_format)
        return Start(type="start", utterance=utterance, voice=self.voice, format=wanted, pacing=pacing)


def read_options(handshake: Handshake, offer: Offer) -> SpeakOptions:
    """A socket's. Raises UnknownVoice, UnsupportedFormat, UnsupportedOption, BadMessage, EngineNotReady."""
    encoding = handshake.query.get("encoding", "linear16")
    if encoding not in _RAW:
        raise UnsupportedFormat(f"encoding is one of {', '.join(_RAW)}", param="encoding")
    return _options(handshake.query, offer, encoding, _RAW[encoding])


def read_http_options(query: Mapping[str, str], offer: Offer) -> SpeakOptions:
    """A request's, which can have containers too. Raises the same."""
    encoding = query.get("encoding", "mp3")
    codecs = _RAW | {"mp3": "mp3", "opus": "ogg_opus"}
    if encoding not in codecs:
        raise UnsupportedFormat(f"encoding is one of {', '.join(codecs)}", param="encoding")
    codec = codecs[encoding]
    if encoding == "linear16" and query.get("container", "wav") == "wav":
        codec = "wav"
    return _options(query, offer, encoding, codec)


def _options(query: Mapping[str, str], offer: Offer, encoding: str, codec: str) -> SpeakOptions:
    check_speed_in(query)
    model = query.get("model")
    voice = offer.default_voice if model is None else offer.find_voice(model)
    rate_hz = _whole_number(query, "sample_rate", _DEFAULT_RATES[encoding])
    bit_rate = _whole_number(query, "bit_rate", _DEFAULT_BIT_RATES.get(encoding, 0))
    try:
        audio_format = AudioFormat(codec, rate_hz, bit_rate) if bit_rate else AudioFormat(codec, rate_hz)
    except FormatError as refused:
        raise UnsupportedFormat(str(refused), param=refused.param) from refused
    return SpeakOptions(voice, audio_format, str(uuid.uuid4()))


def _whole_number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, str(default))
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise BadMessage(f"{name} is a whole number", param=name)
    return int(text)


def refuse(error: VoxgateError | Failed) -> Reply:
    """A refused handshake or request: the reason is in headers too, which is where clients look."""
    request_id = str(uuid.uuid4())
    reason = " ".join(error.message.encode("ascii", "replace").decode().split())[:_HEADER_CHARACTERS]
    headers = {"dg-error": reason, "dg-request-id": request_id, **retry_headers(error.retry_after_ms)}
    document = {"err_code": error.code.upper(), "err_msg": error.message, "request_id": request_id}
    return json_reply(status_of(error), document, headers)
