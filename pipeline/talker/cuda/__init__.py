"""The talker step on NVIDIA GPUs: Triton and CUDA C++ kernels and the graphs they run in."""
