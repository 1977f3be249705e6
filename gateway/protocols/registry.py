"""All endpoints. A new protocol is added by a module of its own and its entries here.

This module imports every protocol; no protocol may import it.
"""

from __future__ import annotations

from typing import Any

from . import catalog, deepgram, deepgram_v2, elevenlabs, elevenlabs_http, native, openai
from .deepgram import Deepgram
from .elevenlabs import ElevenLabs
from .endpoint import DocumentEndpoint, SpeechEndpoint, WebSocketEndpoint
from .native import NativeProtocol

PROTOCOL_NAMES = (NativeProtocol.name, ElevenLabs.name, Deepgram.name, openai.NAME)
"""Names of the protocols in metrics, logs and traces."""

WEBSOCKET_ENDPOINTS: tuple[WebSocketEndpoint, ...] = (
    native.ENDPOINT,
    *elevenlabs.ENDPOINTS,
    deepgram.ENDPOINT,
    deepgram_v2.ENDPOINT,
)
SPEECH_ENDPOINTS: tuple[SpeechEndpoint[Any], ...] = (
    *elevenlabs_http.SPEECH_ENDPOINTS,
    *deepgram.SPEECH_ENDPOINTS,
    openai.SPEECH_ENDPOINT,
)
DOCUMENT_ENDPOINTS: tuple[DocumentEndpoint, ...] = (*catalog.DOCUMENT_ENDPOINTS, *elevenlabs_http.DOCUMENT_ENDPOINTS)
