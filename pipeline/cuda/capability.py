"""What GPU the talker needs. Free of torch: the gateway's process checks it before the engine starts."""

from __future__ import annotations

from ..errors import EngineError

MIN_CAPABILITY = (8, 0)
"""Ampere: the first GPUs with bfloat16, in which the talker computes."""

FP8_CACHE_MAJOR = 9
"""Hopper: the GPUs whose kernels read a cache in float8."""


def check_capability(capability: tuple[int, int], name: str) -> None:
    """Raises EngineError when a GPU is older than Ampere; `name`: of the GPU."""
    if capability < MIN_CAPABILITY:
        own, needed = (".".join(map(str, each)) for each in (capability, MIN_CAPABILITY))
        raise EngineError(
            f"{name} has CUDA compute capability {own}, but the talker needs {needed} or later (Ampere or newer)"
        )


def check_fp8_cache(capability: tuple[int, int], name: str) -> None:
    """Raises EngineError when the GPU called `name` cannot have a cache in float8."""
    if capability[0] != FP8_CACHE_MAJOR:
        own = ".".join(map(str, capability))
        raise EngineError(
            f"{name} has CUDA compute capability {own}, but --kv-cache-dtype fp8 needs {FP8_CACHE_MAJOR}.x (Hopper)"
        )
