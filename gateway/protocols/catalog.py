"""What every protocol offers alike: the lists of voices and models, language codes, ranges of speed and volume."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from voxgate.pipeline.errors import UnknownLanguage, UnsupportedOption
from voxgate.pipeline.interface import MAX_RATE, MAX_VOLUME, MIN_RATE

from ..session.utterance_factory import UtteranceFactory
from .endpoint import DocumentEndpoint, EndpointRequest, query_number
from .reply import Reply, json_reply

MODEL = "qwen3-tts"
"""The id of the only model."""

# Languages

LANGUAGES = {
    "zh": "chinese",
    "en": "english",
    "ja": "japanese",
    "ko": "korean",
    "de": "german",
    "fr": "french",
    "ru": "russian",
    "pt": "portuguese",
    "es": "spanish",
    "it": "italian",
}
"""The model's names of languages by ISO 639-1 code."""


def language_from_code(code: str | None, offered: tuple[str, ...], param: str = "language_code") -> str:
    """The name of the language with an ISO 639-1 code, which may carry a region ("en-US"); "auto" without a code.

    Raises UnknownLanguage for languages that are not in `offered`.
    """
    if not code:
        return "auto"
    name = LANGUAGES.get(code.lower().partition("-")[0])
    if name not in offered:
        known = ", ".join(known for known, language in LANGUAGES.items() if language in offered)
        raise UnknownLanguage(f"{param} must be one of {known} for this voice", param=param)
    return name


# Speed

NATURAL_SPEED = NATURAL_VOLUME = 1.0


def read_speed(speed: float | None, param: str = "speed") -> float:
    """The rate of speech for a client's speed, NATURAL_SPEED without one. Raises UnsupportedOption out of range."""
    if speed is None:
        return NATURAL_SPEED
    if not MIN_RATE <= speed <= MAX_RATE:
        raise UnsupportedOption(f"{param} must be from {MIN_RATE:g} to {MAX_RATE:g}, got {speed:g}", param=param)
    return speed


def read_volume(volume: float | None, param: str) -> float:
    """As `read_speed`, of the volume."""
    if volume is None:
        return NATURAL_VOLUME
    if not 0 <= volume <= MAX_VOLUME:
        raise UnsupportedOption(f"{param} must be from 0 to {MAX_VOLUME:g}, got {volume:g}", param=param)
    return volume


def read_query_speed(query: Mapping[str, str]) -> float:
    """As `read_speed`, from the query of a URL. Raises BadMessage for a speed that is not a number, too."""
    return read_speed(query_number(query, "speed", NATURAL_SPEED))


# Voices and models. /v1/voices is ElevenLabs' list with additional fields; /v1/models is OpenAI's list, or
# ElevenLabs' for requests with an `xi-api-key` header.


def voice_documents(factory: UtteranceFactory) -> list[dict[str, Any]]:
    """Every voice as JSON, with the native names of its fields and with ElevenLabs' names."""
    return [
        {
            "voice_id": voice.name,
            "name": voice.name,
            "display": voice.display,
            "category": "cloned" if voice.cloned else "premade",
            "description": voice.description,
            "labels": {name: value for name, value in (("gender", voice.gender), ("accent", voice.accent)) if value},
            "languages": voice.languages,
            "instructions": voice.instructions,
            "visemes": voice.visemes,
            "cloned": voice.cloned,
            "is_owner": factory.key is not None and voice.ownership.owner == factory.key,
            "shared": voice.ownership.shared,
        }
        for voice in factory.voices.values()
    ]


def _list_voices(_: EndpointRequest, factory: UtteranceFactory) -> Reply:
    return json_reply(HTTPStatus.OK, {"default": factory.default_voice, "voices": voice_documents(factory)})


def _list_models(request: EndpointRequest, factory: UtteranceFactory) -> Reply:
    if "xi-api-key" in request.headers:
        return json_reply(HTTPStatus.OK, [_elevenlabs_model(factory)])
    return json_reply(HTTPStatus.OK, {"object": "list", "data": [model_document(MODEL)]})


def model_document(name: str) -> dict[str, Any]:
    """A model as OpenAI describes it."""
    return {"id": name, "object": "model", "created": 0, "owned_by": "voxgate"}


def _elevenlabs_model(factory: UtteranceFactory) -> dict[str, Any]:
    max_characters = factory.limits.characters_per_utterance
    spoken = {name for voice in factory.voices.values() for name in voice.languages}
    return {
        "model_id": MODEL,
        "name": "Qwen3-TTS",
        "can_do_text_to_speech": True,
        "can_do_voice_conversion": False,
        "can_be_finetuned": False,
        "can_use_style": False,
        "can_use_speaker_boost": False,
        "maximum_text_length_per_request": max_characters,
        "max_characters_request_free_user": max_characters,
        "max_characters_request_subscribed_user": max_characters,
        "languages": [{"language_id": code, "name": name} for code, name in LANGUAGES.items() if name in spoken],
    }


DOCUMENT_ENDPOINTS = (DocumentEndpoint("/v1/voices", _list_voices), DocumentEndpoint("/v1/models", _list_models))
