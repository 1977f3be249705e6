"""The talker: the autoregressive model that turns tokens into codec frames, inside vLLM."""
