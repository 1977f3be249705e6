"""The talker's step on CPUs: a compiled code predictor, and vLLM's compiled operations for the backbone."""
