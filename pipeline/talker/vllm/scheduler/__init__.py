"""Which utterances take part in the next step: schedulers for vLLM's engine."""
