"""Voices and models, in lists that every client finds its own fields in."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from aiohttp import web

from ..http.reply import json_reply
from ..opening import Offer
from .languages import LANGUAGES

MODEL = "qwen3-tts"


class Catalogue:
    """`/v1/voices` is ElevenLabs' list with fields of our own; `/v1/models` is OpenAI's, to its clients ElevenLabs'."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/v1/voices", self._voices), web.get("/v1/models", self._models)]

    async def _voices(self, _: web.Request) -> web.Response:
        document = {"default": self._offer.default_voice, "voices": voice_documents(self._offer)}
        return json_reply(HTTPStatus.OK, document).response()

    async def _models(self, request: web.Request) -> web.Response:
        document: Any
        if "xi-api-key" in request.headers:
            document = [_model(self._offer)]
        else:
            model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "voxgate"}
            document = {"object": "list", "data": [model]}
        return json_reply(HTTPStatus.OK, document).response()


def voice_documents(offer: Offer) -> list[dict[str, Any]]:
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
        for voice in offer.synthesizer.voices.values()
    ]


def _model(offer: Offer) -> dict[str, Any]:
    limit = offer.limits.characters_per_utterance
    names = dict.fromkeys(name for voice in offer.synthesizer.voices.values() for name in voice.languages)
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
