"""Audio coding: the neural codec, output formats and sample rates."""
