"""Makes the talker known to vLLM in each of its processes (entry point group `vllm.general_plugins`)."""

ARCHITECTURE = "VoxgateTalker"


def register() -> None:
    """Called by vLLM before it reads a model's configuration; imports nothing heavy by itself."""
    from vllm import ModelRegistry

    if ARCHITECTURE not in ModelRegistry.get_supported_archs():
        ModelRegistry.register_model(ARCHITECTURE, "voxgate.pipeline.talker.model:VoxgateTalker")
