"""All endpoints. A new protocol is added by a module of its own and its entries here.

This module imports every protocol; no protocol may import it.
"""

from __future__ import annotations

from typing import Any

from . import catalog, nari, native, openai
from .cartesia import http as cartesia_http
from .cartesia import websocket as cartesia
from .cartesia.websocket import Cartesia
from .deepgram import v1 as deepgram_v1
from .deepgram import v2 as deepgram_v2
from .deepgram.v1 import Deepgram
from .elevenlabs import http as elevenlabs_http
from .elevenlabs import websocket as elevenlabs
from .elevenlabs.websocket import ElevenLabs
from .endpoint import DocumentEndpoint, SpeechEndpoint, WebSocketEndpoint
from .native import NativeProtocol
from .wyoming import Wyoming

PROTOCOL_NAMES = (
    NativeProtocol.name,
    ElevenLabs.name,
    Deepgram.name,
    Cartesia.name,
    nari.NariSpeech.name,
    openai.NAME,
    Wyoming.name,
)
"""Names of the protocols in metrics, logs and traces."""

WEBSOCKET_ENDPOINTS: tuple[WebSocketEndpoint, ...] = (
    native.ENDPOINT,
    *elevenlabs.ENDPOINTS,
    deepgram_v1.ENDPOINT,
    deepgram_v2.ENDPOINT,
    cartesia.ENDPOINT,
    nari.ENDPOINT,
)
SPEECH_ENDPOINTS: tuple[SpeechEndpoint[Any], ...] = (
    *elevenlabs_http.SPEECH_ENDPOINTS,
    *deepgram_v1.SPEECH_ENDPOINTS,
    *cartesia_http.SPEECH_ENDPOINTS,
    openai.SPEECH_ENDPOINT,
)
DOCUMENT_ENDPOINTS: tuple[DocumentEndpoint, ...] = (
    *catalog.DOCUMENT_ENDPOINTS,
    *elevenlabs_http.DOCUMENT_ENDPOINTS,
    *cartesia_http.DOCUMENT_ENDPOINTS,
    *openai.DOCUMENT_ENDPOINTS,
)
