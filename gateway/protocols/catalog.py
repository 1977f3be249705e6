"""Language codes of other services, and the names that voices have for them."""
# TODO-DOC How fast to speak: other services' clients ask for it by number, and there is one answer.
# TODO-DOC Voices and models, in lists that every client finds its own fields in.

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from aiohttp import web
from voxgate.pipeline.errors import BadMessage, UnknownLanguage, UnsupportedOption

from ..session.utterance_factory import UtteranceFactory
from .reply import json_reply

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
"""Names by ISO 639-1 code."""


def language_from_code(code: str | None, offered: tuple[str, ...]) -> str:
    """The language of an ISO 639-1 code, with or without a region; "auto" for none. Raises UnknownLanguage."""
    if not code:
        return "auto"
    name = LANGUAGES.get(code.lower().partition("-")[0])
    if name not in offered:
        listed = [each for each, language in LANGUAGES.items() if language in offered]
        raise UnknownLanguage(f"languages of this voice are {', '.join(listed)}", param="language_code")
    return name


NATURAL_SPEED = 1.0
SPEED_UNSUPPORTED = "these voices speak at one speed; leave it out"


def check_speed(speed: float | None, param: str = "speed") -> None:
    """Raises UnsupportedOption for any speed but the voice's own: nobody is to wonder why it changes nothing."""
    if speed is not None and speed != NATURAL_SPEED:
        raise UnsupportedOption(SPEED_UNSUPPORTED, param=param)


def check_query_speed(query: Mapping[str, str]) -> None:
    """The same of a URL's query. Raises BadMessage for what is no number, too."""
    if (text := query.get("speed")) is None:
        return
    try:
        speed = float(text)
    except ValueError:
        raise BadMessage("speed is a number", param="speed") from None
    check_speed(speed)


MODEL = "qwen3-tts"


class VoiceCatalog:
    """`/v1/voices` is ElevenLabs' list with fields of our own; `/v1/models` is OpenAI's, to its clients ElevenLabs'."""

    def __init__(self, factory: UtteranceFactory) -> None:
        self._factory = factory

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/v1/voices", self._voices), web.get("/v1/models", self._models)]

    async def _voices(self, _: web.Request) -> web.Response:
        document = {"default": self._factory.default_voice, "voices": voice_documents(self._factory)}
        return json_reply(HTTPStatus.OK, document).response()

    async def _models(self, request: web.Request) -> web.Response:
        document: Any
        if "xi-api-key" in request.headers:
            document = [_model(self._factory)]
        else:
            model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "voxgate"}
            document = {"object": "list", "data": [model]}
        return json_reply(HTTPStatus.OK, document).response()


def voice_documents(factory: UtteranceFactory) -> list[dict[str, Any]]:
    """Each voice, with the names that this gateway and ElevenLabs have for its fields."""
    return [
        {
            "voice_id": voice.name,
            "name": voice.name,
            "display": voice.display,
            "category": "cloned" if voice.cloned else "premade",
            "description": voice.description,
            "labels": {},
            "languages": voice.languages,
            "instructions": voice.instructions,
            "cloned": voice.cloned,
        }
        for voice in factory.synthesizer.voices.values()
    ]


def _model(factory: UtteranceFactory) -> dict[str, Any]:
    limit = factory.limits.characters_per_utterance
    names = dict.fromkeys(name for voice in factory.synthesizer.voices.values() for name in voice.languages)
    return {
        "model_id": MODEL,
        "name": "Qwen3-TTS",
        "can_do_text_to_speech": True,
        "can_do_voice_conversion": False,
        "can_be_finetuned": False,
        "can_use_style": False,
        "can_use_speaker_boost": False,
        "maximum_text_length_per_request": limit,
        "max_characters_request_free_user": limit,
        "max_characters_request_subscribed_user": limit,
        "languages": [{"language_id": code, "name": name} for code, name in LANGUAGES.items() if name in names],
    }
