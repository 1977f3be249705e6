"""Registers the talker with vLLM in each of its processes (entry point group `vllm.general_plugins`)."""

from __future__ import annotations

from typing import Any

from .compat import install_wakeup_queue, spare_loop_sleep
from .config import EngineConfig

ARCHITECTURE = "VoxgateTalker"
"""The model's name in `config.json`."""


def register() -> None:
    """Called by vLLM before it reads a model's configuration."""
    from vllm import ModelRegistry

    if ARCHITECTURE not in ModelRegistry.get_supported_archs():
        # Given a class's name instead, vLLM inspects it in another interpreter, which takes seconds at every start.
        from .model import VoxgateTalker

        ModelRegistry.register_model(ARCHITECTURE, VoxgateTalker)
    install_wakeup_queue(_wakeup_address)
    spare_loop_sleep()


def _wakeup_address(vllm_config: Any) -> str:
    return EngineConfig.of(vllm_config).wakeup_address
