"""The servers that can be put under load, one file each.

A target module has `async def open_connection(options: TargetOptions) -> TargetConnection`.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable

from .connection import TargetConnection, TargetOptions

TARGETS = {
    "voxgate": "this project's own protocol",
    "elevenlabs": "the ElevenLabs dialect, multi-stream-input",
    "deepgram": "the Deepgram dialect, /v2/speak or /v1/speak",
    "vllm-omni": "vLLM-Omni's /v1/audio/speech/stream",
    "openai": "POST /v1/audio/speech: text is sent when it is complete",
}


def opener(target: str) -> Callable[[TargetOptions], Awaitable[TargetConnection]]:
    """How a line to `target`, one of TARGETS, is opened."""
    module = importlib.import_module(f".{target.replace('-', '_')}", __package__)
    open_connection: Callable[[TargetOptions], Awaitable[TargetConnection]] = module.open_connection
    return open_connection
