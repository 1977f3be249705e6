"""Makes the talker known to vLLM in each of its processes (entry point group `vllm.general_plugins`)."""

ARCHITECTURE = "VoxgateTalker"


def register() -> None:
    """Called by vLLM before it reads a model's configuration."""
    from vllm import ModelRegistry

    if ARCHITECTURE not in ModelRegistry.get_supported_archs():
        # The class, not its name: by name vLLM starts one more interpreter to look at it, seconds of every start.
        from .model import VoxgateTalker

        ModelRegistry.register_model(ARCHITECTURE, VoxgateTalker)

    from .compat import install_wakeup_queue

    install_wakeup_queue()
