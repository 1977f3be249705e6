"""The talker inside vLLM: engine process, scheduler, worker and model."""
