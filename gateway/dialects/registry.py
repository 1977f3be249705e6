"""Every dialect there is: which sockets and routes it serves."""

from __future__ import annotations

from ..http.service import Routes
from ..http.speech import HttpSpeech
from ..opening import Offer
from . import deepgram, deepgram_v2, elevenlabs, native
from .catalogue import Catalogue
from .deepgram_http import DeepgramHttp
from .elevenlabs_http import ElevenLabsHttp
from .endpoint import Endpoint
from .openai import OpenAIHttp

DIALECTS = ("native", "elevenlabs", "deepgram", "openai")
"""Their names, as sessions bear them."""

ENDPOINTS: tuple[Endpoint, ...] = (native.ENDPOINT, *elevenlabs.ENDPOINTS, deepgram.ENDPOINT, deepgram_v2.ENDPOINT)


def http_routes(offer: Offer, speech: HttpSpeech) -> list[Routes]:
    """What is answered over plain HTTP."""
    spoken = (ElevenLabsHttp(offer, speech), DeepgramHttp(offer, speech), OpenAIHttp(offer, speech))
    return [Routes(Catalogue(offer).routes()), *(Routes(each.routes(), each.refuse) for each in spoken)]
