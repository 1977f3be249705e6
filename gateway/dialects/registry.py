"""Every dialect there is: which sockets and routes it serves."""

from __future__ import annotations

from ..http.service import Routes
from ..http.speech import HttpSpeech
from ..opening import Offer
from . import elevenlabs, native
from .catalogue import Catalogue
from .elevenlabs_http import ElevenLabsHttp
from .endpoint import Endpoint

ENDPOINTS: tuple[Endpoint, ...] = (native.ENDPOINT, *elevenlabs.ENDPOINTS)


def http_routes(offer: Offer, speech: HttpSpeech) -> list[Routes]:
    """What is answered over plain HTTP."""
    spoken = (ElevenLabsHttp(offer, speech),)
    return [Routes(Catalogue(offer).routes()), *(Routes(each.routes(), each.refuse) for each in spoken)]
