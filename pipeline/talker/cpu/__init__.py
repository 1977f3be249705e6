"""The talker step on CPUs: compiled loops and the products of vLLM for CPUs."""
