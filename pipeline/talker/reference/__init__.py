"""The talker's step in plain PyTorch: the definition that the CPU and CUDA implementations must match.

Nothing here imports vLLM, Triton or numba.
"""
