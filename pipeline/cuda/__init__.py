"""CUDA mechanisms that the talker and the codec share: run-time compilation, graphs, dependent launches, self-tests."""
