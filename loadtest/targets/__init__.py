"""The servers that can be put under load, one module each.

A target's module has `async def open_connection(options: TargetOptions) -> TargetConnection`.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable

from .connection import TargetConnection, TargetOptions

TARGETS = {
    "voxgate": "voxgate's native protocol",
    "elevenlabs": "the ElevenLabs protocol, multi-stream-input",
    "deepgram": "the Deepgram protocol, /v2/speak or /v1/speak",
    "vllm-omni": "vLLM-Omni's /v1/audio/speech/stream",
    "openai": "POST /v1/audio/speech; sends the text once it is complete",
}


def opener(target: str) -> Callable[[TargetOptions], Awaitable[TargetConnection]]:
    """Imports the module of `target`, one of TARGETS, and returns its `open_connection`."""
    module = importlib.import_module(f".{target.replace('-', '_')}", __package__)
    open_connection: Callable[[TargetOptions], Awaitable[TargetConnection]] = module.open_connection
    return open_connection
