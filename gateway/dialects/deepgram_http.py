"""Deepgram over plain HTTP: `POST /v1/speak`, and the same at `/v2/speak`."""

from __future__ import annotations

from aiohttp import web
from pydantic import BaseModel, ConfigDict

from ..http.body import read_json
from ..http.speech import HttpSpeech
from ..opening import Offer
from .deepgram_options import read_http_options, refuse
from .one_shot import UTTERANCE, Body, OneShot


class _Wanted(BaseModel):
    model_config = ConfigDict(extra="ignore")

    text: str


class DeepgramHttp:
    """The routes; errors are refused in Deepgram's shape."""

    refuse = staticmethod(refuse)

    def __init__(self, offer: Offer, speech: HttpSpeech) -> None:
        self._offer = offer
        self._speech = speech

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/v1/speak", self._speak), web.post("/v2/speak", self._speak)]

    async def _speak(self, request: web.Request) -> web.StreamResponse:
        options = read_http_options(request.query, self._offer)
        wanted = await read_json(request, _Wanted)
        start = options.start(UTTERANCE, pacing="none")
        body = Body(options.audio_format.media_type)
        return await self._speech.answer(request, OneShot("deepgram", start, wanted.text, body), refuse)
