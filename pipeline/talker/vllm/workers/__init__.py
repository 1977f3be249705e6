"""The workers that vLLM creates in the engine's process: on a GPU, and on a CPU."""
