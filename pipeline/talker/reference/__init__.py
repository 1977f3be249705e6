"""The talker step in plain torch, which the CPU and CUDA implementations must equal."""
