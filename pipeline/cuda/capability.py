"""The oldest GPU that the talker runs on. Free of torch: the gateway's process checks it before the engine starts."""

from __future__ import annotations

from ..errors import EngineError

MIN_CAPABILITY = (8, 0)
"""Ampere: the first GPUs with bfloat16, in which the talker computes."""


def check_capability(capability: tuple[int, int], name: str) -> None:
    """Raises EngineError when a GPU is older than Ampere; `name`: of the GPU."""
    if capability < MIN_CAPABILITY:
        own, needed = (".".join(map(str, each)) for each in (capability, MIN_CAPABILITY))
        raise EngineError(
            f"{name} has CUDA compute capability {own}, but the talker needs {needed} or later (Ampere or newer)"
        )
