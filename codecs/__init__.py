"""Audio coding: the neural codec, Opus, PCM and sample rates."""
