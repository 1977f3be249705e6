"""How the talker's engine is to be made, and how much of a prompt it has room for."""

from __future__ import annotations

from dataclasses import dataclass

from ..checkpoint import TalkerCheckpoint
from ..voice import MAX_REFERENCE_FRAMES
from .prompt import takes_instructions

MAX_INSTRUCTION = 500
"""Longest instruction, in tokens."""

MAX_REFERENCE_TEXT = 512
"""Longest text of a reference recording, in tokens: thirty seconds of fast speech have some 150."""

_FRAME_OF_PROMPT = 16
"""Positions of a prompt that are always there: role, language, speaker, begin-of-text, begin-of-codec."""

MAX_TEXT = 512
"""Longest text of one generation, in tokens."""

SLOW_FRAMES_PER_TOKEN = 4
"""Slow speech: a slot takes no more text than it has frames to say it in."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """`slots`: generations at once; `max_frames`: longest generation; `threads`: CPU threads of the engine process.
    `guests`: other processes that run generations in it, in slots that were lent to them. `warm`: prompts that are
    read before they are asked for (`warm.py`).

    On a GPU: `codec`: invitation of a codec to serve beside the talker; `dtype` to compute in, bfloat16 unless told;
    `own_kernels`: ours for layers, input, first draw and token instead of vLLM's and torch's; `streamed_layers`: of
    these, the layers of a few rows without the library; `whole_predictor`: one kernel for a frame's codes, where it
    fits; `gpu_memory`: most of the device's memory that it may take, as a share.
    """

    slots: int = 16
    max_frames: int = 400
    device: str = "cpu"
    codec: str | None = None
    dtype: str | None = None
    own_kernels: bool = True
    streamed_layers: bool = False
    whole_predictor: bool = False
    gpu_memory: float = 0.7
    threads: int = 1
    guests: int = 0
    warm: int = 0
    kv_cache_bytes: int | None = None
    start_timeout_s: float = 300.0


def longest_prompt(checkpoint: TalkerCheckpoint) -> int:
    """Positions that a prompt can take besides those of the text to be spoken."""
    if checkpoint.model_type == "base":
        return _FRAME_OF_PROMPT + MAX_REFERENCE_TEXT + MAX_REFERENCE_FRAMES
    return _FRAME_OF_PROMPT + (MAX_INSTRUCTION if takes_instructions(checkpoint) else 0)
