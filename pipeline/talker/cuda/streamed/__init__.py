"""Layers as two CUDA C++ kernels each, for batches of few rows."""
