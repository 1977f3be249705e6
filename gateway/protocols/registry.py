"""Every protocol there is: which sockets and routes it serves."""

from __future__ import annotations

from ..http.application import RouteGroup
from ..http.streaming import HttpSpeech
from ..session.utterance_factory import UtteranceFactory
from . import deepgram, deepgram_v2, elevenlabs, native
from .catalog import VoiceCatalog
from .deepgram import DeepgramHttp
from .elevenlabs_http import ElevenLabsHttp
from .endpoint import WebSocketEndpoint
from .openai import OpenAIHttp

PROTOCOL_NAMES = ("native", "elevenlabs", "deepgram", "openai")
"""Their names, as sessions bear them."""

WEBSOCKET_ENDPOINTS: tuple[WebSocketEndpoint, ...] = (
    native.ENDPOINT,
    *elevenlabs.ENDPOINTS,
    deepgram.ENDPOINT,
    deepgram_v2.ENDPOINT,
)


def http_routes(factory: UtteranceFactory, speech: HttpSpeech) -> list[RouteGroup]:
    """What is answered over plain HTTP."""
    spoken = (ElevenLabsHttp(factory, speech), DeepgramHttp(factory, speech), OpenAIHttp(factory, speech))
    return [RouteGroup(VoiceCatalog(factory).routes()), *(RouteGroup(each.routes(), each.refuse) for each in spoken)]
