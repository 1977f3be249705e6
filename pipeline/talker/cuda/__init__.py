"""The talker's step on GPUs: Triton and CUDA C++ kernels, and the CUDA graphs that run them."""
